//! `gossamer-daemon`: see `gossamer_daemon::daemon`.

fn main() -> std::process::ExitCode {
    gossamer_daemon::cli::daemon::main()
}
