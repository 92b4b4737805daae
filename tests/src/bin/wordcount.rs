//! `wordcount`, for tests.

fn main() -> std::process::ExitCode {
    gossamer_examples::wordcount::start::main()
}
