//! `gossamer-launch`, built with the tests so that they know where it is.

fn main() -> std::process::ExitCode {
    gossamer_daemon::cli::main()
}
