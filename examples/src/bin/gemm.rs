//! `gemm`: see `gossamer_examples::gemm` for how it works, and `gemm --help` for its options.

fn main() -> std::process::ExitCode {
    gossamer_examples::gemm::start::main()
}
