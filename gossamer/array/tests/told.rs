//! Misuse is reported at the caller's line with a remedy that works there, and a lock that a thread has leaked does not
//! keep the program from ending.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Duration;

use gossamer_array::{Add, Array};

/// Location and text of the last panic.
static LAST: Mutex<(String, String)> = Mutex::new((String::new(), String::new()));

#[track_caller]
fn told(f: impl FnOnce()) -> String {
    catch_unwind(AssertUnwindSafe(f)).expect_err("a panic was expected");
    let (file, text) = LAST.lock().unwrap().clone();
    assert_eq!(file, file!(), "the panic is elsewhere: {text}");
    text
}

/// Calls in closures that have a chunk: on this chunk, and on others.
fn calls_in_closures() {
    let array = Array::new(4000, 1u64).unwrap();
    let far = array.owned(gossamer::rack().places().last().unwrap()).flatten().next().unwrap();
    type Use = fn(&Array<u64>, usize);
    let uses: [(&str, Use); 15] = [
        ("get", |array, i| assert_eq!(array.get(i), 1)),
        ("set", |array, i| array.set(i, 2)),
        ("apply", |array, i| array.apply(i, Add, 2)),
        ("view", |array, i| drop(array.view(i..i + 1))),
        ("view", |array, i| {
            for view in array.views(i..i + 1) {
                drop(view);
            }
        }),
        ("modify", |array, i| array.modify(i..i + 1, |_, _| ())),
        ("combine", |array, i| array.combine(i..i + 1, Add, |_, _| ())),
        ("copy_to", |array, i| array.copy_to(i, &mut [0])),
        ("copy_from", |array, i| array.copy_from(i, &[0])),
        ("gather", |array, i| array.gather(&[i], &mut [0])),
        ("apply_all", |array, i| array.apply_all(Add, [(i, 1)])),
        ("reduce", |array, i| assert_eq!(array.reduce(i..i + 1, Add), 1)),
        ("fill", |array, _| array.fill(3)),
        ("checkpoint", |array, _| array.checkpoint("/no/such/folder").unwrap()),
        ("write_lock", |array, i| drop(array.write_lock(i))),
    ];
    for (call, run) in uses {
        for i in [0, far] {
            let text = told(|| array.modify(0..1, |_, _| run(&array, i)));
            assert!(text.contains(&format!("`{call}`")), "{call} of {i}: {text}");
            assert!(text.contains("closure of a `modify`") && !text.contains("launch"), "{call} of {i}: {text}");
            let text = told(|| array.combine(0..1, Add, |_, _| run(&array, i)));
            assert!(text.contains("closure of a `modify`") && !text.contains("launch"), "{call} of {i}: {text}");
        }
    }
    // For a caller of `view`, panics name `view` even if the range spans chunks.
    let text = told(|| array.modify(0..1, |_, _| drop(array.view(0..4000))));
    assert!(text.contains("`view`"), "{text}");
    let text = told(|| array.modify(0..1, |_, _| drop(Array::new(1, 0u8))));
    assert!(text.contains("`build`") && !text.contains("launch"), "{text}");
    // Elsewhere `launch` is the remedy, also in callbacks.
    let (own, local) = (array.clone(), trust::local_trustee().entrust(()));
    assert!(told(|| local.apply(move |()| own.fill(3))).contains("`launch` the closure"));
    local.clear_poison();
    assert!(told(|| drop(array.view(3999..4001))).contains("3999..4001 is not within"));
    // The refused calls have changed nothing, and left no chunk in use.
    assert_eq!(array.reduce(0..4000, Add), 4000);
}

/// Calls where no program runs.
fn calls_outside_of_main() {
    let uses: [fn(); 10] = [
        || _ = gossamer::rack(),
        || _ = gossamer::here(),
        || _ = gossamer::Place::of(0, 0).trustee(),
        || _ = gossamer::stats(),
        || drop(gossamer::spawn(|| ())),
        || drop(gossamer::entrust(0)),
        || drop(gossamer::sync::Barrier::new(1)),
        || drop(gossamer::sync::Condvar::new()),
        || drop(gossamer::sync::channel::<u8>()),
        || drop(Array::new(1, 0u8)),
    ];
    for run in uses {
        let text = told(run);
        assert!(text.contains("inside `gossamer::main`"), "{text}");
    }
}

/// Locks leaked by threads that are not places, whether these threads end or not.
fn locks_are_forgotten() {
    let array = Array::new(4000, 1u64).unwrap();
    let leaked: &'static Array<u64> = Box::leak(Box::new(array.clone()));
    let thread = std::thread::spawn(move || {
        std::mem::forget(leaked.write_lock(7));
        std::mem::forget(leaked.read_lock(3999));
        std::mem::forget(leaked.try_write_lock(8).unwrap());
        let kept: &'static _ = Box::leak(Box::new(leaked.write_lock(9)));
        drop(leaked.write_lock(10));
        kept.get()
    });
    while !thread.is_finished() {
        trust::yield_now();
    }
    assert_eq!(thread.join().unwrap(), 1);
    assert!([7, 8, 9, 3999].iter().all(|i| array.try_write_lock(*i).is_none()), "they are locked for ever");
    assert!(array.try_read_lock(3999).is_some());
    drop(array.write_lock(10));
}

#[test]
fn misuse_is_told_and_holds_up_nothing() {
    std::panic::set_hook(Box::new(|panic| {
        let file = panic.location().unwrap().file().to_owned();
        *LAST.lock().unwrap() = (file, panic.payload_as_str().unwrap_or_default().to_owned());
        eprintln!("{panic}");
    }));
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(120));
        eprintln!("the program does not end");
        std::process::abort();
    });
    calls_outside_of_main();
    gossamer::main(
        || {
            calls_in_closures();
            locks_are_forgotten();
        },
        2,
    );
}
