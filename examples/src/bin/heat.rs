//! `heat`: see `gossamer_examples::heat` for how it works, and `heat --help` for its options.

fn main() -> std::process::ExitCode {
    gossamer_examples::heat::main()
}
