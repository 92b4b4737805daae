//! Programs that must not compile, with the message they must fail with: what the paper's listings 2 to 4 refuse, a change in `peek`, a
//! persistent value that leaves its transaction, types that cannot lie in a pool (C3, C5, C6, C21).
//!
//! `ui/fail_*.rs` need the strict `NoRef`, `ui/always_*.rs` do not. With a compiler whose messages read otherwise than those recorded
//! this test says SKIPPED. Record anew with `TRYBUILD=overwrite`.

#[path = "../../tests/common/strict.rs"]
mod strict;

use strict::{RECORDED_WITH, STRICT, compiler};

#[test]
fn c21_programs_that_break_the_rules_do_not_compile() {
    let compiler = compiler();
    if !compiler.starts_with(RECORDED_WITH) {
        return println!("SKIPPED: the texts of compile errors are recorded with {RECORDED_WITH}x, this is {compiler}");
    }
    let programs = trybuild::TestCases::new();
    programs.compile_fail("tests/ui/always_*.rs");
    if STRICT {
        programs.compile_fail("tests/ui/fail_*.rs");
    } else {
        println!("SKIPPED: programs that the strict NoRef refuses: this build has none (see .cargo/config.toml)");
    }
}
