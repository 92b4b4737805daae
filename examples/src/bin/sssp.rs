//! `sssp`: see `gossamer_examples::sssp` for how it works, and `sssp --help` for its options.

fn main() -> std::process::ExitCode {
    gossamer_examples::sssp::start::main()
}
