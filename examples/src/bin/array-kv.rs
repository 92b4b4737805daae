//! `array-kv`: see `gossamer_examples::array_kv` for how it works, and `array-kv --help` for what it can do.

fn main() -> std::process::ExitCode {
    gossamer_examples::array_kv::start::main()
}
