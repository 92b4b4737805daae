//! `pagerank`, `components` and `array-kv` as a user runs them: over one process and several, by `shm` and `tcp`, they
//! find the results of one thread, and say so of themselves; graphs come from files, too, and a fault in one is
//! reported once.

use std::fs;

use programs::{RACKS, report, run};
use serde_json::Value;

mod programs;

const PAGERANK: &str = env!("CARGO_BIN_EXE_pagerank");
const ARRAY_KV: &str = env!("CARGO_BIN_EXE_array-kv");
const COMPONENTS: &str = env!("CARGO_BIN_EXE_components");

#[test]
fn ranks_are_those_of_one_thread() {
    let mut expected: Option<Value> = None;
    for rack in RACKS {
        let found = report(PAGERANK, &[&["--scale", "11", "--seed", "3", "--rounds", "10"], rack].concat());
        assert_eq!((&found["vertices"], &found["edges"], &found["rounds"]), (&2048.into(), &32768.into(), &10.into()));
        assert!(found["edges_a_second"].as_f64().unwrap() > 0.0, "{found}");
        let pages: Value = found["top"].as_array().unwrap().iter().map(|top| top["page"].clone()).collect();
        assert_eq!(pages.as_array().unwrap().len(), 5);
        assert_eq!(expected.get_or_insert(pages.clone()), &pages, "{rack:?}");
    }
}

#[test]
fn components_are_those_of_one_thread_and_of_sssp() {
    // Few edges for each vertex, so that there are many components.
    let graph = ["--scale", "11", "--edgefactor", "1", "--seed", "4"];
    let other = run(env!("CARGO_BIN_EXE_sssp"), &[&graph[..], &["--components", "--single", "--json"]].concat());
    let expected: Value = serde_json::from_str(&other.stdout).unwrap();
    assert!(expected["components"].as_u64() > Some(10), "{expected}");
    for rack in RACKS {
        let found = report(COMPONENTS, &[&graph[..], rack].concat());
        let same = ["components", "checksum"];
        assert_eq!(same.map(|what| &found[what]), same.map(|what| &expected[what]), "{rack:?}");
    }
}

#[test]
fn graphs_come_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.txt");
    // A path of 300 vertices, and a star around 999, which all others link to; 1000 to 1999 are its rays.
    let links = (0..299).map(|vertex| format!("{vertex} {}\n", vertex + 1));
    let rays = (1000..2000).map(|vertex| format!("{vertex} 999\n"));
    fs::write(&path, links.chain(rays).collect::<String>()).unwrap();
    for rack in [&["--threads", "2"][..], &["--local", "2", "--threads", "4"]] {
        let graph = [&["--graph", path.to_str().unwrap()], rack].concat();
        let ranked = report(PAGERANK, &graph);
        assert_eq!(ranked["top"][0]["page"], 999, "{ranked}");
        let parts = report(COMPONENTS, &graph);
        assert_eq!((&parts["components"], &parts["largest"]), (&2.into(), &1001.into()), "{parts}");
    }
}

#[test]
fn a_graph_may_be_smaller_than_the_rack() {
    for scale in ["0", "1", "3"] {
        let graph = ["--scale", scale, "--edgefactor", "2", "--threads", "6"];
        let pages = report(PAGERANK, &graph)["vertices"].as_u64().unwrap();
        assert_eq!(pages, 1 << scale.parse::<u32>().unwrap());
        report(COMPONENTS, &graph);
    }
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.txt");
    fs::write(&empty, "# no edges\n").unwrap();
    for program in [PAGERANK, COMPONENTS] {
        assert_eq!(report(program, &["--graph", empty.to_str().unwrap(), "--threads", "2"])["vertices"], 0);
    }
}

#[test]
fn what_is_no_graph_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.mtx");
    fs::write(&path, "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 x 1\n").unwrap();
    let bad = path.to_str().unwrap();
    for (program, name) in [(PAGERANK, "pagerank"), (COMPONENTS, "components")] {
        let told = format!("{name}: {bad}:3: \"x\" is not a whole number of 0 or more\n");
        for args in [&["--threads", "2"][..], &["--local", "2"]] {
            let ran = run(program, &[&["--graph", bad], args].concat());
            assert_eq!((ran.status, ran.stderr.as_str(), ran.stdout.as_str()), (1, told.as_str(), ""), "{args:?}");
        }
    }
}

#[test]
fn the_text_says_what_was_found() {
    let said = run(PAGERANK, &["--scale", "8", "--threads", "2", "--verify"]);
    assert!(said.stdout.contains("million edges a second\n1. vertex ") && said.stdout.contains("\nas on one thread: "));
    let said = run(COMPONENTS, &["--scale", "8", "--threads", "2", "--verify"]);
    assert!(said.stdout.contains(" components of vertices with edges, the largest of "), "{}", said.stdout);
    assert!(said.stdout.ends_with("\nas on one thread\n"), "{}", said.stdout);
}

#[test]
fn gets_find_what_was_put() {
    for rack in RACKS {
        for load in [["0.5", "0.99"], ["0.95", "0"]] {
            let load = ["--keys", "200", "--operations", "3000", "--gets", load[0], "--zipf", load[1], "--verify"];
            let ran = run(ARRAY_KV, &[&load[..], rack].concat());
            assert!(
                ran.status == 0 && ran.stdout.contains("\nright: "),
                "{rack:?} {load:?} {} {}",
                ran.stdout,
                ran.stderr
            );
        }
    }
    let said =
        run(ARRAY_KV, &["--keys", "100", "--operations", "1000", "--threads", "2", "--value-bytes", "30"]).stdout;
    assert!(said.starts_with("100 keys, zipf 0.99, values of 30 bytes, 95% gets\n1 process with 2 workers"), "{said}");
    assert!(said.ends_with(" million operations a second\n"), "{said}");
}
