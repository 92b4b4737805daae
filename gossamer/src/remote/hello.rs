//! Hellos: before the first delegation each machine writes one into the region of every other, with its program and its
//! computed layout. Closures travel as positions in the program, so everything depends on the same program on all
//! machines.
//!
//! ```text
//! magic u64 | version u16 | machine u16 | machines u16 | workers u16 | slot bytes u32 | process u32 | shape u64
//! | slots of a pair u16 | hidden u16 | direct ways u16 | length u8, build id (32 bytes)
//! | length u8, host name (up to 70 bytes) | .. | flag u64
//! ```
//!
//! Invariant: a hello is read from a copy and checked before it is used. The same bytes stand at the same place in
//! every program with the same `VERSION`.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use trust::link::deadline_after;

use comm::{Fabric, MachineId, WorkerId};

use super::image::{BUILD_BYTES_MAX, ImageId};
use super::layout::{HELLO_BYTES, Layout, Slots};
use crate::error::StartError;

const MAGIC: u64 = u64::from_le_bytes(*b"gossamer");
const VERSION: u16 = 4;
const FIXED_BYTES: usize = 38;
const NAME: usize = FIXED_BYTES + 1 + BUILD_BYTES_MAX;
const NAME_BYTES_MAX: usize = 70;
const FLAG: usize = HELLO_BYTES - 8;
/// Interval at which a waiter checks whether the others still live.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(50);
/// Worker of the connections on which the first thread sends its hellos. No machine has as many.
const START_WORKER: WorkerId = WorkerId(u16::MAX);

const _: () = assert!(NAME + 1 + NAME_BYTES_MAX <= FLAG);

/// A machine's description of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) machine: u16,
    pub(crate) machines: u16,
    pub(crate) workers: u16,
    pub(crate) slots: Slots,
    /// Threads behind the workers.
    pub(crate) hidden: u16,
    /// Most of a worker.
    pub(crate) direct_ways: u16,
    pub(crate) process: u32,
    pub(crate) image: ImageId,
    /// Cut to 70 bytes.
    pub(crate) host: String,
}

impl Hello {
    fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = Vec::with_capacity(HELLO_BYTES);
        bytes.extend_from_slice(&MAGIC.to_ne_bytes());
        for word in [VERSION, self.machine, self.machines, self.workers] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.extend_from_slice(&(self.slots.bytes as u32).to_ne_bytes());
        bytes.extend_from_slice(&self.process.to_ne_bytes());
        bytes.extend_from_slice(&self.image.shape.to_ne_bytes());
        bytes.extend_from_slice(&self.slots.per_pair.to_ne_bytes());
        bytes.extend_from_slice(&self.hidden.to_ne_bytes());
        bytes.extend_from_slice(&self.direct_ways.to_ne_bytes());
        let build = &self.image.build[..self.image.build.len().min(BUILD_BYTES_MAX)];
        bytes.push(build.len() as u8);
        bytes.extend_from_slice(build);
        bytes.resize(NAME, 0);
        let host = &self.host[..self.host.floor_char_boundary(NAME_BYTES_MAX)];
        bytes.push(host.len() as u8);
        bytes.extend_from_slice(host.as_bytes());
        bytes.resize(FLAG, 0);
        bytes.extend_from_slice(&1u64.to_ne_bytes());
        let mut hello = [0; HELLO_BYTES];
        hello.copy_from_slice(&bytes);
        hello
    }

    fn decode(bytes: &[u8; HELLO_BYTES]) -> Option<Hello> {
        let u16_at = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from_ne_bytes(*bytes[at..].first_chunk().unwrap_or(&[0; 4]));
        let u64_at = |at: usize| u64::from_ne_bytes(*bytes[at..].first_chunk().unwrap_or(&[0; 8]));
        let text = |at: usize, most: usize| {
            let len = usize::from(bytes[at]);
            (len <= most).then(|| &bytes[at + 1..at + 1 + len])
        };
        if u64_at(0) != MAGIC || u16_at(8) != VERSION {
            return None;
        }
        Some(Hello {
            machine: u16_at(10),
            machines: u16_at(12),
            workers: u16_at(14),
            slots: Slots { per_pair: u16_at(32), bytes: u32_at(16) as usize },
            hidden: u16_at(34),
            direct_ways: u16_at(36),
            process: u32_at(20),
            image: ImageId { build: text(FIXED_BYTES, BUILD_BYTES_MAX)?.to_vec(), shape: u64_at(24) },
            host: str::from_utf8(text(NAME, NAME_BYTES_MAX)?).ok()?.to_owned(),
        })
    }
}

