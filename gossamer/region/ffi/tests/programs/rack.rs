//! C programs on the hosts of a rack: daemons run by this very test, which get the program and the library from the
//! launcher.

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use libtest_mimic::Failed;

use crate::{
    LAUNCH, Place, RUN, Runs, WAYS, Way, build, moves, oracle, pthreads, run, same, start, succeeded, workload,
};

/// Hosts; their machines are in the order of their names.
const HOSTS: [&str; 2] = ["alpha", "beta"];
pub const MACHINES: &str = "2";
/// Programs of this package: variables, heap, files, environment, locks and output of several machines.
const PTHREADS: [&str; 5] = ["atomics", "environ", "files", "locks", "print"];

/// A rack on this host; its daemons end with it.
struct Rack {
    folder: tempfile::TempDir,
    daemons: Vec<Child>,
}

impl Rack {
    /// Starts a rack; `cache` is the prefix of the daemons' program folders.
    fn start(place: &Place, cache: &str) -> Result<Rack, Failed> {
        Rack::start_with(place, cache, |_| Command::new(&place.launcher))
    }

    /// Same as [`Rack::start`], where `command` runs the daemon of a host.
    fn start_with(place: &Place, cache: &str, command: impl Fn(&str) -> Command) -> Result<Rack, Failed> {
        let folder = tempfile::tempdir()?;
        let user = String::from_utf8(Command::new("id").arg("-un").output()?.stdout)?;
        static RACKS: AtomicU32 = AtomicU32::new(0);
        let (id, first) = (std::process::id(), 2 * RACKS.fetch_add(1, Ordering::Relaxed) + 1);
        // 127.0.0.0/8 belongs to this host: an address for each process and rack.
        let network = [(id >> 8) % 100 + 128, id % 256].map(|part| part as u8);
        let mut text =
            format!("key_file: rack.key\nuser: {user}timeouts: {{connect_ms: 60000, silence_ms: 60000}}\nhosts:\n");
        for (last, name) in (first as u8..).zip(HOSTS) {
            text += &format!("  - {{name: {name}, address: {}}}\n", Ipv4Addr::new(127, network[0], network[1], last));
        }
        let file = folder.path().join("rack.yaml");
        std::fs::write(&file, text)?;
        succeeded(&run(Command::new(&place.launcher).arg("keygen").arg(folder.path().join("rack.key")))?)?;
        let mut rack = Rack { folder, daemons: Vec::new() };
        for name in HOSTS {
            let mut daemon = command(name);
            daemon.args(["--host", name, "--rack"]).arg(&file);
            daemon.arg("--cache").arg(rack.folder.path().join(format!("{cache}{name}")));
            rack.daemons.push(daemon.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?);
            let stderr = rack.daemons.last_mut().and_then(|daemon| daemon.stderr.take()).ok_or("no standard error")?;
            let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
            lines.find(|line| line.contains("listening")).ok_or("a daemon ends before it listens")?;
            std::thread::spawn(move || lines.for_each(drop)); // until it ends
        }
        Ok(rack)
    }

    /// Returns the words of a starter; they are few, and leaked.
    fn starter(&self, more: &[&'static str]) -> &'static [&'static str] {
        let file: &'static str = self.folder.path().join("rack.yaml").display().to_string().leak();
        [&[LAUNCH, RUN, "--rack", file, "--no-prefix"], more].concat().leak()
    }

    fn way(&self, region: &'static str) -> Way {
        Way {
            name: "rack",
            starter: self.starter(&["--env", "TMPDIR", "--env", "LITMUS_ROUNDS", "--region", region]),
            runs: Runs::All,
            ..WAYS[0]
        }
    }

    /// Returns the names of the files that a host has got from the launcher.
    fn kept(&self, name: &str) -> Vec<String> {
        let entries = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten();
        let folders = entries(self.folder.path().join(format!("cache-{name}")));
        let files = folders.flat_map(|folder| entries(folder.path()));
        files.map(|file| file.file_name().display().to_string()).collect()
    }
}

impl Drop for Rack {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let ended = daemon.kill().and_then(|()| daemon.wait());
            if let Err(error) = ended {
                eprintln!("a daemon cannot be ended: {error}");
            }
        }
    }
}

