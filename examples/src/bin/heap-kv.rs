//! `heap-kv`: see `gossamer_examples::heap_kv` for how it works, and `heap-kv --help` for its options.

fn main() -> std::process::ExitCode {
    gossamer_examples::heap_kv::start::main()
}
