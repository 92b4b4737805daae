//! `pagerank`: see `gossamer_examples::vertices` for how it works, and `pagerank --help` for what it can do.

fn main() -> std::process::ExitCode {
    gossamer_examples::vertices::start::pagerank()
}
