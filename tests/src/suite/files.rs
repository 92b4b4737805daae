//! Files and folders of other machines. The machines of these tests share a file system, so files about their reader's
//! process tell them apart.

use std::fs;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use gossamer::file::{self, EntryKind, PIECE_BYTES};

use super::ground::{JoinOutcome, effort, places, remote, spots, until};

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

pub fn files_are_read_on_their_machine() {
    for place in places() {
        let stat = file::read_to_string(place, "/proc/self/stat").unwrap();
        let process: u32 = stat.split(' ').next().unwrap().parse().unwrap();
        assert_eq!(process, gossamer::rack().machines()[usize::from(place.machine)].process);
    }
}

pub fn files_of_every_size_are_read() {
    let folder = tempfile::tempdir().unwrap();
    for len in [0, 1, 1000, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 5 * PIECE_BYTES + 77] {
        // A name that is not UTF-8.
        let path = folder.path().join(std::ffi::OsStr::from_bytes(b"file \xff"));
        let expected = bytes(len);
        fs::write(&path, &expected).unwrap();
        for place in spots() {
            assert!(file::read(place, &path).unwrap() == expected, "{len} bytes at {place}");
            let open = file::open(place, &path).unwrap();
            assert_eq!((open.len().unwrap(), open.is_empty().unwrap(), open.place()), (len as u64, len == 0, place));
            let mut read = Vec::new();
            open.reader().read_to_end(&mut read).unwrap();
            assert!(read == expected);
            for (offset, len) in
                [(0, 1), (len / 2, 1000), (len.saturating_sub(3), 10), (len, 5), (len + 9, 1), (7, len)]
            {
                let end = expected.len().min(offset + len);
                let part = expected.get(offset..end).unwrap_or(&[]);
                assert!(open.read_at(offset as u64, len).unwrap() == part, "{len} at {offset}");
            }
        }
    }
}

pub fn files_are_read_line_by_line_by_many() {
    let lines = effort(20_000);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines");
    let text: String =
        (0..lines).map(|n| format!("line {n} of many, each a little longer than it need be\n")).collect();
    fs::write(&path, &text).unwrap();
    // One handle, sent to every place; the file stays open after its name is gone.
    let open = file::open(remote(), &path).unwrap();
    fs::remove_file(&path).unwrap();
    let fibers: Vec<_> = places()
        .into_iter()
        .map(|place| {
            let open = open.clone();
            gossamer::spawn_on(place, move || {
                let lines = open.reader().lines().map(Result::unwrap);
                lines.zip(0..).map(|(line, n)| u64::from(line.starts_with(&format!("line {n} of")))).sum::<u64>()
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| assert_eq!(fiber.join().or_its_panic(), lines));
    assert_eq!(open.len().unwrap(), text.len() as u64);
}

pub fn files_that_cannot_be_read_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("binary");
    fs::write(&binary, [0xff, 0xfe]).unwrap();
    let pipe = folder.path().join("pipe");
    make_pipe(&pipe);
    for place in spots() {
        let error = file::open(place, "/no/such/file").unwrap_err();
        let told = format!("/no/such/file at {place} cannot be opened: No such file or directory (os error 2)");
        assert_eq!((error.to_string(), error.kind(), error.place()), (told, ErrorKind::NotFound, place));
        assert_eq!(
            (error.path(), io::Error::from(error.clone()).kind()),
            (Path::new("/no/such/file"), ErrorKind::NotFound)
        );
        let error = file::read(place, folder.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IsADirectory, "{error}");
        let error = file::read_to_string(place, &binary).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidData && error.to_string().contains("binary at m"), "{error}");
        assert!(file::read(place, "with\0nul").is_err());
        // Nobody writes into it: nothing here waits for that.
        let from = Instant::now();
        assert!(file::read(place, &pipe).is_err());
        assert!(from.elapsed() < limits::HANG);
        // An error in the middle ends a reader, like any other.
        let open = file::open(place, "/proc/self/mem").unwrap();
        let mut reader = open.reader();
        assert!(reader.read(&mut [0; 10]).is_err() && open.read_at(0, 1).is_err());
        assert_eq!(reader.read(&mut [0; 10]).unwrap(), 0);
    }
}

fn make_pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().expect("mkfifo(1) is there");
    assert!(made.success());
}

/// Each machine writes a file of each size; the caller, who shares the file system, sees it.
pub fn files_of_every_size_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(std::ffi::OsStr::from_bytes(b"file \xff"));
    for len in [5 * PIECE_BYTES + 77, PIECE_BYTES + 1, PIECE_BYTES, PIECE_BYTES - 1, 1000, 1, 0] {
        let expected = bytes(len);
        for place in spots() {
            file::write(place, &path, &expected).unwrap();
            assert!(fs::read(&path).unwrap() == expected, "{len} bytes at {place}");
            let mut writer = file::create(place, &path).unwrap();
            let (first, rest) = expected.split_at(len / 3);
            writer.write_all(first).unwrap();
            writer.flush().unwrap();
            assert!(fs::read(&path).unwrap() == first);
            rest.chunks(1 + len / 7).for_each(|part| writer.write_all(part).unwrap());
            writer.close().unwrap();
            assert!(fs::read(&path).unwrap() == expected, "{len} bytes at {place}");
            // Dropped, it sends its last piece as well.
            file::create(place, &path).unwrap().write_all(first).unwrap();
            until(|| fs::read(&path).unwrap() == first);
        }
    }
}

pub fn files_that_cannot_be_written_say_why() {
    let folder = tempfile::tempdir().unwrap();
    for place in spots() {
        let error = file::create(place, "/no/such/file").unwrap_err();
        assert!(
            error.to_string().starts_with(&format!("/no/such/file at {place} cannot be opened: No such")),
            "{error}"
        );
        assert_eq!(file::create(place, folder.path()).unwrap_err().kind(), ErrorKind::IsADirectory);
        let error = file::write(place, "/dev/full", bytes(9)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
        assert!(error.to_string().starts_with(&format!("/dev/full at {place} cannot be written: No space")), "{error}");
        // Many pieces, of which each fails: one error is told, soon or at the end.
        let mut writer = file::create(place, "/dev/full").unwrap();
        let error = writer.write_all(&bytes(9 * PIECE_BYTES)).err().or_else(|| writer.flush().err());
        let error = error.expect("it has no space");
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    }
}

pub fn folders_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &[u8]| folder.path().join(std::ffi::OsStr::from_bytes(name));
    fs::write(at(b"b \xff"), bytes(77)).unwrap();
    fs::create_dir(at(b"a")).unwrap();
    make_pipe(&at(b"c"));
    std::os::unix::fs::symlink(at(b"a"), at(b"d")).unwrap();
    std::os::unix::fs::symlink("/no/such/file", at(b"e")).unwrap();
    for place in spots() {
        let entries = file::read_dir(place, folder.path()).unwrap();
        let found: Vec<_> =
            entries.iter().map(|entry| (entry.path.clone(), entry.kind, entry.len, entry.is_link)).collect();
        let expected: [(&[u8], EntryKind, u64, bool); 5] = [
            (b"a", EntryKind::Folder, 0, false),
            (b"b \xff", EntryKind::File, 77, false),
            (b"c", EntryKind::Other, 0, false),
            (b"d", EntryKind::Folder, 0, true),
            (b"e", EntryKind::Other, 0, true),
        ];
        assert_eq!(found, expected.map(|(name, kind, len, is_link)| (at(name), kind, len, is_link)));
        let error = file::read_dir(place, "/no/such/folder").unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::NotFound, Path::new("/no/such/folder")));
    }
}
