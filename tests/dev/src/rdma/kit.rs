//! The kit of the virtual machines: a kernel, a few of its modules, and the host's missing parts of qemu and
//! the RDMA libraries. All of it are Debian packages, downloaded and unpacked once, never installed.
//!
//! Here: getting the kit. Not here: starting machines with it (`machine`).
//!
//! Invariant: a kit folder with a stamp is whole; it is made beside its place and moved there.

use crate::command::Context;
use anyhow::{Context as _, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// The version of a kit's contents, and the name of the file that says that it is whole.
const STAMP: &str = "gossamer-rdma-kit-1";

/// Modules in the order of loading, each needing only those before it; with the folder below the kernel's.
const MODULES: [&str; 23] = [
    "crypto/crc32_generic",
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci",
    "net/9p/9pnet",
    "net/9p/9pnet_virtio",
    "fs/netfs/netfs",
    "fs/fscache/fscache",
    "fs/9p/9p",
    "net/ipv4/udp_tunnel",
    "net/ipv6/ip6_udp_tunnel",
    "drivers/infiniband/core/ib_core",
    "drivers/infiniband/core/ib_uverbs",
    "drivers/infiniband/sw/rxe/rdma_rxe",
    "drivers/net/veth",
    "net/sched/sch_netem",
    "net/core/failover",
    "drivers/net/net_failover",
    "drivers/net/virtio_net",
    "drivers/net/dummy",
    "net/packet/af_packet",
];

/// A whole kit.
pub struct Kit {
    /// Its folder.
    pub folder: PathBuf,
}

/// Why a kit cannot be had on this machine.
pub struct NoKit(pub String);

impl Kit {
    /// The kit of this user, made if it is not there yet.
    pub fn get(context: &Context) -> anyhow::Result<Result<Kit, NoKit>> {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            return Ok(Err(NoKit("the virtual machine is one for x86-64 Linux".to_owned())));
        }
        let folder = cache()?.join("gossamer-rdma");
        if folder.join(STAMP).exists() {
            return Ok(Ok(Kit { folder }));
        }
        for tool in ["apt-get", "dpkg-deb", "tar"] {
            if context.command(tool, &["--version"]).capture().is_err() {
                return Ok(Err(NoKit(format!("the kit is made of Debian packages, and there is no {tool}"))));
            }
        }
        println!("making the kit for virtual machines with RDMA devices in {} (once)", folder.display());
        let made = folder.with_extension("new");
        let _ = fs::remove_dir_all(&made);
        match make(context, &made) {
            Ok(()) => {
                let _ = fs::remove_dir_all(&folder);
                fs::rename(&made, &folder)?;
                Ok(Ok(Kit { folder }))
            }
            Err(error) => {
                let _ = fs::remove_dir_all(&made);
                Ok(Err(NoKit(format!("the kit cannot be made: {error:#}"))))
            }
        }
    }

    /// The modules that it has, in the order of loading: their names without the folders.
    pub fn modules(&self) -> Vec<&'static str> {
        let names = MODULES.iter().filter_map(|module| module.rsplit('/').next());
        names.filter(|name| self.module(name).exists()).collect()
    }

    /// The file of a module.
    pub fn module(&self, name: &str) -> PathBuf {
        self.folder.join("ko").join(format!("{name}.ko"))
    }

    /// Returns the folder of unpacked packages.
    pub fn unpacked(&self) -> PathBuf {
        self.folder.join("host")
    }
}

/// The folder for files that can be made again.
fn cache() -> anyhow::Result<PathBuf> {
    if let Some(cache) = std::env::var_os("XDG_CACHE_HOME").filter(|cache| !cache.is_empty()) {
        return Ok(PathBuf::from(cache));
    }
    let home = std::env::var_os("HOME").context("neither HOME nor XDG_CACHE_HOME is set")?;
    Ok(PathBuf::from(home).join(".cache"))
}

