//! `dataframe`: see `gossamer_examples::dataframe` for how it works, and `dataframe --help` for what it can do.

fn main() -> std::process::ExitCode {
    gossamer_examples::dataframe::start::main()
}
