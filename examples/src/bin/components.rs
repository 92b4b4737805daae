//! `components`: see `gossamer_examples::vertices` for how it works, and `components --help` for its options.

fn main() -> std::process::ExitCode {
    gossamer_examples::vertices::start::components()
}
