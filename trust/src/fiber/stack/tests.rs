//! Tests of `stack`: sizes, guards, reuse, resident memory, and errors.

use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt;

use super::child::{FINISHED, in_child};
use super::*;

const STACK_BYTES: usize = 64 * 1024;

fn write_at(stack: &Stack, below_top: usize, value: u8) {
    // SAFETY: callers stay within the stack, which is theirs alone.
    unsafe { stack.top().cast::<u8>().sub(below_top).write_volatile(value) };
}

fn read_at(stack: &Stack, below_top: usize) -> u8 {
    // SAFETY: as in `write_at`; new memory reads as zeros.
    unsafe { stack.top().cast::<u8>().sub(below_top).read_volatile() }
}

fn usable_bytes(stack: &Stack) -> usize {
    stack.top().addr() - stack.bottom().addr()
}

/// Bytes in memory and of address space.
fn memory_bytes() -> (usize, usize) {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let mut pages = text.split(' ').map(|field| field.trim().parse::<usize>().unwrap());
    let (space, resident) = (pages.next().unwrap(), pages.next().unwrap());
    (resident * page_bytes(), space * page_bytes())
}

#[test]
fn size_is_checked_and_rounded() {
    for stack_bytes in [0, MIN_STACK_BYTES - 1, MAX_STACK_BYTES + 1, usize::MAX] {
        let error = StackPool::new(stack_bytes).unwrap_err();
        assert!(matches!(error, StackError::Size { stack_bytes: asked } if asked == stack_bytes));
        assert!(error.to_string().contains("from 16384 to 1073741824"), "{error}");
    }
    let page = page_bytes();
    assert_eq!(StackPool::new(10 * page + 1).unwrap().stack_bytes(), 11 * page);
    let mut smallest = StackPool::new(MIN_STACK_BYTES).unwrap();
    assert!(usable_bytes(&smallest.take().unwrap()) >= MIN_STACK_BYTES);
    let mut largest = StackPool::new(MAX_STACK_BYTES).unwrap();
    assert!(usable_bytes(&largest.take().unwrap()) >= MAX_STACK_BYTES);
}

#[test]
fn stacks_are_large_enough_disjoint_and_writable() {
    for stack_bytes in [MIN_STACK_BYTES, STACK_BYTES, 5 * page_bytes(), 1 << 20] {
        let mut pool = StackPool::new(stack_bytes).unwrap();
        let mut stacks: Vec<Stack> = (0..100).map(|_| pool.take().unwrap()).collect();
        for (index, stack) in stacks.iter().enumerate() {
            assert!(usable_bytes(stack) >= stack_bytes);
            assert_eq!(stack.top().addr() % 64, 0);
            assert_eq!(stack.guard().end, stack.bottom().addr());
            assert!(stack.guard().len() >= GUARD_BYTES);
            write_at(stack, 1, index as u8);
            write_at(stack, usable_bytes(stack), index as u8);
        }
        for (index, stack) in stacks.iter().enumerate() {
            assert_eq!([read_at(stack, 1), read_at(stack, usable_bytes(stack))], [index as u8; 2]);
        }
        stacks.sort_by_key(|stack| stack.top().addr());
        assert!(stacks.is_sorted_by(|low, high| low.top().addr() <= high.guard().start));
    }
}

#[test]
fn tops_take_all_colours_and_an_odd_stride() {
    for stack_bytes in [MIN_STACK_BYTES, STACK_BYTES, STACK_BYTES + page_bytes()] {
        let mut pool = StackPool::new(stack_bytes).unwrap();
        let colours = pool.slots.colours();
        assert!(colours >= 16);
        let stacks: Vec<Stack> = (0..colours).map(|_| pool.take().unwrap()).collect();
        let offsets: HashSet<usize> = stacks.iter().map(|stack| stack.top().addr() % page_bytes()).collect();
        assert_eq!(offsets.len(), colours);
        assert_eq!(pool.slots.stride() / page_bytes() % 2, 1);
    }
}

