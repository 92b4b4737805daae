//! Files of hosts and containers, word by word.

use std::collections::HashMap;

use super::*;

const GIB: u64 = 1 << 30;
const MEMINFO: &str = "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:    8388608 kB\n";

/// A machine of 16 GiB, of which 8 are available, with these files, too.
fn machine<'a>(files: &[(&'a str, &'a str)]) -> impl Fn(&Path) -> Option<String> + use<'a> {
    let mut files: HashMap<&str, &str> = files.iter().copied().collect();
    files.entry("/proc/meminfo").or_insert(MEMINFO);
    move |path: &Path| Some((*files.get(path.to_str()?)?).to_owned())
}

/// Both answers, in GiB.
fn found(files: &[(&str, &str)]) -> (Option<u64>, Option<u64>) {
    let read = machine(files);
    let whole = |bytes: u64| if bytes.is_multiple_of(GIB) { bytes / GIB } else { panic!("{bytes} bytes") };
    (limit_in(&read).map(whole), left_in(&read).map(whole))
}

fn gib(count: u64) -> String {
    format!("{}\n", count * GIB)
}

const V2_MOUNT: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
/// Mounts of systemd, with the memory controller in version 1.
const V1_MOUNTS: &str = "\
    25 30 0:22 / /sys/fs/cgroup ro,nosuid shared:5 - tmpfs tmpfs ro,mode=755\n\
    26 25 0:23 / /sys/fs/cgroup/unified rw,nosuid shared:6 - cgroup2 cgroup2 rw\n\
    33 25 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:16 - cgroup cgroup rw,cpu,cpuacct\n\
    36 25 0:33 / /sys/fs/cgroup/memory rw,nosuid shared:19 - cgroup cgroup rw,memory\n";
const UNLIMITED: &str = "9223372036854771712\n";

#[test]
fn a_host_without_limits_has_its_memory() {
    assert_eq!(found(&[]), (Some(16), Some(8)));
    assert_eq!(found(&[("/proc/self/cgroup", "0::/\n"), ("/proc/self/mountinfo", V2_MOUNT)]), (Some(16), Some(8)));
    assert_eq!(found(&[("/proc/meminfo", "garbage\nMemTotal: much\nMemAvailable: 5 MB\n")]), (None, None));
}

#[test]
fn the_tightest_level_of_version_2_counts() {
    let (six, five, four, three, one) = (gib(6), gib(5), gib(4), gib(3), gib(1));
    let mut files = vec![
        ("/proc/self/cgroup", "0::/user.slice/a/b\n"),
        ("/proc/self/mountinfo", V2_MOUNT),
        ("/sys/fs/cgroup/user.slice/a/b/memory.max", "max\n"),
        ("/sys/fs/cgroup/user.slice/a/b/memory.current", &one),
        ("/sys/fs/cgroup/user.slice/memory.max", &six),
        ("/sys/fs/cgroup/user.slice/memory.current", &five),
    ];
    assert_eq!(found(&files), (Some(6), Some(1)), "set two levels above");
    let stat = format!("anon 7\ninactive_file {}", gib(2));
    files.push(("/sys/fs/cgroup/user.slice/memory.stat", &stat));
    assert_eq!(found(&files), (Some(6), Some(3)), "what files have can be dropped");
    files.push(("/sys/fs/cgroup/user.slice/a/memory.max", &four));
    files.push(("/sys/fs/cgroup/user.slice/a/memory.current", &five));
    assert_eq!(found(&files), (Some(4), Some(0)), "more than it may have");
    files.push(("/sys/fs/cgroup/user.slice/a/memory.high", &three));
    assert_eq!(found(&files), (Some(3), Some(0)), "slowed down above");
}

#[test]
fn version_1_counts_where_it_has_the_controller() {
    let (two, three, five) = (gib(2), gib(3), gib(5));
    let cgroup = "12:cpu,cpuacct:/a\n4:memory:/system.slice/x.service\n1:name=systemd:/system.slice/x.service\n\
                  0::/system.slice/x.service\n";
    let mut files = vec![
        ("/proc/self/cgroup", cgroup),
        ("/proc/self/mountinfo", V1_MOUNTS),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", UNLIMITED),
        ("/sys/fs/cgroup/memory/memory.usage_in_bytes", &three),
        ("/sys/fs/cgroup/memory/system.slice/x.service/memory.limit_in_bytes", UNLIMITED),
        ("/sys/fs/cgroup/memory/system.slice/x.service/memory.usage_in_bytes", &two),
    ];
    assert_eq!(found(&files), (Some(16), Some(8)));
    files.push(("/sys/fs/cgroup/memory/system.slice/memory.limit_in_bytes", &five));
    files.push(("/sys/fs/cgroup/memory/system.slice/memory.usage_in_bytes", &three));
    assert_eq!(found(&files), (Some(5), Some(2)));
    let stat = format!("inactive_file 5\ntotal_inactive_file {}", gib(1));
    files.push(("/sys/fs/cgroup/memory/system.slice/memory.stat", &stat));
    assert_eq!(found(&files), (Some(5), Some(3)));
}

