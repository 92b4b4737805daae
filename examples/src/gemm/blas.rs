//! A BLAS that the user names, found at run time: one of its functions multiplies tiles, on the thread that asks for
//! it.
#![allow(unsafe_code)] // functions of C

use std::ffi::{OsStr, c_int};
use std::sync::OnceLock;

use anyhow::Context;

const ROW_MAJOR: c_int = 101;
const AS_THEY_ARE: c_int = 111;

/// `cblas_dgemm`, with numbers of 32 bits: order, whether either is transposed, rows, columns, terms, and the matrices.
type Dgemm = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    f64,
    *const f64,
    c_int,
    *const f64,
    c_int,
    f64,
    *mut f64,
    c_int,
);
/// OpenBLAS's own.
type SetThreads = unsafe extern "C" fn(c_int);

/// Function of this process: closures that travel carry no pointers to functions.
static DGEMM: OnceLock<Dgemm> = OnceLock::new();

/// Loads it, before there are workers. OpenBLAS uses one thread from then on, the caller's.
///
/// # Errors
/// There is no such library, or it has no `cblas_dgemm`.
pub fn load(library: &OsStr) -> anyhow::Result<()> {
    let name = library.display();
    // SAFETY: [blas-interface]: the user says that it is a BLAS; its constructors may run at any time.
    let loaded = unsafe { libloading::Library::new(library) };
    let loaded = Box::leak(Box::new(loaded.with_context(|| format!("--blas {name}: give a BLAS that is installed"))?));
    // SAFETY: [blas-interface]: the types are those of cblas.h; the library is leaked, so no function outlives it.
    let dgemm = unsafe { loaded.get::<Dgemm>(b"cblas_dgemm\0") };
    let dgemm = *dgemm.with_context(|| format!("--blas {name}: it has no `cblas_dgemm`"))?;
    // SAFETY: [blas-interface], likewise.
    if let Ok(set_threads) = unsafe { loaded.get::<SetThreads>(b"openblas_set_num_threads\0") } {
        // SAFETY: [blas-interface]: it takes any number from 1 on.
        unsafe { set_threads(1) };
    }
    DGEMM.get_or_init(|| dgemm);
    Ok(())
}

/// Adds the product of two tiles of so many rows and columns to a third one. False if none was loaded: nothing is done.
///
/// # Panics
/// If one of them is shorter than a tile.
pub fn multiply_add(tile: usize, sum: &mut [f64], left: &[f64], right: &[f64]) -> bool {
    let Some(dgemm) = DGEMM.get() else { return false };
    assert!([sum.len(), left.len(), right.len()].iter().all(|len| *len >= tile * tile), "a tile is too short");
    let (n, left, right) = (tile as c_int, left.as_ptr(), right.as_ptr());
    // SAFETY: [blas-interface]: n x n elements are read of both and written of `sum`, which nobody else has.
    unsafe {
        dgemm(ROW_MAJOR, AS_THEY_ARE, AS_THEY_ARE, n, n, n, 1.0, left, n, right, n, 1.0, sum.as_mut_ptr(), n);
    }
    true
}
