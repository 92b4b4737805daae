//! Programs that must not compile, with the message they must fail with: the errors of the paper's listings 2 to 4, a
//! change in `peek`, a persistent value that leaves its transaction, types that cannot lie in a pool.
//!
//! The cells of the paper's table 2 for Corundum, each with the test that shows it here ("static" is a program that
//! does not compile):
//!
//! | column | Corundum | here |
//! |---|---|---|
//! | only persistent objects | static | `always_refused_types`, `always_no_repr`, `always_listing_3_volatile_pointer` |
//! | pointers between pools | static, dynamic | static: `always_listing_4_two_pools` |
//! | `VWeak` of another pool | dynamic | dynamic: `a_volatile_pointer_finds_its_object_or_nothing` |
//! | from a pool to volatile memory | static | `always_listing_3_volatile_pointer`, `always_refused_types` |
//! | volatile memory into pools | dynamic | `always_thread_local`, `fail_capture_value`, `fail_listing_2_result` |
//! | by a `VWeak` into a pool | dynamic | dynamic: `a_volatile_pointer_outlives_its_pool_and_finds_nothing` |
//! | no races | static | `always_thread` |
//! | atomicity | static | `always_peek_changes`, `fail_tx_leaves` |
//! | isolation | static | `fail_listing_2_volatile`, `fail_capture`, `waiting_or_nesting_is_refused` |
//! | no leaks | counts | the walk: `long_lists_and_cycles`, `counts_are_set_to_what_the_walk_finds` |
//!
//! `ui/fail_*.rs` need the strict `NoRef`, `ui/always_*.rs` do not. With a compiler that words its messages differently
//! from the recorded ones this test says SKIPPED. Record anew with `TRYBUILD=overwrite`.

#[path = "../../tests/common/strict.rs"]
mod strict;

use strict::{STRICT, reads_otherwise};

#[test]
fn programs_that_break_the_rules_do_not_compile() {
    if let Some(reason) = reads_otherwise() {
        return println!("SKIPPED: the texts of compile errors: {reason}");
    }
    let programs = trybuild::TestCases::new();
    programs.compile_fail("tests/ui/always_*.rs");
    if STRICT {
        programs.compile_fail("tests/ui/fail_*.rs");
    } else {
        println!("SKIPPED: programs that the strict NoRef refuses: this build has none (see .cargo/config.toml)");
    }
}
