//! Types that may not lie in a region are refused, with the cure: `Span` of pointers, of `bool`. Record again with
//! `TRYBUILD=overwrite`.

#[path = "../../../trust/tests/common/strict.rs"]
mod strict;

use strict::{RECORDED_WITH, STRICT, compiler};

#[test]
fn what_may_not_lie_in_a_region_does_not_compile() {
    const { assert!(STRICT, "gossamer is built with the strict NoRef only") };
    let compiler = compiler();
    if !compiler.starts_with(RECORDED_WITH) {
        return println!("SKIPPED: the texts of compile errors are recorded with {RECORDED_WITH}x, this is {compiler}");
    }
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
