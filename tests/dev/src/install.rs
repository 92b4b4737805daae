//! `cargo dev install`: the C API's header, libraries, pkg-config file and suppressions for valgrind, in a folder of
//! their own; with `--region` also the launcher and library for threaded C programs on several machines.
//!
//! Here: the parts and their places. Not here: the library (`trust/ffi`), or whether C programs work with it
//! (`trust/ffi/tests/programs.rs`).
//!
//! The shared library is linked here, by the C compiler from the static one: rustc gives its shared libraries a version
//! script of its own, and linkers take one only, while ours names the versions of symbols.
//!
//! Invariant: an installation refers to nothing in this workspace, and may be moved as a whole.

use crate::command::Context;
use crate::tier::{State, Verdict};
use anyhow::Context as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Destination and parts of an installation.
#[derive(clap::Args, Clone, PartialEq, Eq, Debug)]
pub struct Install {
    /// The folder that gets include/, lib/ and share/
    #[arg(long, default_value = "target/install")]
    prefix: PathBuf,
    /// Builds without optimisation
    #[arg(long)]
    debug: bool,
    /// Also gossamer-launch, and the library that it has threaded C programs load (gossamer_region.h)
    #[arg(long)]
    region: bool,
}

/// Libraries that a program with the static library needs besides (`rustc --print native-static-libs`).
const PRIVATE_LIBRARIES: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

/// Headers, under `trust/include`.
const HEADERS: [&str; 2] = ["trust.h", "trust.hpp"];

/// Builds and installs.
pub fn install(context: &Context, install: &Install) -> anyhow::Result<Verdict> {
    let profile = if install.debug { "dev" } else { "release" };
    let built = context.cargo(&["build", "--package", "gossamer-trust-ffi", "--profile", profile]).check()?;
    if built.state != State::Passed {
        return Ok(built);
    }
    let prefix = context.root.join(&install.prefix);
    let (include, lib) = (prefix.join("include"), prefix.join("lib"));
    for folder in [&include, &lib.join("pkgconfig")] {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    for header in HEADERS {
        copy(&context.root.join("trust/include").join(header), &include.join(header))?;
    }
    let share = prefix.join("share/trust");
    fs::create_dir_all(&share).with_context(|| format!("cannot create {}", share.display()))?;
    copy(&context.root.join("trust/ffi/valgrind.supp"), &share.join("valgrind.supp"))?;
    let archive = context.target.join(if install.debug { "debug" } else { "release" }).join("libtrust_ffi.a");
    copy(&archive, &lib.join("libtrust.a"))?;
    let linked = link(context, &lib)?;
    if linked.state != State::Passed {
        return Ok(linked);
    }
    let pc = lib.join("pkgconfig/trust.pc");
    fs::write(&pc, pkg_config()).with_context(|| format!("cannot write {}", pc.display()))?;
    if install.region {
        let built = install_region(context, profile, &prefix)?;
        if built.state != State::Passed {
            return Ok(built);
        }
    }
    println!("installed trust {} in {}", env!("CARGO_PKG_VERSION"), prefix.display());
    Ok(Verdict::passed())
}

/// The launcher, the library that it finds beside itself, in `lib`, and the header.
fn install_region(context: &Context, profile: &str, prefix: &Path) -> anyhow::Result<Verdict> {
    let packages = ["build", "--package", "gossamer-daemon", "--package", "gossamer-region-ffi", "--profile", profile];
    let built = context.cargo(&packages).check()?;
    if built.state != State::Passed {
        return Ok(built);
    }
    let bin = prefix.join("bin");
    fs::create_dir_all(&bin).with_context(|| format!("cannot create {}", bin.display()))?;
    let target = context.target.join(if profile == "dev" { "debug" } else { profile });
    copy(&target.join("gossamer-launch"), &bin.join("gossamer-launch"))?;
    copy(&target.join("libgossamer_region_c.so"), &prefix.join("lib/libgossamer_region_c.so"))?;
    let header = "gossamer_region.h";
    copy(&context.root.join("gossamer/region/ffi/include").join(header), &prefix.join("include").join(header))?;
    Ok(built)
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// The shared library, of the static one, and the names under which it is found: at run time with the version that
/// programs depend on (major and, while that is 0, minor), at link time without.
fn link(context: &Context, lib: &Path) -> anyhow::Result<Verdict> {
    let version = env!("CARGO_PKG_VERSION");
    let compatible = match version.split('.').collect::<Vec<_>>()[..] {
        ["0", minor, _] => format!("0.{minor}"),
        [major, ..] => major.to_owned(),
        [] => version.to_owned(),
    };
    let (file, soname) = (format!("libtrust.so.{version}"), format!("libtrust.so.{compatible}"));
    let map = format!("-Wl,--version-script={}", context.root.join("trust/ffi/trust.map").display());
    // Nobody may unload it: threads have its variables, which end with them.
    let verdict = context
        .command("cc", &["-shared", "-o", &lib.join(&file).to_string_lossy()])
        .args(&["-Wl,--whole-archive", &lib.join("libtrust.a").to_string_lossy(), "-Wl,--no-whole-archive"])
        .args(&[&map, &format!("-Wl,-soname,{soname}"), "-Wl,--gc-sections", "-Wl,--no-undefined"])
        .args(&["-Wl,-z,nodelete", "-Wl,-z,relro", "-Wl,-z,now"])
        .args(&PRIVATE_LIBRARIES.split(' ').collect::<Vec<_>>())
        .check()?;
    for (link, to) in [(soname.as_str(), file.as_str()), ("libtrust.so", soname.as_str())] {
        let link = lib.join(link);
        match fs::remove_file(&link) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", link.display()));
            }
            _ => {}
        }
        symlink(to, &link).with_context(|| format!("cannot make {}", link.display()))?;
    }
    Ok(verdict)
}

/// Says where it is by where the file itself is.
fn pkg_config() -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "prefix=${{pcfiledir}}/../..\n\
         libdir=${{prefix}}/lib\n\
         includedir=${{prefix}}/include\n\
         \n\
         Name: trust\n\
         Description: Delegation instead of locks\n\
         Version: {version}\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -ltrust\n\
         Libs.private: {PRIVATE_LIBRARIES}\n"
    )
}
