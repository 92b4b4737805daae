//! The daemon, as a program of this package.

fn main() -> std::process::ExitCode {
    gossamer_daemon::cli::daemon::main()
}
