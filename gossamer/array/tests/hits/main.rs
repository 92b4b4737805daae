//! Instructions of hits: none with a lock prefix, no fence, and for single elements no call.
//!
//! Only optimised code shows that. So a debug build of this file builds itself again with the package optimised (the
//! other packages stay as they are, and are not built again), and the counting runs there.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod steps;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod on_x86 {
    use std::arch::asm;
    use std::env;
    use std::hint::black_box;
    use std::panic::{catch_unwind, resume_unwind};
    use std::path::Path;
    use std::process::Command;
    use std::sync::atomic::{AtomicU64, Ordering, fence};
    use std::sync::mpsc;

    use gossamer_array::{Add, Array, Min, View, Views};

    use crate::steps::{self, Kind};

    /// The most instructions of a hit of a single element; a miss has many more.
    const HIT_MAX: usize = 60;

    /// Code as a program writes it, each call a function of its own.
    macro_rules! functions {
        ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? $body:block)*) => { $(
            #[inline(never)]
            fn $name($($argument: $type),*) $(-> $result)? $body
        )* };
    }

    functions! {
        fn get(array: &Array<u64>, i: usize) -> u64 { array.get(i) }
        fn get_long(array: &Array<[u64; 3]>, i: usize) -> [u64; 3] { array.get(i) }
        fn try_get(array: &Array<u64>, i: usize) -> Option<u64> { array.try_get(i) }
        fn set(array: &Array<u64>, i: usize) { array.set(i, 7); }
        fn set_long(array: &Array<[u64; 3]>, i: usize) { array.set(i, [7; 3]); }
        fn add(array: &Array<u64>, i: usize) { array.apply(i, Add, 7); }
        fn lessen(array: &Array<f64>, i: usize) { array.apply(i, Min, 7.0); }
        fn read(view: &View<'_, u64>) -> u64 { view.iter().sum() }
        fn view(array: &Array<u64>, i: usize) -> u64 { array.view(i..i + 9).iter().sum() }
        fn next(views: &mut Views<'_, u64>) -> u64 { views.next().map_or(0, |view| view.iter().sum()) }
        fn modify(array: &Array<u64>, i: usize) { array.modify(i..i + 9, |_, elements| elements[0] += 7); }
        fn combine(array: &Array<u64>, i: usize) { array.combine(i..i + 9, Add, |i, mut chunk| chunk.apply(i, 7)); }

        fn fetch_add(word: &AtomicU64) { word.fetch_add(1, Ordering::Relaxed); }
        fn swap(word: &AtomicU64) { black_box(word.swap(1, Ordering::Relaxed)); }
        fn order(word: &AtomicU64) { black_box(word); fence(Ordering::SeqCst); }
        fn call(word: &AtomicU64) { fetch_add(word); black_box(word); }
    }

    macro_rules! fences {
        ($($name:ident)*) => { $(
            #[allow(unsafe_code)]
            #[inline(never)]
            fn $name(_: &AtomicU64) {
                // SAFETY: it only orders accesses.
                unsafe { asm!(stringify!($name)) };
            }
        )* };
    }

    fences! { mfence lfence sfence }

    fn is_expensive(kind: &Kind) -> bool {
        matches!(kind, Kind::Locked | Kind::Fence | Kind::Exchange)
    }

    /// Returns the instructions that `$function` executes with these arguments.
    macro_rules! steps_of {
        ($function:ident($($argument:expr),*)) => {
            steps::of($function as *const (), || {
                black_box($function($($argument),*));
            })
        };
    }

    /// Checks a hit of a single element.
    macro_rules! element {
        ($whose:literal, $function:ident($($argument:expr),*)) => {{
            let kinds = steps_of!($function($($argument),*));
            println!("{} of {}: {} instructions", stringify!($function), $whose, kinds.len());
            assert!(!kinds.iter().any(is_expensive), "{}: {kinds:?}", stringify!($function));
            assert!(!kinds.contains(&Kind::Call) && kinds.len() <= HIT_MAX, "{}: {kinds:?}", stringify!($function));
        }};
    }

    /// Checks a hit of a chunk, which may call functions.
    macro_rules! chunk {
        ($whose:literal, $function:ident($($argument:expr),*)) => {{
            let kinds = steps_of!($function($($argument),*));
            println!("{} of {}: {} instructions", stringify!($function), $whose, kinds.len());
            assert!(!kinds.iter().any(is_expensive), "{}: {kinds:?}", stringify!($function));
        }};
    }

    /// Runs each kind of hit, at an element of this array and of others made like it, once its chunk is at this place.
    macro_rules! hits {
        ($whose:literal, $i:expr) => {{
            let (i, n) = ($i, 2000);
            let (words, longs) = (Array::new(n, 1u64).unwrap(), Array::new(n, [1u64; 3]).unwrap());
            (words.get(i), longs.get(i));
            element!($whose, get(&words, i));
            element!($whose, get_long(&longs, i));
            element!($whose, try_get(&words, i));
            let seen = words.view(i..i + 9);
            element!($whose, read(&seen));
            chunk!($whose, view(&words, i));
            let mut views = words.views(i..i + 9);
            chunk!($whose, next(&mut views));
            drop((seen, views));
            (words.set(i, 5), longs.set(i, [5; 3]));
            element!($whose, set(&words, i));
            element!($whose, set_long(&longs, i));
            // A word is set in place; the whole chunk is another right.
            words.modify(i..i + 1, |_, _| ());
            chunk!($whose, modify(&words, i));
            assert_eq!((words.get(i), longs.get(i)), (14, [7; 3]));
            let (sums, least) = (Array::new(n, 1u64).unwrap(), Array::new(n, 9.0).unwrap());
            (sums.apply(i, Add, 1), least.apply(i, Min, 8.0));
            element!($whose, add(&sums, i));
            element!($whose, lessen(&least, i));
            chunk!($whose, combine(&sums, i));
            assert_eq!((sums.get(i), least.get(i)), (16, 7.0));
        }};
    }

    fn hits() {
        let of_both = Array::new(2000, 0u8).unwrap();
        assert_eq!([3, 1900].map(|i| of_both.owner(i) == gossamer::here()), [true, false]);
        hits!("its own", 3);
        hits!("another place's", 1900);
    }

    #[test]
    fn hits_have_no_locks_and_no_fences() {
        if cfg!(debug_assertions) {
            return optimised();
        }
        let (tell, told) = mpsc::channel();
        gossamer::main(move || tell.send(catch_unwind(hits)).unwrap(), 2);
        told.recv().unwrap().unwrap_or_else(|panic| resume_unwind(panic));
    }

    #[test]
    fn locks_and_fences_are_found() {
        let word = AtomicU64::new(0);
        let expensive = |kinds: Vec<Kind>| kinds.into_iter().filter(is_expensive).collect::<Vec<_>>();
        assert_eq!(expensive(steps_of!(fetch_add(black_box(&word)))), [Kind::Locked]);
        assert_eq!(expensive(steps_of!(swap(black_box(&word)))), [Kind::Exchange]);
        assert!(matches!(expensive(steps_of!(order(&word)))[..], [Kind::Fence | Kind::Locked]));
        assert_eq!(expensive(steps_of!(mfence(&word))), [Kind::Fence]);
        assert_eq!(expensive(steps_of!(lfence(&word))), [Kind::Fence]);
        assert_eq!(expensive(steps_of!(sfence(&word))), [Kind::Fence]);
        let of_callee = steps_of!(call(black_box(&word)));
        assert!(of_callee.contains(&Kind::Call));
        assert_eq!(expensive(of_callee), [Kind::Locked]);
    }

    /// Runs these tests with the package optimised.
    fn optimised() {
        let own = env::current_exe().unwrap();
        let target = own.ancestors().nth(3).expect("tests are in a target folder");
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
        // With the features of the whole workspace, as in `cargo dev test`, so that its builds of other packages are
        // reused.
        cargo.args(["test", "--workspace", "--test", "hits", "--target-dir"]).arg(target);
        for setting in ["opt-level=3", "debug-assertions=false", "overflow-checks=false", "codegen-units=16"] {
            cargo.arg("--config").arg(format!("profile.dev.package.gossamer-array.{setting}"));
        }
        let output = cargo.args(["--", "--nocapture"]).output().unwrap();
        let [said, told] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        println!("{said}");
        let both = ["hits_have_no_locks_and_no_fences", "locks_and_fences_are_found"];
        let ran = both.iter().all(|test| said.contains(test)) && said.contains(" 2 passed");
        assert!(output.status.success() && ran, "{cargo:?}:\n{told}");
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
#[test]
fn hits_have_no_locks_and_no_fences() {
    println!("SKIPPED: hits_have_no_locks_and_no_fences: instructions of x86-64 Linux only");
}
