//! `gossamer-launch`: see `gossamer_daemon::cli` for what it can do.

fn main() -> std::process::ExitCode {
    gossamer_daemon::cli::main()
}
