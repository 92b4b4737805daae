//! `sssp`: see `gossamer_examples::sssp` for how it works, and `sssp --help` for what it can do.

fn main() -> std::process::ExitCode {
    gossamer_examples::sssp::start::main()
}
