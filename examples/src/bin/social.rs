//! `social`: see `gossamer_examples::social` for how it works, and `social --help` for its options.

fn main() -> std::process::ExitCode {
    gossamer_examples::social::start::main()
}