#[test]
fn a_container_sees_its_own_group_as_the_root_of_the_mount() {
    let (one, four) = (gib(1), gib(4));
    // Docker with version 1, where the process sees the path on the host, also in a container inside another container.
    for path in ["/docker/0123", "/docker/4567/docker/0123"] {
        let cgroup = format!("4:memory:{path}\n0::{path}\n");
        let mounts = format!("810 809 0:33 {path} /sys/fs/cgroup/memory ro master:19 - cgroup cgroup rw,memory\n");
        let stat = format!("cache 0\nhierarchical_memory_limit {}", gib(2));
        let mut files = vec![
            ("/proc/self/cgroup", &*cgroup),
            ("/proc/self/mountinfo", &mounts),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", &four),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", &one),
        ];
        assert_eq!(found(&files), (Some(4), Some(3)));
        files.push(("/sys/fs/cgroup/memory/memory.stat", &stat));
        assert_eq!(found(&files), (Some(2), Some(1)), "set above, where nothing is seen");
    }
    // Version 2 with a namespace of its own, then without: a group within that of the container.
    for (cgroup, root) in [("0::/\n", "/"), ("0::/inner\n", "/"), ("0::/docker/0123/inner\n", "/docker/0123")] {
        let mounts = format!("810 809 0:26 {root} /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n");
        let files = [
            ("/proc/self/cgroup", cgroup),
            ("/proc/self/mountinfo", &mounts),
            ("/sys/fs/cgroup/memory.max", &four),
            ("/sys/fs/cgroup/memory.current", &one),
            ("/sys/fs/cgroup/inner/memory.max", "max\n"),
        ];
        assert_eq!(found(&files), (Some(4), Some(3)), "{cgroup} in {root}");
    }
}

#[test]
fn a_group_that_no_mount_shows_is_taken_for_the_mounts() {
    let (one, four) = (gib(1), gib(4));
    let other = "810 809 0:26 /docker/0123 /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
    for (cgroup, mounts) in [("0::/../sibling\n", V2_MOUNT), ("0::/\n", other), ("0::/docker/01234\n", other)] {
        let files = [
            ("/proc/self/cgroup", cgroup),
            ("/proc/self/mountinfo", mounts),
            ("/sys/fs/cgroup/memory.max", &*four),
            ("/sys/fs/cgroup/memory.current", &one),
        ];
        assert_eq!(found(&files), (Some(4), Some(3)), "{cgroup} in {mounts}");
    }
    // Elsewhere, in a folder with a space, and twice.
    let mounts = format!("{other}811 809 0:26 / /my\\040groups rw - cgroup2 cgroup2 rw\n");
    let files = [
        ("/proc/self/cgroup", "0::/docker/0123/a\n"),
        ("/proc/self/mountinfo", &*mounts),
        ("/my groups/docker/memory.max", &four),
        ("/my groups/docker/memory.current", &one),
    ];
    assert_eq!(found(&files), (Some(4), Some(3)));
}

#[test]
fn limits_of_the_process_count() {
    let status = "VmSize:\t 2097152 kB\nVmData:\t 1048576 kB\n";
    let limits = |space: &str, data: &str| {
        format!(
            "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max data size             {data}            unlimited            bytes     \n\
             Max address space         {space}            unlimited            bytes     \n"
        )
    };
    let (seven, five) = ((7 * GIB).to_string(), (5 * GIB).to_string());
    for (limits, expected) in [
        (limits("unlimited", "unlimited"), (16, 8)),
        (limits(&seven, "unlimited"), (7, 5)),
        (limits("unlimited", &five), (5, 4)),
        (limits(&seven, &five), (5, 4)),
    ] {
        let files = [("/proc/self/limits", &*limits), ("/proc/self/status", status)];
        assert_eq!(found(&files), (Some(expected.0), Some(expected.1)), "{limits}");
    }
}

#[test]
fn this_machine_has_some() {
    let (limit, left) = (limit().expect("a limit"), left().expect("some memory"));
    assert!(limit > 1 << 20 && left > 1 << 20 && left <= limit, "{left} of {limit}");
}
