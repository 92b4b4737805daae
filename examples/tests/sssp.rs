//! `sssp` as a user runs it: over one process and several, by `shm` and `tcp`, it finds the distances of Dijkstra's
//! algorithm, and says so of itself; graphs come from files, too, and a fault in one is reported once.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

struct Ran {
    status: i32,
    stdout: String,
    stderr: String,
}

fn run(args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sssp"));
    let output = command.args(args).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { status: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The report of a run that must end well.
fn report(args: &[&str]) -> Value {
    let ran = run(&[args, &["--json"]].concat());
    assert_eq!(ran.status, 0, "{args:?}\n{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(ran.stderr, "", "no progress bar without a terminal: {args:?}");
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stdout))
}

/// Results that must not depend on the searcher: root, vertices reached, edges of the component, distances.
fn results(report: &Value) -> Vec<Vec<Value>> {
    let searches = report["searches"].as_array().unwrap().iter();
    searches.map(|search| ["root", "reached", "edges", "checksum"].map(|what| search[what].clone()).to_vec()).collect()
}

fn assert_valid(report: &Value) {
    for search in report["searches"].as_array().unwrap() {
        assert_eq!(search["verdict"], "valid", "{report}");
        assert!(search["teps"].as_f64().unwrap() > 0.0 && search["time_s"].as_f64().unwrap() > 0.0, "{search}");
    }
}

#[test]
fn distances_do_not_depend_on_processes_and_workers() {
    let graph = ["--scale", "10", "--edgefactor", "8", "--seed", "3", "--roots", "3"];
    let single = report(&[&graph[..], &["--single"]].concat());
    let expected = results(&single);
    assert_eq!((expected.len(), &single["algorithm"]), (3, &Value::from("dijkstra")));
    assert!(expected.iter().all(|search| search[1].as_u64() > Some(500)), "{single}");
    for (processes, workers, fabric) in
        [(1, 1, "auto"), (1, 3, "auto"), (2, 2, "shm"), (2, 2, "tcp"), (2, 5, "auto"), (4, 4, "shm"), (4, 4, "tcp")]
    {
        let (local, threads) = (processes.to_string(), workers.to_string());
        let rack = ["--local", &local, "--threads", &threads, "--fabric", fabric, "--validate"];
        let found = report(&[&graph[..], &rack].concat());
        assert_eq!(results(&found), expected, "{rack:?}");
        assert_valid(&found);
        assert_eq!((found["machines"].as_u64(), found["workers"].as_u64()), (Some(processes), Some(workers)));
        let sent = |search: &Value| search["messages"].as_u64().unwrap() > 0;
        assert_eq!(found["searches"].as_array().unwrap().iter().all(sent), workers > 1, "{found}");
    }
}

#[test]
fn levels_are_those_of_a_sequential_search() {
    let graph = ["--scale", "10", "--edgefactor", "4", "--seed", "5", "--roots", "3", "--levels"];
    let expected = results(&report(&[&graph[..], &["--single"]].concat()));
    for rack in [&["--threads", "3"][..], &["--local", "2", "--threads", "4", "--fabric", "shm"]] {
        let found = report(&[&graph[..], rack, &["--validate"]].concat());
        assert_eq!(results(&found), expected, "{rack:?}");
        assert_valid(&found);
    }
    let lengths = results(&report(&[&graph[..8], &["--single"]].concat()));
    assert!(lengths.iter().zip(&expected).all(|(length, level)| length[..3] == level[..3] && length[3] != level[3]));
    // Along a path, levels are places.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("path.txt");
    fs::write(&path, (0..40).map(|vertex| format!("{vertex} {}\n", vertex + 1)).collect::<String>()).unwrap();
    let path = ["--graph", path.to_str().unwrap(), "--root", "0", "--levels", "--threads", "2", "--validate"];
    assert_eq!(report(&path)["searches"][0]["reached"], 41);
}

/// By union and find, over the same edges.
fn components(vertices: u32, edges: impl Iterator<Item = (u32, u32)>) -> (u64, u64) {
    fn root(parents: &mut [u32], mut vertex: u32) -> u32 {
        while parents[vertex as usize] != vertex {
            parents[vertex as usize] = parents[parents[vertex as usize] as usize];
            vertex = parents[vertex as usize];
        }
        vertex
    }
    let mut parents: Vec<u32> = (0..vertices).collect();
    let mut has_edges = vec![false; vertices as usize];
    for (from, to) in edges.filter(|(from, to)| from != to) {
        let (a, b) = (root(&mut parents, from), root(&mut parents, to));
        parents[a.max(b) as usize] = a.min(b);
        (has_edges[from as usize], has_edges[to as usize]) = (true, true);
    }
    let mut found = graph::components::Components::default();
    for vertex in 0..vertices {
        found.note(vertex, root(&mut parents, vertex), has_edges[vertex as usize]);
    }
    (found.count, found.checksum)
}

#[test]
fn components_are_those_of_union_and_find() {
    // Few edges for each vertex, so that there are many components.
    let graph = graph::Kronecker { scale: 11, edge_factor: 1, seed: 4 };
    let edges = graph.generate(0..graph.edges()).map(|edge| (edge.from, edge.to));
    let (count, checksum) = components(graph.vertices(), edges);
    assert!(count > 10, "{count}");
    let expected = (Some(count), Value::from(format!("{checksum:016x}")));
    let arguments = ["--scale", "11", "--edgefactor", "1", "--seed", "4", "--components"];
    let racks = [&["--single"][..], &["--threads", "1"], &["--threads", "3"]];
    let spread = [&["--local", "2", "--fabric", "shm"][..], &["--local", "3", "--threads", "4", "--fabric", "tcp"]];
    for rack in racks.into_iter().chain(spread) {
        let found = report(&[&arguments[..], rack].concat());
        assert_eq!((found["components"].as_u64(), found["checksum"].clone()), expected, "{rack:?}");
    }
    let said = run(&["--scale", "5", "--components", "--threads", "2"]);
    assert!(said.status == 0 && said.stdout.contains("components of vertices with edges"), "{}", said.stderr);
    assert_eq!(run(&["--components", "--validate"]).status, 2);
}

#[test]
fn a_graph_may_be_smaller_than_the_rack() {
    for (scale, seed) in [("0", "1"), ("1", "1"), ("3", "9")] {
        let graph = ["--scale", scale, "--edgefactor", "2", "--seed", seed, "--roots", "2"];
        let single = run(&[&graph[..], &["--single", "--json"]].concat());
        let rack = run(&[&graph[..], &["--threads", "6", "--validate", "--json"]].concat());
        assert_eq!(single.status, rack.status, "{}{}", single.stderr, rack.stderr);
        if single.status == 0 {
            let read = |ran: &Ran| results(&serde_json::from_str(&ran.stdout).unwrap());
            assert_eq!(read(&single), read(&rack));
        } else {
            assert_eq!(rack.stderr, "sssp: the graph has no edge, so there is nothing to search\n");
        }
    }
}

#[test]
fn graphs_come_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grid.gr");
    // A grid of 30 by 30 with whole weights, vertices from 1.
    let mut text = String::from("c a grid\np sp 900 1740\n");
    for vertex in 1..=900 {
        let weight = 1 + (vertex * 7919) % 100;
        if vertex % 30 != 0 {
            text += &format!("a {vertex} {} {weight}\n", vertex + 1);
        }
        if vertex <= 870 {
            text += &format!("a {vertex} {} {}\n", vertex + 30, 101 - weight);
        }
    }
    fs::write(&path, text).unwrap();
    let graph = ["--graph", path.to_str().unwrap(), "--root", "1", "--root", "900"];
    let expected = report(&[&graph[..], &["--single"]].concat());
    let found = report(&[&graph[..], &["--local", "2", "--validate"]].concat());
    assert_eq!(results(&found), results(&expected));
    assert_valid(&found);
    assert_eq!((&found["searches"][1]["root"], &found["searches"][1]["reached"]), (&900.into(), &900.into()));
}

