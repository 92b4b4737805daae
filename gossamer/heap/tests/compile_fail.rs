//! Programs that the compiler refuses, and its messages. Record anew with `TRYBUILD=overwrite`.

#[path = "../../../trust/tests/common/strict.rs"]
mod strict;

use strict::{STRICT, reads_otherwise};

#[test]
fn programs_that_would_break_the_heap_do_not_compile() {
    const { assert!(STRICT, "gossamer is built with the strict NoRef only") };
    if let Some(reason) = reads_otherwise() {
        return println!("SKIPPED: the texts of compile errors: {reason}");
    }
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