#[test]
fn stack_put_last_is_taken_first() {
    let mut pool = StackPool::new(STACK_BYTES).unwrap();
    let stacks: Vec<Stack> = (0..40).map(|_| pool.take().unwrap()).collect();
    let tops: Vec<usize> = stacks.iter().map(|stack| stack.top().addr()).collect();
    stacks.into_iter().for_each(|stack| pool.put(stack));
    let again: Vec<Stack> = (0..40).map(|_| pool.take().unwrap()).collect();
    assert!(again.iter().map(|stack| stack.top().addr()).eq(tops.into_iter().rev()));
    assert_eq!(pool.carved, 40);
}

#[test]
fn only_so_many_idle_stacks_keep_their_pages() {
    let mut pool = StackPool::new(STACK_BYTES).unwrap();
    let total = pool.hot_max + 10;
    let stacks: Vec<Stack> = (0..total).map(|_| pool.take().unwrap()).collect();
    for stack in &stacks {
        write_at(stack, 1, 1);
        write_at(stack, usable_bytes(stack), 1);
    }
    stacks.into_iter().for_each(|stack| pool.put(stack));
    for (index, stack) in (0..total).map(|index| (index, pool.take().unwrap())).collect::<Vec<_>>() {
        let expected = u8::from(index < pool.hot_max);
        assert_eq!([read_at(&stack, 1), read_at(&stack, usable_bytes(&stack))], [expected; 2]);
    }
    assert_eq!(pool.carved, total);
    // 1 MiB stacks: no more than 64 of them keep their touched pages.
    assert_eq!(StackPool::new(1 << 20).unwrap().hot_max, 64);
}

#[test]
fn stack_outlives_its_pool() {
    let mut pool = StackPool::new(STACK_BYTES).unwrap();
    let stack = pool.take().unwrap();
    drop(pool);
    write_at(&stack, usable_bytes(&stack), 3);
    assert_eq!(read_at(&stack, usable_bytes(&stack)), 3);
}

fn touch_guard(guard_by: GuardBy, address: fn(&Range<usize>) -> usize) {
    let mut pool = StackPool::new(STACK_BYTES).unwrap();
    pool.guard_by = guard_by;
    let stack = pool.take().unwrap();
    write_at(&stack, usable_bytes(&stack), 1);
    stack.purge();
    assert_eq!(read_at(&stack, usable_bytes(&stack)), 0);
    touch(address(&stack.guard()));
}

fn touch(address: usize) {
    let address = std::ptr::with_exposed_provenance_mut::<u8>(address);
    eprintln!("touching the guard");
    // SAFETY: none: the access is meant to fault.
    unsafe { address.write_volatile(1) };
}

#[track_caller]
fn assert_faulted(output: &std::process::Output) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{text}");
    assert!(text.contains("touching the guard"), "{text}");
}

#[test]
fn guard_faults_at_its_end() {
    assert_faulted(&in_child(concat!(module_path!(), "::guard_faults_at_its_end"), || {
        touch_guard(GuardBy::Marker, |guard| guard.end - 1);
    }));
}

#[test]
fn guard_faults_at_its_start() {
    assert_faulted(&in_child(concat!(module_path!(), "::guard_faults_at_its_start"), || {
        touch_guard(GuardBy::Marker, |guard| guard.start);
    }));
}

#[test]
fn guard_of_older_kernels_faults() {
    assert_faulted(&in_child(concat!(module_path!(), "::guard_of_older_kernels_faults"), || {
        touch_guard(GuardBy::Protect, |guard| guard.end - 1);
    }));
}