#[test]
fn what_cannot_be_searched_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.mtx");
    fs::write(&path, "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 x 1\n").unwrap();
    let bad = path.to_str().unwrap();
    let told = format!("sssp: {bad}:3: \"x\" is not a whole number of 0 or more\n");
    for args in [&["--single"][..], &["--threads", "2"], &["--local", "2"]] {
        let ran = run(&[&["--graph", bad], args].concat());
        assert_eq!((ran.status, ran.stderr.as_str(), ran.stdout.as_str()), (1, told.as_str(), ""), "{args:?}");
    }
    let ran = run(&["--graph", "/no/such/file"]);
    assert!(ran.status == 1 && ran.stderr.starts_with("sssp: /no/such/file: No such file"), "{}", ran.stderr);
    let ran = run(&["--scale", "4", "--root", "16"]);
    assert_eq!((ran.status, ran.stderr.as_str()), (1, "sssp: --root 16: the vertices are 0 to 15\n"));
    let empty = folder.path().join("empty.txt");
    fs::write(&empty, "# no edges\n").unwrap();
    for args in [&["--single"][..], &["--threads", "2"]] {
        let ran = run(&[&["--graph", empty.to_str().unwrap(), "--root", "0"], args].concat());
        assert_eq!((ran.status, ran.stderr.as_str()), (1, "sssp: the graph has no vertices\n"), "{args:?}");
    }
    let ran = run(&["--local", "4", "--threads", "3"]);
    assert!(
        ran.status == 1 && ran.stderr.starts_with("sssp: --threads 3 is not enough for 4 processes"),
        "{}",
        ran.stderr
    );
}
