//! Graphs from files: each format, plain and gzip; an error names the file, the line, the fault and the form expected.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;
use graph::{Edge, Listing, file};
use tempfile::TempDir;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn write(name: &str, bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    (folder, path)
}

fn read(name: &str, bytes: &[u8]) -> Result<Listing, String> {
    let (_folder, path) = write(name, bytes);
    file::read(&path, |_| ()).map_err(|error| {
        let (text, path) = (error.to_string(), path.display().to_string());
        text.strip_prefix(&path).unwrap_or_else(|| panic!("{text:?} does not name {path}")).to_owned()
    })
}

fn edge(from: u32, to: u32, weight: f32) -> Edge {
    Edge { from, to, weight }
}

#[test]
fn each_format_is_read_plain_and_as_gzip() {
    let dimacs = "c a comment\np sp 4 2\na 1 2 3\na 2 4 16777216\n";
    let weights = vec![edge(0, 1, 3.0), edge(1, 3, 16_777_216.0)];
    let matrix = "%%MatrixMarket matrix coordinate real symmetric\n% a comment\n3 3 2\n1 2 0.5\n3 3 1e-3\n";
    let pattern = "%%MatrixMarket matrix coordinate pattern general\r\n4 2 1\r\n4 1\r\n";
    let list = "# SNAP\n0\t5\n\n5 3 0.25\n1,2,2\n";
    let cases = [
        ("roads.gr", dimacs, 4, weights.clone()),
        ("roads.txt", dimacs, 4, weights),
        ("m.mtx", matrix, 3, vec![edge(0, 1, 0.5), edge(2, 2, 1e-3)]),
        ("m", matrix, 3, vec![edge(0, 1, 0.5), edge(2, 2, 1e-3)]),
        ("p.MTX", pattern, 4, vec![edge(3, 0, 1.0)]),
        ("list.txt", list, 6, vec![edge(0, 5, 1.0), edge(5, 3, 0.25), edge(1, 2, 2.0)]),
        ("weights.txt", "2 1 1\n1 2 1\n", 3, vec![edge(2, 1, 1.0), edge(1, 2, 1.0)]),
        (
            "loop.txt",
            "3 3\n1 2\n2 3\n3 1\n",
            4,
            vec![edge(3, 3, 1.0), edge(1, 2, 1.0), edge(2, 3, 1.0), edge(3, 1, 1.0)],
        ),
        ("empty", "", 0, vec![]),
        ("none.mtx", "%%MatrixMarket matrix coordinate integer general\n7 7 0\n", 7, vec![]),
    ];
    for (name, text, vertices, edges) in cases {
        let first = u32::from(!text.is_empty() && !text.starts_with(['#', '2', '3']));
        let expected = Ok(Listing { vertices, first, edges });
        assert_eq!(read(name, text.as_bytes()), expected, "{name}");
        let from_windows = format!("\u{feff}{}", text.replace("\r\n", "\n").replace('\n', " \t\r\n"));
        assert_eq!(read(name, from_windows.as_bytes()), expected, "{name}, with a BOM, trailing blanks and CRLF");
        assert_eq!(read(&format!("{name}.gz"), &gzip(text.as_bytes())), expected, "{name}.gz");
        assert_eq!(read(name, &gzip(text.as_bytes())), expected, "{name}, gzip by content");
    }
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let banner = "%%MatrixMarket matrix coordinate real general\n";
    let cases = [
        ("a.gr", "a 1 2 3\n".to_owned(), ":1: an edge comes before the line that says how many vertices"),
        ("a.gr", "p sp 2 1\na 1 3 3\n".to_owned(), ":2: there is no vertex 3: they are 1 to 2"),
        ("a.gr", "p sp 2 1\na 0 1 3\n".to_owned(), ":2: there is no vertex 0: they are 1 to 2"),
        ("a.gr", "p sp 2 2\na 1 2 3\n".to_owned(), ":3: the file ends after 1 edges, but 2 were announced"),
        ("a.gr", "p sp 2 1\np sp 2 1\n".to_owned(), ":2: \"p sp 2 1\": one line `p sp VERTICES ARCS` is expected"),
        ("a.gr", "p sp 4294967296 1\n".to_owned(), ":1: 4294967296 vertices: at most 4294967295 are possible"),
        ("a.gr", "p sp 2 1\na 1 2 -3\n".to_owned(), ":2: weight -3: it must be finite and 0 or more"),
        ("a.gr", "p sp 2 1\na 1 2 NaN\n".to_owned(), ":2: weight NaN: it must be finite"),
        ("a.gr", "p sp 2 1\na 1 2 1e39\n".to_owned(), ":2: weight 1e39: it must be finite"),
        ("a.gr", "p sp 2 1\na 1 2 16777217\n".to_owned(), ":2: weight 16777217: whole weights are exact up to"),
        ("a.gr", "p sp 2 1\na 1 2\n".to_owned(), ":2: \"a 1 2\": `a FROM TO WEIGHT`"),
        ("a.gr", "hello\n".to_owned(), ":1: \"hello\": `a FROM TO WEIGHT`"),
        ("a.gr", "c nothing else\n".to_owned(), ":2: the file ends before the line"),
        ("a.mtx", "1 2 3\n".to_owned(), ":1: \"1 2 3\": `%%MatrixMarket matrix coordinate"),
        ("a.mtx", "%%MatrixMarket matrix array real general\n".to_owned(), ":1: \"%%MatrixMarket matrix array"),
        ("a.mtx", format!("{banner}2 2\n"), ":2: \"2 2\": `ROWS COLUMNS ENTRIES` is expected"),
        ("a.mtx", format!("{banner}2 2 1\n1 2\n"), ":3: \"1 2\": `ROW COLUMN VALUE` is expected"),
        ("a.txt", "1 2\nx 2\n".to_owned(), ":2: \"x\" is not a whole number of 0 or more"),
        ("a.txt", "1\n".to_owned(), ":1: \"1\": `FROM TO` or `FROM TO WEIGHT` is expected"),
        ("a.txt", "1 2 3 4\n".to_owned(), ":1: \"1 2 3 4\": `FROM TO`"),
        ("a.txt", "1 4294967295\n".to_owned(), ":1: vertex 4294967295: the highest possible is 4294967294"),
        ("a.txt", "1 2 heavy\n".to_owned(), ":1: \"heavy\" is not a number"),
        ("a.gr", "p sp 2 1\na 1 2 inf\n".to_owned(), ":2: weight inf: it must be finite"),
        ("a.txt", "1 2 -Infinity\n".to_owned(), ":1: weight -Infinity: it must be finite"),
        ("a.txt", "1 2 1e400\n".to_owned(), ":1: weight 1e400: it must be finite"),
        // METIS: of the manual; with weights of edges and of vertices; two pairs; a ring; blank lines for lone
        // vertices.
        (
            "a.txt",
            "7 11\n5 3 2\n1 3 4\n5 4 2 1\n".to_owned(),
            ":4: \"5 4 2 1\": `FROM TO` or `FROM TO WEIGHT` is expected; a METIS",
        ),
        ("a.txt", "7 11 001\n5 1 3 2 2 1\n".to_owned(), ":1: \"7 11 001\": a METIS graph"),
        ("a.txt", "% comment\n3 2 011\n4 2 1\n2 1 1 3 2\n5 2 2\n".to_owned(), ":2: \"3 2 011\": a METIS graph"),
        ("a.txt", "4 2 1\n2 5\n1 5\n4 7\n3 7\n".to_owned(), ":6: the lines are those of another format: a METIS graph"),
        ("a.txt", "3 2 10\n4 2\n2 1 3\n5 2\n".to_owned(), ":5: the lines are those of another format: a METIS graph"),
        ("a.txt", "4 4\n2 4\n1 3\n2 4\n1 3\n".to_owned(), ":6: the lines are those of another format: a METIS graph"),
        ("a.txt", "4 1 1\n3 9\n\n1 9\n\n".to_owned(), ":6: the lines are those of another format: a METIS graph"),
        ("a.txt", "0 4294967294\n".to_owned(), ":2: 4294967295 vertices are too many for 1 edges"),
        ("a.gr", "p sp 4294967295 0\n".to_owned(), ":2: 4294967295 vertices are too many for 0 edges"),
        ("a.txt", format!("1 2\n1 {}\n", "2".repeat(1 << 16)), ":2: a line has at most 65536 bytes"),
    ];
    for (name, text, expected) in cases {
        let error = read(name, text.as_bytes()).unwrap_err();
        assert!(error.starts_with(expected), "{text:?}: {error:?} instead of {expected:?}");
    }
    assert!(read("a", b"1 2\n\xff\xff 3\n").unwrap_err().starts_with(":2: it is not text (UTF-8)"));
    let mut cut = gzip("1 2\n".repeat(1000).as_bytes());
    cut.truncate(cut.len() / 2);
    assert!(read("a.gz", &cut).is_err());
}

#[test]
fn lines_and_vertices_may_be_many_up_to_a_limit() {
    let longest = format!("# {}\n1 2", "x".repeat((1 << 16) - 3));
    assert_eq!(read("a.txt", longest.as_bytes()).unwrap().edges.len(), 1);
    let most = (1 << 24) + 64;
    assert_eq!(read("a.txt", format!("0 {}\n", most - 1).as_bytes()).unwrap().vertices, most);
    let error = read("a.txt", format!("0 {most}\n").as_bytes()).unwrap_err();
    assert!(error.ends_with("renumber the vertices"), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = file::read(std::path::Path::new("/no/such/graph.gr"), |_| ()).unwrap_err().to_string();
    assert!(error.starts_with("/no/such/graph.gr: No such file"), "{error}");
}

#[test]
fn progress_is_told_while_reading() {
    let (_folder, path) = write("long", "1 2\n".repeat(200_000).as_bytes());
    let mut told = Vec::new();
    assert_eq!(file::read(&path, |edges| told.push(edges)).unwrap().edges.len(), 200_000);
    assert_eq!(told, [65_536, 131_072, 196_608]);
}
