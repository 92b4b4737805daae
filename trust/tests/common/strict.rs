//! Facts about the build and the compiler: the build decides which programs must not compile, the compiler the
//! messages. Also for the tests of `trust-durable`.

use std::marker::PhantomData;
use std::path::Path;
use std::process::Command;

/// The compiler whose messages `ui/*.stderr` hold.
const RECORDED_WITH: &str = "rustc 1.95.";

/// Whether a type is `NoRef`: `<Probe<T>>::IS_NO_REF`, with [`Otherwise`] in scope.
pub struct Probe<T>(PhantomData<T>);

/// Fallback of a [`Probe`].
pub trait Otherwise {
    /// It is not.
    const IS_NO_REF: bool = false;
}
impl<T> Otherwise for Probe<T> {}
impl<T: trust::NoRef> Probe<T> {
    /// It is.
    pub const IS_NO_REF: bool = true;
}

const _: () = assert!(<Probe<u64>>::IS_NO_REF);

/// Is `NoRef` more than `Send + 'static` in this build?
pub const STRICT: bool = !<Probe<Box<u8>>>::IS_NO_REF;

/// Returns the reason why the compiler's messages read otherwise than those recorded, if they do.
pub fn reads_otherwise() -> Option<String> {
    let rustc = |argument: &[&str]| {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let output = Command::new(rustc).args(argument).output();
        output
            .map_or_else(|error| error.to_string(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let version = rustc(&["--version"]);
    if !version.starts_with(RECORDED_WITH) {
        return Some(format!("they are recorded with {RECORDED_WITH}x, this is {version}"));
    }
    let sources = Path::new(&rustc(&["--print", "sysroot"])).join("lib/rustlib/src/rust/library");
    sources.exists().then(|| "they quote the standard library, whose sources are here (component rust-src)".to_owned())
}
