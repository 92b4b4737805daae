//! Types that may not lie in a region are refused, with the cure: `Span` of pointers, of `bool`. Record again with
//! `TRYBUILD=overwrite`.

#[path = "../../../trust/tests/common/strict.rs"]
mod strict;

use strict::{STRICT, reads_otherwise};

#[test]
fn what_may_not_lie_in_a_region_does_not_compile() {
    const { assert!(STRICT, "gossamer is built with the strict NoRef only") };
    if let Some(reason) = reads_otherwise() {
        return println!("SKIPPED: the texts of compile errors: {reason}");
    }
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