/// Sends a hello to all machines, and returns theirs, by machine (the own hello included), if all fit.
pub(crate) fn exchange(
    fabric: &dyn Fabric,
    layout: &Layout,
    image: &ImageId,
    host: String,
    timeout: Duration,
) -> Result<Vec<Hello>, StartError> {
    let own = fabric.machine().0;
    let mine = Hello {
        machine: own,
        machines: layout.machines(),
        workers: layout.workers()[usize::from(own)],
        slots: layout.slots(),
        hidden: layout.hidden(),
        direct_ways: layout.direct_ways(),
        process: std::process::id(),
        image: image.clone(),
        host,
    };
    let peers: Vec<MachineId> = (0..layout.machines()).filter(|&peer| peer != own).map(MachineId).collect();
    for mut connection in fabric.connect_all(&peers, START_WORKER)? {
        connection.write(&mine.encode(), layout.hello(own))?;
        connection.wake(layout.start_word())?;
        connection.flush()?;
    }
    let deadline = deadline_after(timeout);
    let mut hellos = Vec::new();
    for machine in 0..layout.machines() {
        if machine == own {
            hellos.push(mine.clone());
            continue;
        }
        wait_for(fabric, layout, machine, deadline)?;
        let mut bytes = [0; HELLO_BYTES];
        fabric.region().read(layout.hello(machine), &mut bytes)?;
        let hello = Hello::decode(&bytes).ok_or(StartError::OtherVersion { machine })?;
        check(&mine, &hello, machine, layout)?;
        hellos.push(hello);
    }
    Ok(hellos)
}

fn wait_for(fabric: &dyn Fabric, layout: &Layout, machine: u16, deadline: Instant) -> Result<(), StartError> {
    let flag = fabric.region().word(layout.hello(machine) + FLAG)?;
    // Acquire of [flag-last] (`comm::fabric`): with the flag, the whole hello is visible. The Release is the peer's
    // `Connection::write`.
    let is_there = || flag.load(Ordering::Acquire) != 0;
    while !is_there() {
        if fabric.lost(MachineId(machine))?.is_some() && !is_there() {
            let cause = fabric.cause(MachineId(machine)).unwrap_or_else(|| "it has ended".to_owned());
            return Err(StartError::NoHello { machine, cause, is_lost: true });
        }
        if Instant::now() >= deadline {
            return Err(StartError::NoHello { machine, cause: "the time for it is over".to_owned(), is_lost: false });
        }
        fabric.park(START_WORKER, layout.start_word(), LIVENESS_INTERVAL, &mut || !is_there())?;
    }
    Ok(())
}

/// Checks that the peer is the machine that this one expects.
fn check(mine: &Hello, theirs: &Hello, machine: u16, layout: &Layout) -> Result<(), StartError> {
    if theirs.image != mine.image {
        return Err(StartError::OtherProgram {
            own: mine.machine,
            own_image: mine.image.to_string(),
            machine,
            host: theirs.host.clone(),
            image: theirs.image.to_string(),
        });
    }
    let say = |hello: &Hello| {
        let Hello { machine, machines, workers, hidden, slots, direct_ways, .. } = hello;
        let direct_ways =
            if *direct_ways > 0 { format!(", {direct_ways} direct ways a worker") } else { String::new() };
        format!(
            "machine {machine} of {machines} with {workers} workers, {hidden} more threads and {slots}{direct_ways}"
        )
    };
    let (workers, hidden, direct_ways) =
        (layout.workers()[usize::from(machine)], layout.hidden(), layout.direct_ways());
    let (machines, slots) = (layout.machines(), layout.slots());
    let expected = say(&Hello { machine, machines, workers, hidden, slots, direct_ways, ..mine.clone() });
    let theirs = say(theirs);
    if theirs != expected {
        return Err(StartError::OtherLayout { machine, theirs, expected });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        let image = ImageId { build: vec![7; 20], shape: 5 };
        let (slots, host) = (Slots::SHM, "größe".to_owned());
        Hello { machine: 1, machines: 2, workers: 3, slots, hidden: 1, direct_ways: 0, process: 9, image, host }
    }

    #[test]
    fn hellos_survive_and_damaged_ones_are_refused_or_read() {
        assert_eq!(Hello::decode(&hello().encode()), Some(hello()));
        let long = Hello { host: "ü".repeat(80), ..hello() };
        assert_eq!(Hello::decode(&long.encode()).unwrap().host, "ü".repeat(35));
        for at in 0..HELLO_BYTES {
            for value in [0, 1, 127, 128, 255] {
                let mut bytes = hello().encode();
                bytes[at] = value;
                let _ = Hello::decode(&bytes);
            }
        }
    }

    #[test]
    fn another_program_or_layout_is_refused_by_name() {
        let layout = Layout::new(vec![3, 3], Slots::SHM);
        let mine = Hello { machine: 0, ..hello() };
        assert!(check(&mine, &hello(), 1, &layout).is_ok());
        let other = Hello { image: ImageId { build: vec![8; 20], shape: 5 }, ..hello() };
        let text = check(&mine, &other, 1, &layout).unwrap_err().to_string();
        assert!(text.contains("machine 1") && text.contains("0808") && text.contains("0707"), "{text}");
        let slots = Slots { per_pair: 5, ..Slots::SHM };
        let direct_ways = Hello { direct_ways: 1, ..hello() };
        for other in
            [Hello { workers: 4, ..hello() }, Hello { machine: 0, ..hello() }, Hello { slots, ..hello() }, direct_ways]
        {
            assert!(matches!(check(&mine, &other, 1, &layout), Err(StartError::OtherLayout { machine: 1, .. })));
        }
    }
}