/// Programs print the same as elsewhere, also where each host has two machines.
pub fn programs(place: &Place) -> Result<(), Failed> {
    let rack = Rack::start(place, "cache-")?;
    for name in oracle::WORKLOADS {
        workload(place, rack.way("auto"), name)?;
    }
    for name in PTHREADS {
        pthreads(place, rack.way("auto"), name)?;
    }
    pthreads(place, Way { shares: crate::HEADER, ..rack.way("explicit") }, "named")?;
    let four = rack.starter(&["--machines-per-host", "2", "--region", "auto", "--threads-at", "1,0,2,1"]);
    workload(place, Way { starter: four, ..rack.way("auto") }, "kmeans")
}

/// Hosts that lack the program and the library get them; files that they already have, or cannot use, are not sent
/// again.
pub fn files_are_sent(place: &Place) -> Result<(), Failed> {
    let rack = Rack::start(place, "cache-")?;
    let built = build(place, WAYS[0], &place.root.join("gossamer/region/ffi/tests/c/places.c"))?;
    // A host does not trust a file at the launcher's path in a folder that anybody may write.
    let open = tempfile::tempdir()?;
    std::fs::set_permissions(open.path(), std::fs::Permissions::from_mode(0o777))?;
    let (program, library) = (open.path().join("places"), open.path().join("library.so"));
    std::fs::copy(&built, &program)?;
    std::fs::copy(&place.library, &library)?;
    let places = |starter: &[&str]| -> Result<Output, Failed> {
        run(start(place, starter, &program).env("GOSSAMER_REGION_LIBRARY", &library))
    };
    for _ in 0..2 {
        same("places", succeeded(&places(rack.way("auto").starter)?)?, "10101010\nplaces: ok\n")?;
        for name in HOSTS {
            let mut kept = rack.kept(name);
            kept.sort_unstable();
            same(name, &kept.join(" "), "library.so places")?;
        }
    }
    let refused = |starter: &[&str], causes: &[&str]| -> Result<(), Failed> {
        let done = places(starter)?;
        let told = String::from_utf8_lossy(&done.stderr);
        let is_told = causes.iter().all(|cause| told.contains(cause));
        if !done.status.success() && is_told { Ok(()) } else { Err(format!("{done:?}").into()) }
    };
    let counts = rack.starter(&["--region", "auto", "--threads-at", "1,2,3"]);
    refused(counts, &["numbers for 3 machines, and the program has 2"])?;
    std::fs::write(&library, [])?;
    refused(rack.way("auto").starter, &["host alpha: ", "library.so is empty"])?;
    drop(rack);
    let rack = Rack::start(place, "cache of ")?;
    refused(rack.way("auto").starter, &["library.so is empty"])?;
    std::fs::copy(&place.library, &library)?;
    refused(rack.way("auto").starter, &["host alpha: ", "no way to name a path with a space", "--cache"])
}

/// Runs a program where the host's clocks have other times.
const OTHER_CLOCKS: [&str; 7] =
    ["unshare", "--time", "--monotonic", "1000000", "--boottime", "2000000", "--kill-child"];

fn with_other_clocks(program: &Path) -> Command {
    let mut command = Command::new(OTHER_CLOCKS[0]);
    command.args(&OTHER_CLOCKS[1..]).arg(program);
    command
}

/// Returns the reason why no program here has other clocks, if there is one.
pub fn cannot_change_clocks() -> Option<String> {
    match with_other_clocks(Path::new("true")).output() {
        Ok(done) if done.status.success() => None,
        Ok(done) => Some(String::from_utf8_lossy(&done.stderr).into_owned()),
        Err(error) => Some(format!("unshare (util-linux): {error}")),
    }
}

/// Threads that move between hosts have the clocks of the first one, whichever was started first.
pub fn clocks(place: &Place) -> Result<(), Failed> {
    let built = moves::build(place, "clocks.c", "gcc")?;
    for other in HOSTS {
        let rack = Rack::start_with(place, "cache-", |host| match host == other {
            true => with_other_clocks(&place.launcher),
            false => Command::new(&place.launcher),
        })?;
        let starter = rack.starter(&["--region", "auto", "--move", "asked"]);
        same(other, succeeded(&run(&mut start(place, starter, &built))?)?, "clocks: ok\n")?;
    }
    Ok(())
}

/// Words with which this test acts as the daemon, or the part that a daemon starts.
pub fn is_of_daemon(word: &str) -> bool {
    matches!(word, "--host" | "part")
}
