//! Requests whose closures and results take kilobytes: unoptimised code must not copy them so often that the fibers'
//! stacks overflow.

use trust::Threadpool;

const BYTES: usize = 20_000;
/// Default of a fiber; a fifth of it is this test's own copies.
const STACK_BYTES: usize = 1 << 20;

#[test]
fn a_large_closure_and_its_result_fit_a_small_stack() {
    let pool = Threadpool::builder().workers(2).stack_bytes(STACK_BYTES).build();
    let there = pool.trustees()[1];
    let sum = pool.spawn_on(0, move || {
        let stored = there.entrust([1u8; BYTES]);
        let sent = [2u8; BYTES];
        let back = stored.apply(move |stored| std::mem::replace(stored, sent));
        assert!(back == [1; BYTES]);
        let sent = [3u8; BYTES];
        stored.apply_then(move |stored| std::mem::replace(stored, sent), |back| assert!(back == [2; BYTES]));
        stored.apply(|stored| stored.iter().map(|byte| u64::from(*byte)).sum::<u64>())
    });
    assert_eq!(sum.join().unwrap(), 3 * BYTES as u64);
}
