//! `dataframe`: see `gossamer_examples::dataframe` for how it works, and `dataframe --help` for its options.

fn main() -> std::process::ExitCode {
    gossamer_examples::dataframe::start::main()
}
