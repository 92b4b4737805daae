//! The cache: finding, keeping, waiting and giving up.

use super::*;

fn begin(cache: &Cache, name: &str, binary: Binary) -> io::Result<Incoming> {
    match cache.take(Path::new(name), binary)? {
        Arrival::Incoming(incoming) => Ok(*incoming),
        Arrival::Kept(place) => panic!("{} is there", place.display()),
    }
}

/// Returns the names in the cache's folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

fn take(cache: &Cache, name: &str, content: &[u8], binary: Binary) -> io::Result<PathBuf> {
    let mut incoming = begin(cache, name, binary)?;
    for piece in content.chunks(3) {
        incoming.push(piece)?;
    }
    incoming.finish()
}

fn binary(content: &[u8]) -> Binary {
    Binary { hash: *blake3::hash(content).as_bytes(), bytes: content.len() as u64 }
}

#[test]
fn a_program_is_kept_by_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path().join("cache"), 1000);
    let content = b"#!/bin/sh\nexit 3\n";
    let known = binary(content);
    assert_eq!(cache.find(Path::new("/nowhere/prog"), &known, false), None);
    let kept = take(&cache, "/nowhere/prog", content, known).unwrap();
    assert_eq!(cache.find(Path::new("/nowhere/prog"), &known, false), Some(kept.clone()));
    check_executable(&kept).unwrap();
    assert_eq!(cache.used_bytes(), known.bytes);
    fs::write(&kept, b"#!/bin/sh\nexit 4\n").unwrap();
    assert_eq!(cache.find(Path::new("/nowhere/prog"), &known, false), None, "it was changed behind our back");

    let own = folder.path().join("own");
    fs::write(&own, content).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(cache.find(&own, &known, false), Some(own.clone()), "the same at its own path");
    assert!(check_executable(&own).unwrap_err().contains("not an executable"));
}

#[test]
fn what_others_could_exchange_is_not_executed() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path().join("cache"), 1000);
    let (content, set_mode) = (b"abc", |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    });
    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    let own = open.join("prog");
    fs::write(&own, content).unwrap();
    for (folder_mode, mode, is_found) in
        [(0o755, 0o755, true), (0o1777, 0o755, true), (0o777, 0o755, false), (0o755, 0o775, false)]
    {
        set_mode(&open, folder_mode);
        set_mode(&own, mode);
        assert_eq!(cache.find(&own, &binary(content), false).is_some(), is_found, "{folder_mode:o} {mode:o}");
    }
    set_mode(&own, 0o755);
    // For programs of another user: each folder up to `/` is to be open to all.
    set_mode(folder.path(), 0o755);
    let of_all = |path: &Path| cache.find(path, &binary(content), true).is_some();
    let is_reached = folder.path().ancestors().all(|part| fs::metadata(part).unwrap().mode() & 0o111 == 0o111);
    assert_eq!(of_all(&own), is_reached);
    for (folder_mode, mode) in [(0o755, 0o750), (0o755, 0o711), (0o705, 0o755), (0o750, 0o755)] {
        set_mode(&open, folder_mode);
        set_mode(&own, mode);
        assert!(!of_all(&own) && cache.find(&own, &binary(content), false).is_some(), "{folder_mode:o} {mode:o}");
    }
    set_mode(&open, 0o755);
    set_mode(&own, 0o755);
    std::os::unix::fs::symlink(&open, folder.path().join("link")).unwrap();
    assert_eq!(cache.find(&folder.path().join("link/prog"), &binary(content), false), None);

    take(&cache, "kept", content, binary(content)).unwrap();
    assert!(cache.find_kept(Path::new("kept"), &binary(content)).is_some());
    set_mode(&folder.path().join("cache"), 0o777);
    assert!(cache.find_kept(Path::new("kept"), &binary(content)).is_none());
    let refused = take(&cache, "kept", content, binary(content)).unwrap_err().to_string();
    assert!(refused.contains("chmod go-w"), "{refused}");
}

/// The umask belongs to the whole process, so it is changed in one of its own.
#[test]
fn others_may_execute_what_is_kept_whatever_the_umask_is() {
    const FOLDER: &str = "GOSSAMER_TEST_CACHE";
    if let Some(folder) = std::env::var_os(FOLDER) {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        let cache = Cache::new(PathBuf::from(folder).join("a/cache"), 1000);
        take(&cache, "p", b"abc", binary(b"abc")).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let name = "daemon::cache::tests::others_may_execute_what_is_kept_whatever_the_umask_is";
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    assert!(again.args(["--exact", name]).env(FOLDER, folder.path()).status().unwrap().success());
    let cache = Cache::new(folder.path().join("a/cache"), 1000);
    let kept = cache.find_kept(Path::new("p"), &binary(b"abc")).unwrap();
    for part in kept.ancestors().take_while(|part| *part != folder.path()) {
        assert_eq!(fs::metadata(part).unwrap().mode() & 0o777, 0o755, "{}", part.display());
    }
}

#[test]
fn what_was_left_half_written_goes() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path().to_owned(), 1000);
    let (old, new) = (folder.path().join(".incoming-a"), folder.path().join(".incoming-b"));
    for file in [&old, &new] {
        fs::write(file, "half").unwrap();
    }
    File::options().write(true).open(&old).unwrap().set_modified(SystemTime::now() - 2 * LEFT_BEHIND).unwrap();
    take(&cache, "p", b"abc", binary(b"abc")).unwrap();
    assert!(!old.exists() && new.exists());
}

