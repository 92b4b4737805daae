//! `kv`: a key-value store that speaks memcached's text protocol. See `gossamer_examples::kv` for how it works, and
//! `kv --help` for its options.
//!
//! ```sh
//! cargo run --release -p gossamer-examples --bin kv                        # listens at 127.0.0.1:11211 until Ctrl-C
//! printf 'set greeting 0 0 5\r\nhello\r\nget greeting\r\nquit\r\n' | nc 127.0.0.1 11211
//! cargo run -p gossamer-daemon --bin gossamer-launch -- run --local 2 target/release/kv
//! printf 'set greeting 0 0 5\r\nhello\r\nquit\r\n' | nc 127.0.0.1 11211    # one machine has it stored,
//! printf 'get greeting\r\nquit\r\n' | nc 127.0.0.1 11212                   # the other one answers
//! ```

fn main() -> std::process::ExitCode {
    gossamer_examples::memory::give_back_what_is_freed();
    gossamer_examples::kv::start::main()
}