/// Downloads and unpacks everything into a new folder.
fn make(context: &Context, folder: &Path) -> anyhow::Result<()> {
    let (packages, host) = (folder.join("packages"), folder.join("host"));
    for folder in [&packages, &host, &folder.join("ko")] {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    let kernel = match kernel_package(context)? {
        Some(kernel) => kernel,
        None => {
            // A machine that never updated its lists knows no packages.
            context.command("apt-get", &["update", "-qq"]).run()?;
            kernel_package(context)?
                .context("no package linux-image-amd64: `apt-get update`; this is made for Debian")?
        }
    };
    let mut wanted: Vec<String> =
        ["busybox-static", "xz-utils", "libibverbs1", "ibverbs-providers", "libnl-3-200", "libnl-route-3-200"]
            .map(String::from)
            .to_vec();
    for (program, package) in [("qemu-system-x86_64", "qemu-system-x86"), ("rdma", "iproute2")] {
        if context.command(program, &["-V"]).capture().is_err() {
            wanted.extend(missing(context, package)?);
        }
    }
    wanted.push(kernel.clone());
    wanted.sort();
    wanted.dedup();
    download(context, &packages, &wanted)?;
    let mut files = fs::read_dir(&packages)?.map(|file| Ok(file?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    let is_kernel =
        |file: &Path| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("linux-image"));
    // The kernel last: the tool that unpacks it is in another package.
    files.sort_by_key(|file| is_kernel(file));
    for package in files {
        if is_kernel(&package) {
            unpack_kernel(context, &package, folder, kernel.trim_start_matches("linux-image-"))?;
        } else {
            succeed(context, "dpkg-deb", &["-x", &package.to_string_lossy(), &host.to_string_lossy()])?;
        }
    }
    fs::remove_dir_all(&packages)?;
    fs::write(folder.join(STAMP), "whole\n")?;
    Ok(())
}

/// The package of the kernel that Debian has now.
fn kernel_package(context: &Context) -> anyhow::Result<Option<String>> {
    let depends = context.command("apt-cache", &["depends", "linux-image-amd64"]).capture()?;
    let names = depends.stdout.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    Ok(names.map(str::trim).find(|name| name.starts_with("linux-image-")).map(str::to_owned))
}

/// A package and its dependencies, as far as they are not installed.
fn missing(context: &Context, package: &str) -> anyhow::Result<Vec<String>> {
    let plan = context.command("apt-get", &["install", "-s", "--no-install-recommends", package]).capture()?;
    ensure!(plan.success, "apt-get has no {package}: {}", plan.stderr.trim());
    let names = plan.stdout.lines().filter_map(|line| line.strip_prefix("Inst "));
    Ok(names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

fn download(context: &Context, folder: &Path, packages: &[String]) -> anyhow::Result<()> {
    // apt-get downloads into its current folder, and everything here runs in the workspace root.
    let script = "cd \"$0\" && exec apt-get download -qq \"$@\"";
    let mut arguments = vec!["-c", script];
    let folder = folder.to_string_lossy();
    arguments.push(&folder);
    arguments.extend(packages.iter().map(String::as_str));
    succeed(context, "sh", &arguments)
}

/// Unpacks the image (which spares the machine seconds) and the modules, of the kernel's 400 MB.
fn unpack_kernel(context: &Context, package: &Path, folder: &Path, version: &str) -> anyhow::Result<()> {
    let scratch = folder.join("kernel");
    fs::create_dir_all(&scratch)?;
    let mut names = vec![format!("./boot/vmlinuz-{version}")];
    let modules = MODULES.iter().flat_map(|module| {
        // Debian 12 has them plain, later ones compressed, under /usr.
        let name = format!("lib/modules/{version}/kernel/{module}.ko");
        [format!("./{name}"), format!("./{name}.xz"), format!("./usr/{name}"), format!("./usr/{name}.xz")]
    });
    names.extend(modules);
    // Of the four spellings of each name at most one is there, so tar complains about the others.
    let list = folder.join("names");
    fs::write(&list, names.join("\n"))?;
    let script =
        "dpkg-deb --fsys-tarfile \"$0\" | tar -x -C \"$1\" -T \"$2\" 2>/dev/null; test -e \"$1/boot/vmlinuz-$3\"";
    let (package, target, list) = (package.to_string_lossy(), scratch.to_string_lossy(), list.to_string_lossy());
    succeed(context, "sh", &["-c", script, &package, &target, &list, version])?;
    let busybox = folder.join("host/bin/busybox");
    let busybox = if busybox.exists() { busybox } else { folder.join("host/usr/bin/busybox") };
    let xz = folder.join("host/usr/bin/xz");
    for module in MODULES {
        let name = module.rsplit('/').next().unwrap_or(module);
        for prefix in ["", "usr/"] {
            let found = scratch.join(format!("{prefix}lib/modules/{version}/kernel/{module}.ko"));
            let to = folder.join("ko").join(format!("{name}.ko"));
            if found.exists() {
                fs::copy(&found, &to)?;
            } else if found.with_extension("ko.xz").exists() {
                unxz(context, &xz, &found.with_extension("ko.xz"), &to)?;
            }
        }
    }
    ensure!(folder.join("ko/rdma_rxe.ko").exists(), "the kernel {version} has no module rdma_rxe");
    let image = fs::read(scratch.join(format!("boot/vmlinuz-{version}")))?;
    let packed = folder.join("vmlinux.xz");
    fs::write(&packed, payload(&image).context("the kernel's image is not compressed by xz")?)?;
    unxz(context, &xz, &packed, &folder.join("vmlinux"))?;
    fs::copy(&busybox, folder.join("busybox"))?;
    fs::remove_dir_all(&scratch)?;
    for file in ["names", "vmlinux.xz"] {
        fs::remove_file(folder.join(file))?;
    }
    Ok(())
}

/// The compressed kernel inside a boot image (Linux/x86 boot protocol: setup sectors at 0x1f1, offset and
/// length of the payload at 0x248), without the length that the build appends.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| Some(u32::from_le_bytes(*image.get(at..)?.first_chunk()?) as usize);
    let sectors = match *image.get(0x1f1)? {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (sectors + 1).checked_mul(512)?.checked_add(number(0x248)?)?;
    let end = start.checked_add(number(0x24c)?)?.checked_sub(4)?;
    image.get(start..end).filter(|payload| payload.starts_with(b"\xfd7zXZ\0"))
}

/// Unpacks a file with the xz of the kit: a small Debian has the library only, and busybox's cannot take a kernel
/// apart.
fn unxz(context: &Context, xz: &Path, from: &Path, to: &Path) -> anyhow::Result<()> {
    let (xz, from, to) = (xz.to_string_lossy(), from.to_string_lossy(), to.to_string_lossy());
    succeed(context, "sh", &["-c", "\"$0\" -dc \"$1\" >\"$2\"", &xz, &from, &to])
}

fn succeed(context: &Context, program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let done = context.command(program, arguments).capture()?;
    if done.success {
        return Ok(());
    }
    let said = done.stderr.trim();
    bail!("`{program}` ended with {}: {}", done.status, said.lines().last().unwrap_or("no reason given"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_is_found_where_the_boot_protocol_says() {
        let mut image = vec![0; 4096];
        image[0x1f1] = 1;
        image[0x248..0x24c].copy_from_slice(&100u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&20u32.to_le_bytes());
        assert_eq!(payload(&image), None, "not xz");
        image[1124..1130].copy_from_slice(b"\xfd7zXZ\0");
        assert_eq!(payload(&image).map(<[u8]>::len), Some(16));
        for cut in [0, 0x1f0, 0x24a, 1130] {
            assert_eq!(payload(&image[..cut]), None, "{cut} bytes");
        }
        image[0x24c..0x250].fill(0xff);
        assert_eq!(payload(&image), None);
    }
}
