//! `trust/include/trust.h` is the generated header of the C API's functions and types. `TRUST_HEADER=write` makes it
//! anew.

use std::path::Path;

const HEAD: &str = "\
/* trust.h: delegation instead of locks, for C. Made from the sources of trust/ffi by its test `header`; do not edit.
 *
 * Put an object into the care of a thread, its trustee, and keep a trust_t to it. To touch the object, send the trustee
 * a function. docs/c-api.md has the rules: which thread may call what, where functions run, who owns which bytes.
 *
 * Functions that are delegated and callbacks must return: longjmp, C++ exceptions, pthread_exit and cancellation that
 * leave them are undefined behaviour. A process that forks has no library in the child, until it executes another
 * program.
 */
";

#[test]
fn header_is_current() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut builder = cbindgen::Builder::new()
        .with_config(cbindgen::Config::from_file(package.join("cbindgen.toml")).expect("cbindgen.toml"))
        .with_header(HEAD);
    // The modules of the second are read with it.
    for source in ["../src/ffi/types.rs", "src/lib.rs"] {
        builder = builder.with_src(package.join(source));
    }
    let mut made = Vec::new();
    builder.generate().expect("sources that cbindgen reads").write(&mut made);
    let made = String::from_utf8(made).expect("text");
    let header = package.join("../include/trust.h");
    if std::env::var_os("TRUST_HEADER").is_some_and(|what| what == "write") {
        std::fs::write(&header, &made).expect("write trust.h");
    }
    let there = std::fs::read_to_string(&header).expect("read trust.h");
    assert!(
        there == made,
        "trust/include/trust.h is not current: `TRUST_HEADER=write cargo test -p gossamer-trust-ffi --test header`"
    );
}
