//! Requests whose closures and results take kilobytes: unoptimised code must not copy them so often that the fibers'
//! stacks overflow.

use trust::{Threadpool, TrusteeReference};

const BYTES: usize = 20_000;
/// Stack of a fiber that asks another worker; a fifth of it is this test's own copies.
const STACK_BYTES: usize = 1 << 20;

/// Stack of one that asks a trustee beside its worker, whose closures run on the stack of the fiber that calls.
const STACK_BYTES_BESIDE: usize = 3 << 19;

#[test]
fn a_large_closure_and_its_result_fit_a_small_stack() {
    let pool = Threadpool::builder().workers(2).stack_bytes(STACK_BYTES).build();
    call_from_a_fiber(&pool, pool.trustees()[1]);
}

#[test]
fn a_large_closure_that_runs_beside_its_worker_fits_a_larger_one() {
    let pool = Threadpool::builder().workers(1).trustees(1).stack_bytes(STACK_BYTES_BESIDE).build();
    call_from_a_fiber(&pool, pool.trustees()[0]);
}

fn call_from_a_fiber(pool: &Threadpool, trustee: TrusteeReference) {
    let stored = trustee.entrust([1u8; BYTES]);
    // It is there: nothing lies in slots, so the next calls of a fiber beside the trustee run at once.
    stored.apply(|_| ());
    let sum = pool.spawn_on(0, move || {
        let sent = [2u8; BYTES];
        let back = stored.apply(move |stored| std::mem::replace(stored, sent));
        assert!(back == [1; BYTES]);
        let sent = [3u8; BYTES];
        stored.apply_then(move |stored| std::mem::replace(stored, sent), |back| assert!(back == [2; BYTES]));
        stored.apply(|stored| stored.iter().map(|byte| u64::from(*byte)).sum::<u64>())
    });
    assert_eq!(sum.join().unwrap(), 3 * BYTES as u64);
}
