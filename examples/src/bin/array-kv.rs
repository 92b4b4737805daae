//! `array-kv`: see `gossamer_examples::array_kv` for how it works, and `array-kv --help` for its options.

fn main() -> std::process::ExitCode {
    gossamer_examples::array_kv::start::main()
}
