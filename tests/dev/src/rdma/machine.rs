//! One virtual machine: qemu's software emulation (no KVM, no root, no disk), from the kit's kernel, with
//! the host's files read-only. It runs one command and ends.
//!
//! Here: its memory file system, its devices, its end. Not here: the command (`mod`).
//!
//! Invariant: a machine ends: by itself, or killed by its own id when its time is over.

use super::kit::Kit;
use anyhow::Context as _;
use limits::Clock;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The first program.
const INIT: &str = include_str!("init.sh");
/// Settings for a quick boot under emulation: no self-tests, no mitigations, no searching for devices.
const BOOT: &str = "console=ttyS0 quiet panic=-1 cryptomgr.notests=1 mitigations=off tsc=reliable no_timer_check \
                    init_on_alloc=0 random.trust_cpu=on rcupdate.rcu_expedited=1 audit=0 nokaslr lsm=capability \
                    initcall_blacklist=init_kprobe_trace,crypto_kdf108_init";

/// A machine to start.
pub struct Plan<'a> {
    /// Its name in messages, and its folder.
    pub name: &'a str,
    /// A folder of its own, which it sees as /run/work.
    pub work: PathBuf,
    /// The command, as a shell script.
    pub command: String,
    /// Processors.
    pub processors: u32,
    /// The sockets of the network card, own and other, and the card's number.
    pub network: Option<(PathBuf, PathBuf, u8)>,
    /// Time limit, in time of an idle host.
    pub limit: Duration,
}

/// A machine that runs.
pub struct Machine {
    child: Child,
    work: PathBuf,
    clock: Clock,
    limit: Duration,
}

/// End of a machine.
pub struct Ended {
    /// The command's exit status, if the machine lived to tell.
    pub status: Option<i32>,
    /// Output of the command.
    pub output: String,
    /// Output of the machine itself.
    pub console: String,
    /// Whether its time was over.
    pub is_overdue: bool,
}

impl Machine {
    /// Starts a machine.
    pub fn start(kit: &Kit, plan: &Plan) -> anyhow::Result<Machine> {
        fs::create_dir_all(&plan.work)?;
        let work = plan.work.canonicalize()?;
        fs::write(work.join("command"), &plan.command)?;
        fs::write(work.join("epoch"), SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs().to_string())?;
        let mut seed = vec![0; 64];
        std::io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, &mut seed)?;
        fs::write(work.join("seed"), seed)?;
        fs::write(work.join("memory.cpio"), archive(kit)?)?;
        let child = command(kit, plan, &work)?.spawn().context("cannot start qemu-system-x86_64")?;
        Ok(Machine { child, work, clock: Clock::start(), limit: plan.limit })
    }

    /// Waits for its end.
    pub fn wait(mut self) -> anyhow::Result<Ended> {
        let mut is_overdue = false;
        let mut asked = Instant::now();
        while self.child.try_wait()?.is_none() {
            if asked.elapsed() >= self.clock.period() {
                asked = Instant::now();
                if self.clock.shown() >= self.limit {
                    is_overdue = true;
                    self.child.kill()?;
                    self.child.wait()?;
                    break;
                }
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let read = |name: &str| -> String {
            fs::read(self.work.join(name)).map_or(String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
        };
        let status = read("status").trim().parse().ok();
        Ok(Ended { status, output: read("output"), console: read("console"), is_overdue })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Where somebody gave up half-way; a machine that has ended takes no harm.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(kit: &Kit, plan: &Plan, work: &Path) -> anyhow::Result<Command> {
    let unpacked = kit.unpacked();
    let own = unpacked.join("usr/bin/qemu-system-x86_64");
    let mut command = if own.exists() {
        let mut command = Command::new(own);
        command.env("LD_LIBRARY_PATH", libraries(&unpacked));
        for data in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(unpacked.join(data));
        }
        command
    } else {
        Command::new("qemu-system-x86_64")
    };
    let devices = "-nodefaults -no-user-config -display none -no-reboot -accel tcg,thread=multi -cpu qemu64 -m 768 \
                   -M q35,sata=off,smbus=off,usb=off,vmport=off -device isa-debug-exit,iobase=0xf4,iosize=1 \
                   -monitor none";
    command.args(devices.split_whitespace()).args(["-smp", &plan.processors.to_string()]);
    command.arg("-chardev").arg(format!("file,id=console,path={}", work.join("console").display()));
    command.args(["-serial", "chardev:console"]);
    for (tag, folder, access) in
        [("root", Path::new("/"), ",readonly=on"), ("kit", &kit.folder, ",readonly=on"), ("work", work, "")]
    {
        let folder = folder.display();
        command.arg("-fsdev");
        command.arg(format!("local,id={tag},path={folder},security_model=none,multidevs=remap{access}"));
        command.args(["-device", &format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}")]);
    }
    if let Some((own, other, number)) = &plan.network {
        // Datagrams over unix sockets: over a TCP netdev a round trip takes 46 ms.
        let (own, other) = (own.display(), other.display());
        let link = format!("dgram,id=net,local.type=unix,local.path={own},remote.type=unix,remote.path={other}");
        let card = format!("virtio-net-pci,netdev=net,romfile=,mac=52:54:00:00:00:0{number}");
        command.args(["-netdev", &link, "-device", &card]);
    }
    command.arg("-kernel").arg(kit.folder.join("vmlinux")).arg("-initrd").arg(work.join("memory.cpio"));
    command.args(["-append", BOOT]).stdin(Stdio::null());
    Ok(command)
}

/// Returns the folders of libraries below a folder with unpacked packages.
pub fn libraries(unpacked: &Path) -> String {
    let folders = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/qemu"];
    folders.map(|folder| unpacked.join(folder).display().to_string()).join(":")
}

/// The memory file system: the first program, busybox and the modules.
fn archive(kit: &Kit) -> anyhow::Result<Vec<u8>> {
    let modules = kit.modules();
    let mut archive = Archive(Vec::new());
    archive.add("ko", 0o040_755, b"");
    archive.add("init", 0o100_755, INIT.as_bytes());
    archive.add("busybox", 0o100_755, &fs::read(kit.folder.join("busybox"))?);
    archive.add("modules", 0o100_644, modules.join("\n").as_bytes());
    for module in modules {
        archive.add(&format!("ko/{module}.ko"), 0o100_644, &fs::read(kit.module(module))?);
    }
    archive.add("TRAILER!!!", 0, b"");
    Ok(archive.0)
}

/// A cpio archive of the format that the kernel reads ("newc").
struct Archive(Vec<u8>);

impl Archive {
    fn add(&mut self, name: &str, mode: u32, content: &[u8]) {
        let sizes = [0, mode, 0, 0, 1, 0, content.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        self.0.extend(b"070701");
        for number in sizes {
            self.0.extend(format!("{number:08x}").bytes());
        }
        self.0.extend(name.bytes().chain([0]));
        self.pad();
        self.0.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_one_that_cpio_would_read() {
        let mut archive = Archive(Vec::new());
        archive.add("a", 0o100_644, b"hello");
        let header = "07070100000000000081a4000000000000000000000001000000000000000500000000000000000000000000000000\
                      0000000200000000a\0";
        assert_eq!(String::from_utf8_lossy(&archive.0[..112]), header);
        assert_eq!((&archive.0[112..117], archive.0.len()), (&b"hello"[..], 120));
    }
}