#[test]
fn what_is_not_as_said_is_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path().to_owned(), 1000);
    let known = binary(b"abc");
    assert!(take(&cache, "p", b"abd", known).unwrap_err().to_string().contains("its hash differs"));
    assert!(take(&cache, "p", b"abcd", known).unwrap_err().to_string().contains("more than it said"));
    assert!(cache.find(Path::new("p"), &known, false).is_none());
    assert_eq!(cache.used_bytes(), 0);
}

/// A program with the wrong content, a program that was cut off, and one without room.
#[test]
fn what_is_refused_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path().to_owned(), 10);
    assert!(take(&cache, "p", b"abd", binary(b"abc")).is_err());
    assert!(take(&cache, "p", b"abcd", binary(b"abc")).is_err());
    begin(&cache, "p", binary(b"abc")).unwrap().push(b"a").unwrap();
    let refused = take(&cache, "p", &[0; 11], binary(&[0; 11])).unwrap_err().to_string();
    assert!(refused.contains("it has 11 bytes, limits.cache_bytes is 10"), "{refused}");
    assert_eq!(names(folder.path()), [""; 0]);
    // The rename of a received program fails where a folder has its name.
    let place = cache.place(Path::new("p"), &binary(b"abc"));
    fs::create_dir_all(&place).unwrap();
    assert!(take(&cache, "p", b"abc", binary(b"abc")).is_err());
    // The next program removes the leftovers of earlier daemons; files that are not the cache's stay.
    let other = "0".repeat(64);
    for name in [&other, "mine"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    fs::remove_dir(&place).unwrap();
    take(&cache, "q", b"abcde", binary(b"abcde")).unwrap();
    let mut left = names(folder.path());
    left.sort_unstable();
    assert_eq!(left, [blake3::hash(b"abcde").to_hex().as_str(), "mine"]);
}

/// A program waits until the incoming ones leave room for it; kept programs are evicted to make room.
#[test]
fn what_comes_in_keeps_to_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path().to_owned(), 25);
    let contents = [b"0123456789".as_slice(), b"abcdefghij", b"ABCDEFGHIJ", b"!!!!!!!!!!"];
    let old = take(&cache, "p", contents[0], binary(contents[0])).unwrap();
    let mut first = begin(&cache, "p", binary(contents[1])).unwrap();
    assert!(old.exists());
    let second = begin(&cache, "p", binary(contents[2])).unwrap();
    assert!(!old.exists(), "20 bytes are coming");
    std::thread::scope(|scope| {
        let third = scope.spawn(|| take(&cache, "p", contents[3], binary(contents[3])).unwrap());
        (0..1000).for_each(|_| std::thread::yield_now()); // it may wait by now
        first.push(contents[1]).unwrap();
        let first = first.finish().unwrap();
        let third = third.join().unwrap();
        assert!(
            third.exists() && !first.exists(),
            "10 bytes are coming, and two times 10 can be kept beside them no more"
        );
    });
    drop(second); // its launcher has gone
    assert_eq!(cache.used_bytes(), 10);
    assert!(cache.arrivals.list().is_empty());
}

/// Of several launchers with the same program one sends it, and the next one where that fails.
#[test]
fn the_same_program_comes_in_once() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path().to_owned(), 1000);
    for is_sent in [true, false] {
        let content = if is_sent { b"abc" } else { b"ABC" };
        let mut first = begin(&cache, "p", binary(content)).unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| cache.take(Path::new("p"), binary(content)).unwrap());
            (0..1000).for_each(|_| std::thread::yield_now()); // it may wait by now
            assert_eq!(cache.arrivals.list().len(), 1);
            first.push(content).unwrap();
            if is_sent {
                drop(first.finish().unwrap())
            } else {
                drop(first)
            }
            let place = cache.place(Path::new("p"), &binary(content));
            match second.join().unwrap() {
                Arrival::Kept(kept) => assert!(is_sent && kept == place),
                Arrival::Incoming(_) => assert!(!is_sent, "it is there"),
            }
        });
    }
}

#[test]
fn the_least_recently_used_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path().to_owned(), 30);
    let contents = [b"0123456789".as_slice(), b"abcdefghij", b"ABCDEFGHIJ", b"!!!!!!!!!!"];
    let mut places = Vec::new();
    for (age, content) in [(30, contents[0]), (20, contents[1]), (10, contents[2])] {
        let place = take(&cache, "p", content, binary(content)).unwrap();
        let at = SystemTime::now() - std::time::Duration::from_secs(age);
        File::open(&place).unwrap().set_modified(at).unwrap();
        places.push(place);
    }
    assert!(cache.find(Path::new("p"), &binary(contents[0]), false).is_some(), "used now");
    take(&cache, "p", contents[3], binary(contents[3])).unwrap();
    assert_eq!(places.iter().map(|place| place.exists()).collect::<Vec<_>>(), [true, false, true]);
}
