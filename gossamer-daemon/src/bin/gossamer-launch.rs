//! `gossamer-launch`: see `gossamer_daemon::cli`.

fn main() -> std::process::ExitCode {
    gossamer_daemon::cli::main()
}
