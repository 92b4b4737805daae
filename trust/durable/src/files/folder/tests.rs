//! Names made durable; folders that are moved, replaced and removed while they are open.

use std::cell::RefCell;
use std::fs;

use super::*;

/// Returns the folders that are synced when the folder at `path` is opened.
fn synced(path: &Path) -> Vec<PathBuf> {
    let synced = RefCell::new(Vec::new());
    let sync = |folder: &File| {
        synced.borrow_mut().push(place_of(folder).expect("it has a place"));
        Ok(())
    };
    let folder = make(path, &sync, &mut Vec::new()).expect("it is made");
    sync_name(&folder, &sync).expect("it has a name");
    synced.into_inner()
}

fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).expect("it is there")
}

#[test]
fn each_folder_that_is_made_has_a_durable_name() {
    let there = tempfile::tempdir().expect("a folder");
    let there = real(there.path());
    let inner = there.join("one/two");
    assert_eq!(synced(&there.join("one/two/three")), [there.clone(), there.join("one"), inner.clone(), inner.clone()]);
    assert_eq!(synced(&there.join("one/two/three")), std::slice::from_ref(&inner), "who made it may not have done so");
    assert_eq!(synced(&there.join("one/four/../two/three")).last(), Some(&inner));
}

#[test]
fn the_name_of_a_folder_is_where_the_folder_is() {
    let there = tempfile::tempdir().expect("a folder");
    let there = real(there.path());
    fs::create_dir_all(there.join("far/pool")).expect("it works");
    std::os::unix::fs::symlink(there.join("far/pool"), there.join("link")).expect("it works");
    assert_eq!(synced(&there.join("link")), [there.join("far")]);
    assert_eq!(synced(&there.join("link/new")), [there.join("far/pool"), there.join("far/pool")]);
}

/// Makes a folder with a file of one byte.
fn with_file(path: &Path) -> Folder {
    let mut folder = Folder::open(path).expect("it is made");
    folder.create("log-0").expect("it works");
    folder.write("log-0", 0, b"a").expect("it works");
    folder
}

#[test]
fn all_goes_to_the_folder_that_was_opened_whatever_has_its_name() {
    let there = tempfile::tempdir().expect("a folder");
    let there = real(there.path());
    let (path, moved) = (there.join("pool"), there.join("moved"));
    let mut folder = with_file(&path);
    assert_eq!(folder.moved(), None);
    fs::rename(&path, &moved).expect("it works");
    let mut other = with_file(&path);
    fs::write(path.join("image-0"), "another's").expect("it works");

    assert_eq!(folder.list().expect("it works"), ["log-0"]);
    folder.create("image-0").expect("it works");
    folder.rename("image-0", "image-1").expect("it works");
    folder.rename("log-0", "log-2").expect("it works");
    folder.sync("log-2").expect("it works");
    folder.sync_folder().expect("it works");
    folder.create("log-0.tmp").expect("it works");
    folder.remove("log-0.tmp").expect("it works");
    assert!(folder.is_there("log-2").expect("it works"));
    assert_eq!(fs::read(moved.join("log-2")).expect("there"), b"a");
    let mut names = other.list().expect("it works");
    names.sort();
    assert_eq!(names, ["image-0", "log-0"], "the other one's stay");
    assert!(other.is_there("log-0").expect("it works"));

    assert_eq!((folder.path(), folder.moved()), (moved.clone(), Some((path.clone(), moved))));
    assert_eq!((folder.moved(), other.moved()), (None, None), "told once");
}

#[test]
fn a_file_that_was_taken_away_is_not_there() {
    type Change = fn(&Path);
    let changes: [Change; 4] = [
        |file| fs::remove_file(file).expect("it works"),
        |file| fs::rename(file, file.with_extension("old")).expect("it works"),
        |file| {
            fs::write(file.with_extension("new"), "a").expect("it works");
            fs::rename(file.with_extension("new"), file).expect("it works");
        },
        |file| {
            // The file has another name, and its own name is another file's.
            fs::hard_link(file, file.with_extension("old")).expect("it works");
            fs::remove_file(file).expect("it works");
            fs::write(file, "a").expect("it works");
        },
    ];
    for change in changes {
        let there = tempfile::tempdir().expect("a folder");
        let mut folder = with_file(there.path());
        assert!(folder.is_there("log-0").expect("it works"));
        change(&there.path().join("log-0"));
        assert!(!folder.is_there("log-0").expect("it works"));
    }
}

#[test]
fn a_folder_that_was_removed_takes_no_file() {
    let there = tempfile::tempdir().expect("a folder");
    let path = there.path().join("pool");
    let mut folder = with_file(&path);
    fs::remove_dir_all(&path).expect("it works");
    let _other = with_file(&path);
    assert!(!folder.is_there("log-0").expect("it works"));
    assert_eq!(folder.create("log-1").map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
    assert!(!path.join("log-1").exists());
}
