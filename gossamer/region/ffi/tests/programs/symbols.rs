//! Functions of the C library that know threads: each is interposed, or is here with the reason why it need not be. A
//! newer C library with one more fails this test, which names it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use libtest_mimic::Failed;
use object::{Object, ObjectSymbol};

use crate::Place;

/// Beginnings of the names of functions that take threads, locks, conditions, keys or their like.
const OF_THREADS: [&str; 7] = ["pthread_", "thrd_", "mtx_", "cnd_", "tss_", "sem_", "call_once"];

/// Not interposed, as they are about the bytes of attributes.
const OF_ATTRIBUTES: [&str; 5] =
    ["pthread_attr_", "pthread_barrierattr_", "pthread_condattr_", "pthread_mutexattr_", "pthread_rwlockattr_"];

/// Not interposed: they are about the calling thread, about bytes that are pages of all machines, or about what is
/// refused elsewhere (`fork`, `sem_open`, robust mutexes, cancellation).
const OTHERS: [&str; 25] = [
    "pthread_atfork",
    "pthread_equal",
    "pthread_getattr_default_np",
    "pthread_getconcurrency",
    "pthread_kill_other_threads_np",
    "pthread_mutex_consistent",
    "pthread_mutex_consistent_np",
    "pthread_mutex_getprioceiling",
    "pthread_mutex_setprioceiling",
    "pthread_setattr_default_np",
    "pthread_setcancelstate",
    "pthread_setcanceltype",
    "pthread_setconcurrency",
    "pthread_spin_destroy",
    "pthread_spin_init",
    "pthread_spin_lock",
    "pthread_spin_trylock",
    "pthread_spin_unlock",
    "pthread_testcancel",
    "pthread_yield",
    "sem_close",
    "sem_unlink",
    "thrd_equal",
    "thrd_sleep",
    "thrd_yield",
];

/// Returns the functions that a library defines for others.
fn functions(library: &Path) -> Result<BTreeSet<String>, Failed> {
    let bytes = std::fs::read(library)?;
    let file = object::File::parse(&*bytes).map_err(|error| format!("{}: {error}", library.display()))?;
    let defined = file.dynamic_symbols().filter(ObjectSymbol::is_definition);
    Ok(defined.filter_map(|symbol| symbol.name().ok().map(str::to_owned)).collect())
}

/// Returns the C library of this process.
fn c_library() -> Result<PathBuf, Failed> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let path = maps.lines().find_map(|line| line.split_once('/').filter(|(_, path)| path.contains("libc.so.6")));
    Ok(path.map(|(_, path)| PathBuf::from(format!("/{path}"))).ok_or("this process has no libc.so.6")?)
}

pub fn are_known(place: &Place) -> Result<(), Failed> {
    let (theirs, ours) = (functions(&c_library()?)?, functions(&place.library)?);
    let begins = |name: &str, with: &[&str]| with.iter().any(|beginning| name.starts_with(beginning));
    let is_known = |name: &str| ours.contains(name) || begins(name, &OF_ATTRIBUTES) || OTHERS.contains(&name);
    let of_threads: Vec<_> = theirs.iter().filter(|name| begins(name, &OF_THREADS)).collect();
    if of_threads.len() < 100 {
        return Err(format!("the C library has only {} functions of threads", of_threads.len()).into());
    }
    let unknown: Vec<_> = of_threads.into_iter().filter(|name| !is_known(name)).collect();
    match unknown.is_empty() {
        true => Ok(()),
        false => Err(format!("interpose these, or say why not: {unknown:?}").into()),
    }
}