/// Locked memory refuses markers just as an old kernel does.
#[test]
fn guard_is_protected_where_markers_are_refused() {
    let path = concat!(module_path!(), "::guard_is_protected_where_markers_are_refused");
    let output = in_child(path, || {
        // SAFETY: locks memory of this process only.
        if unsafe { libc::mlockall(libc::MCL_FUTURE | libc::MCL_ONFAULT) } != 0 {
            eprintln!("SKIPPED: mlockall: {}", io::Error::last_os_error());
            return;
        }
        let mut pool = StackPool::new(STACK_BYTES).unwrap();
        let stack = pool.take().unwrap();
        assert_eq!(pool.guard_by, GuardBy::Protect);
        touch(stack.guard().end - 1);
    });
    if String::from_utf8_lossy(&output.stderr).contains("SKIPPED") {
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    assert_faulted(&output);
}

#[track_caller]
fn assert_finished(output: &std::process::Output) {
    assert_eq!(output.status.code(), Some(FINISHED), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn hundred_thousand_stacks_fit_in_a_gibibyte() {
    const COUNT: usize = 100_000;
    assert_finished(&in_child(concat!(module_path!(), "::hundred_thousand_stacks_fit_in_a_gibibyte"), || {
        let (resident_before, space_before) = memory_bytes();
        let mut pool = StackPool::new(STACK_BYTES).unwrap();
        let mut stacks = Vec::with_capacity(COUNT);
        for _ in 0..COUNT {
            let stack = pool.take().unwrap_or_else(|error| panic!("{error}"));
            write_at(&stack, 1, 1);
            stacks.push(stack);
        }
        let resident = memory_bytes().0;
        eprintln!("{COUNT} stacks: {resident} bytes resident, {} mappings", mappings_in_use().unwrap());
        assert!(resident >= COUNT * page_bytes(), "every stack touched a page");
        assert!(resident < 1 << 30);
        if pool.guard_by == GuardBy::Marker {
            assert!(mappings_in_use().unwrap() < 1000);
        }
        stacks.drain(..).for_each(|stack| pool.put(stack));
        let idle = memory_bytes().0 - resident_before;
        assert!(idle < 64 << 20, "{idle} bytes kept by {COUNT} idle stacks");
        drop(pool);
        let (resident_after, space_after) = memory_bytes();
        assert!(resident_after - resident_before < 32 << 20, "{resident_after} {resident_before}");
        assert!(space_after - space_before < 64 << 20, "{space_after} {space_before}");
    }));
}

#[test]
fn few_stacks_reserve_little() {
    assert_finished(&in_child(concat!(module_path!(), "::few_stacks_reserve_little"), || {
        let before = memory_bytes().1;
        let mut pool = StackPool::new(STACK_BYTES).unwrap();
        let _three = [pool.take().unwrap(), pool.take().unwrap(), pool.take().unwrap()];
        assert!(memory_bytes().1 - before < 4 << 20);
    }));
}

#[test]
fn without_memory_there_is_an_error_with_a_cure() {
    assert_finished(&in_child(concat!(module_path!(), "::without_memory_there_is_an_error_with_a_cure"), || {
        let space = memory_bytes().1 as u64 + (64 << 20);
        let limit = libc::rlimit { rlim_cur: space, rlim_max: space };
        // SAFETY: limits this process only.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
        let mut pool = StackPool::new(STACK_BYTES).unwrap();
        let mut stacks = Vec::new();
        let error = loop {
            match pool.take() {
                Ok(stack) => stacks.push(stack),
                Err(error) => break error,
            }
        };
        // Slabs shrink before there is an error: at most a stack's worth and the heap's share is left.
        assert!(stacks.len() > 600, "{} stacks in 64 MiB", stacks.len());
        assert!(matches!(error, StackError::Memory { .. }), "{error:?}");
        assert!(error.to_string().contains("ulimit -v"), "{error}");
        pool.put(stacks.pop().unwrap());
        pool.take().unwrap();
    }));
}

#[test]
fn without_mappings_the_error_names_the_setting() {
    let limit = max_map_count().unwrap();
    if limit > 1 << 18 {
        eprintln!("SKIPPED: vm.max_map_count is {limit}, which takes too many stacks to reach");
        return;
    }
    assert_finished(&in_child(concat!(module_path!(), "::without_mappings_the_error_names_the_setting"), || {
        let mut pool = StackPool::new(MIN_STACK_BYTES).unwrap();
        pool.guard_by = GuardBy::Protect;
        let mut stacks = Vec::with_capacity(1 << 18);
        let error = loop {
            match pool.take() {
                Ok(stack) => stacks.push(stack),
                Err(error) => break error,
            }
        };
        let text = error.to_string();
        // Panics below need mappings.
        drop(pool);
        stacks.clear();
        assert!(matches!(error, StackError::Mappings { needed, .. } if needed >= 2 * limit), "{error:?}");
        assert!(text.contains("sysctl -w vm.max_map_count="), "{text}");
    }));
}
