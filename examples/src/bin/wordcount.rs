//! `wordcount`: see `gossamer_examples::wordcount` for how it works, and `wordcount --help` for its options.

fn main() -> std::process::ExitCode {
    gossamer_examples::wordcount::start::main()
}
