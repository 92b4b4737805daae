//! `bank`: transfers between accounts that survive any end of the program. See `gossamer_examples::bank`, and `bank
//! --help`.
//!
//! ```sh
//! cargo run --release -p gossamer-examples --bin bank -- bank-folder --seconds 5    # transfers for 5 seconds
//! cargo run --release -p gossamer-examples --bin bank -- bank-folder --torture 20   # killed twenty times, and checked
//! ```

fn main() -> std::process::ExitCode {
    gossamer_examples::bank::main()
}
