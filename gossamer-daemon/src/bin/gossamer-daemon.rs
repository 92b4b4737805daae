//! `gossamer-daemon`: see `gossamer_daemon::daemon` for what it does.

fn main() -> std::process::ExitCode {
    gossamer_daemon::cli::daemon::main()
}
