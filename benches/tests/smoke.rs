//! Every command of `gossamer-bench` at its smoke size: it ends well, its answers verify, its JSON
//! holds the requested results, and each file it writes can be drawn.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gossamer-bench")).args(arguments).output().expect("the program starts")
}

fn succeed(arguments: &[&str]) -> String {
    let output = bench(arguments);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {}\n{stdout}\n{stderr}", output.status);
    stdout.into_owned()
}

fn fail(arguments: &[&str]) -> String {
    let output = bench(arguments);
    assert!(!output.status.success(), "{arguments:?} succeeded");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a command with `--smoke --json`, checks the fields that every file of results must hold, draws it.
fn measure(folder: &Path, arguments: &[&str]) -> (String, Value, usize) {
    let json = folder.join("results.json");
    let json_path = json.to_str().expect("a path in UTF-8");
    let stdout = succeed(&[arguments, &["--smoke", "--json", json_path]].concat());
    let file: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(file["command"], arguments[0]);
    assert!(file["machine"]["rustc"].as_str().unwrap().starts_with("rustc "));
    for fact in ["cpu", "commit", "profile"] {
        assert!(!file["machine"][fact].as_str().unwrap().is_empty(), "machine has no {fact}");
    }
    let pictures = folder.join("pictures");
    succeed(&["plot", "--json", json_path, "--out", pictures.to_str().unwrap()]);
    let mut drawn = 0;
    for picture in fs::read_dir(&pictures).unwrap() {
        let svg = fs::read_to_string(picture.unwrap().path()).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        drawn += 1;
    }
    (stdout, file, drawn)
}

fn assert_samples(series: &Value, rounds: usize) {
    let samples = series["samples"].as_array().unwrap();
    assert_eq!(samples.len(), rounds, "{series}");
    assert!(samples.iter().all(|sample| sample["mops"].as_f64().unwrap() > 0.0));
    let (low, middle, high) =
        (series["min_mops"].as_f64(), series["median_mops"].as_f64(), series["max_mops"].as_f64());
    assert!(low <= middle && middle <= high, "{series}");
}

const ALWAYS: [&str; 9] = [
    "std-mutex",
    "parking_lot",
    "spin",
    "mcs",
    "atomic",
    "channel",
    "channel-pipelined",
    "bare-slots",
    "bare-slots-dedicated",
];
const OF_TRUST: [&str; 4] = ["apply", "apply-dedicated", "apply_then", "apply_then-dedicated"];

#[test]
fn fetch_add() {
    let folder = tempfile::tempdir().unwrap();
    let (stdout, file, drawn) = measure(folder.path(), &["fetch-add", "--threads", "2", "--objects", "1,3,5000"]);
    let results = file["results"].as_array().unwrap();
    assert_eq!(results.len(), 2 * 3 * (ALWAYS.len() + OF_TRUST.len()));
    assert_eq!(drawn, 2, "one picture for each distribution");
    for contender in ALWAYS.iter().chain(&OF_TRUST) {
        assert!(stdout.contains(contender), "{contender} is not in the table");
        let own = results.iter().filter(|series| series["contender"] == *contender);
        assert_eq!(own.inspect(|series| assert_samples(series, 2)).count(), 6, "{contender}");
    }
}

#[test]
fn fetch_add_other_settings() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "fetch-add --threads 1,4 --objects 3 --dist zipf --pause --no-pin --batch 7 --slots 3 --fibers 5 \
                    --share common --layout compact --dedicated 1";
    let arguments: Vec<&str> = settings.split_whitespace().collect();
    let (_, file, drawn) = measure(folder.path(), &arguments);
    assert_eq!(drawn, 2, "one picture for each number of threads");
    assert!(folder.path().join("pictures/results-zipf-4-threads.svg").exists());
    let results = file["results"].as_array().unwrap();
    let with_one_thread: Vec<_> = results.iter().filter(|series| series["threads"] == 1).collect();
    assert!(with_one_thread.iter().all(|series| series["contender"] != "channel"));
    assert_eq!(results.len() - with_one_thread.len(), ALWAYS.len() + OF_TRUST.len());
}

#[test]
fn latency() {
    let folder = tempfile::tempdir().unwrap();
    let (_, file, drawn) = measure(folder.path(), &["latency"]);
    let points = file["results"].as_array().unwrap();
    // Two loads, two series; four locks, and four contenders of trust.
    assert_eq!(points.len(), 2 * 2 * (4 + OF_TRUST.len()));
    assert_eq!(drawn, 4, "mean and p99.9 of two series");
    for point in points {
        let ns = |name: &str| point["latency"][name].as_f64().unwrap();
        assert!(ns("p50_ns") > 0.0 && ns("p50_ns") <= ns("p99_ns"), "{point}");
        assert!(ns("p99_ns") <= ns("p999_ns") && ns("p999_ns") <= ns("max_ns"), "{point}");
        assert!(point["samples"].as_array().unwrap().iter().all(|sample| sample["ops"].as_u64().unwrap() > 0));
    }
}

#[test]
fn parts() {
    let folder = tempfile::tempdir().unwrap();
    let (stdout, file, drawn) = measure(folder.path(), &["parts"]);
    assert_eq!(drawn, 3);
    file["results"]["series"].as_array().unwrap().iter().for_each(|series| assert_samples(series, 2));
    assert!(stdout.contains("ping-pong"));
    let targets = file["results"]["targets"].as_array().unwrap();
    assert_eq!(targets.len(), 5);
    let all_measured =
        targets.iter().all(|target| target["met"].is_boolean() && target["reached"].as_f64() > Some(0.0));
    assert!(all_measured, "{targets:?}");
}

#[test]
fn targets() {
    let folder = tempfile::tempdir().unwrap();
    let (stdout, file, _) = measure(folder.path(), &["targets"]);
    let targets = file["results"]["targets"].as_array().unwrap();
    assert_eq!(targets.len(), 11);
    for target in targets {
        assert!(stdout.contains(target["target"].as_str().unwrap()));
        let (reached, wanted) = (target["reached"].as_f64(), target["wanted"].as_f64());
        let met = reached.map(|_| if target["bound"] == "at least" { reached >= wanted } else { reached <= wanted });
        assert_eq!(target["met"].as_bool(), met, "{target}");
    }
}

#[test]
fn echo() {
    let folder = tempfile::tempdir().unwrap();
    let (stdout, file, drawn) = measure(folder.path(), &["echo", "--only", "threads,shm,tcp"]);
    let series = file["results"]["series"].as_array().unwrap();
    assert_eq!(series.len(), 3 * 2 * 2, "three contenders, two sizes, two numbers of outstanding requests");
    assert_eq!(drawn, 2 + 2, "throughput and latency at 32 bytes; over the size; the tail over throughput");
    for series in series {
        let ns = |name: &str| series[name].as_f64().unwrap();
        assert!(ns("p50_ns") > 0.0 && ns("p50_ns") <= ns("p99_ns") && ns("p99_ns") <= ns("p999_ns"), "{series}");
        let samples = series["samples"].as_array().unwrap();
        assert!(
            samples.len() == 2 && samples.iter().all(|sample| sample["requests"].as_u64().unwrap() > 0),
            "{series}"
        );
    }
    assert!(stdout.contains("shm over threads"));
    assert_eq!(file["results"]["targets"].as_array().unwrap().len(), 8);
    // A contender that cannot be had is named, and does not count as measured.
    let mut without_mpi = Command::new(env!("CARGO_BIN_EXE_gossamer-bench"));
    let output = without_mpi.args(["echo", "--smoke", "--only", "mpi"]).env("PATH", folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("SKIPPED: mpi: there is no `mpirun`"), "{said}");
    assert!(fail(&["echo", "--smoke", "--strict", "--only", "threads"]).contains("were not measured"));
    assert!(fail(&["echo", "--smoke", "--only", "pigeons"]).contains("threads, shm, tcp"));
    assert!(fail(&["echo", "--smoke", "--processes", "1"]).contains("2 to 16"));
    assert!(fail(&["echo-rack", "--bytes", "9"]).contains("--bytes 9"));
}

#[test]
fn sssp() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["sssp", "--workers", "1,2", "--only", "threads,shm,tcp,dijkstra"];
    let (stdout, file, drawn) = measure(folder.path(), &arguments);
    let series = file["results"]["series"].as_array().unwrap();
    assert_eq!(series.len(), 2 * (2 + 1 + 1 + 1), "two scales; threads with one and two workers");
    assert_eq!(drawn, 3, "traversed edges and time over the size, time over the workers");
    for series in series {
        assert!(
            series["median_mteps"].as_f64() > Some(0.0) && series["median_time_s"].as_f64() > Some(0.0),
            "{series}"
        );
        let samples = series["samples"].as_array().unwrap();
        assert!(samples.len() == 2 && samples.iter().all(|run| run.as_array().unwrap().len() == 2), "{series}");
    }
    assert!(stdout.contains("threads over dijkstra, scale 9"));
    assert_eq!(file["results"]["targets"].as_array().unwrap().len(), 2 * 3 + 1);
    // A contender that cannot be had is named, and does not count as measured.
    let mut without_mpi = Command::new(env!("CARGO_BIN_EXE_gossamer-bench"));
    let output = without_mpi.args(["sssp", "--smoke", "--only", "mpi"]).env("PATH", folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("SKIPPED: mpi: there is no `mpirun`"), "{said}");
    assert!(fail(&["sssp", "--smoke", "--strict", "--only", "dijkstra"]).contains("were not measured"));
    assert!(fail(&["sssp", "--smoke", "--only", "bfs"]).contains("threads,shm,tcp,mpi,dijkstra"));
    assert!(fail(&["sssp", "--smoke", "--workers", "0"]).contains("--workers 0"));
}

#[test]
fn array() {
    let folder = tempfile::tempdir().unwrap();
    let own = "vec,memcpy,counted,array,array-views,array-bulk,array-lock,array-threads,array-single,apply_then";
    let (stdout, file, drawn) = measure(folder.path(), &["array", "--fabric", "shm", "--only", own]);
    let series = file["results"]["series"].as_array().unwrap();
    let in_works = [("hits", 3), ("sum", 2), ("sets", 2), ("pass", 3), ("zipf", 4), ("uniform", 3), ("dense", 3 * 2)];
    for (work, contenders) in in_works.into_iter().chain([("ranks", 3), ("labels", 3), ("gets", 2), ("puts", 2)]) {
        assert_eq!(series.iter().filter(|one| one["work"] == work).count(), contenders, "{work}: {stdout}");
    }
    for one in series {
        let samples = one["samples"].as_array().unwrap();
        assert!(samples.len() == 2 && one["median_mops"].as_f64() > Some(0.0), "{one}");
        assert!(samples.iter().all(|run| run["ops"].as_u64() > Some(0) && run["seconds"].as_f64() > Some(0.0)));
    }
    assert_eq!(drawn, 1, "combining and delegating over the density");
    assert_eq!(file["results"]["transfer_ns"].as_array().unwrap().len(), 2, "one a round");
    let targets = file["results"]["targets"].as_array().unwrap();
    assert_eq!(targets.len(), 18);
    for target in targets {
        let of_others = ["mpi", "shmem", "lamellar", "graph", "the others"];
        let is_measured = !of_others.iter().any(|name| target["target"].as_str().unwrap().ends_with(name));
        assert_eq!(target["reached"].as_f64() > Some(0.0), is_measured, "{target}");
    }
    assert!(stdout.contains("array and array-bulk are as fast") && stdout.contains("a cache line there and back"));
    // A contender that cannot be had is named, and does not count as measured.
    let others = ["array", "--smoke", "--works", "pass", "--only", "mpi,shmem"];
    let without = Command::new(env!("CARGO_BIN_EXE_gossamer-bench")).args(others).env("PATH", folder.path()).output();
    let (status, said) =
        without.map(|ended| (ended.status, String::from_utf8_lossy(&ended.stdout).into_owned())).unwrap();
    assert!(status.success() && said.contains("SKIPPED: mpi: there is no `mpirun`"), "{said}");
    assert!(said.contains("SKIPPED: shmem: there is no `oshcc`"), "{said}");
    let strict = ["array", "--smoke", "--strict", "--works", "hits", "--only", "vec"];
    assert!(fail(&strict).contains("were not measured"));
    assert!(fail(&["array", "--smoke", "--only", "slice"]).contains("array-views"));
    assert!(fail(&["array", "--smoke", "--fabric", "pigeons"]).contains("one of shm, tcp, auto"));
    assert!(fail(&["array-run", "--contender", "vec", "--work", "zipf"]).contains("has no part in zipf"));
    assert!(
        fail(&["array-run", "--contender", "array", "--work", "hits", "--elements", "1000"]).contains("power of two")
    );
    assert!(fail(&["array-run", "--contender", "array", "--work", "pass"]).contains("two processes are needed"));
}

#[test]
fn durable() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("results.json");
    let stores = folder.path().join("stores");
    fs::create_dir(&stores).unwrap();
    let [json_path, stores_path] = [&json, &stores].map(|path| path.to_str().expect("a path in UTF-8"));
    let stdout = succeed(&["durable", "--smoke", "--folder", stores_path, "--json", json_path]);
    let file: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let series = file["results"]["series"].as_array().unwrap();
    let others = if cfg!(feature = "stores") { 3 * 4 } else { 0 };
    let pmem = usize::from(!stdout.contains("SKIPPED: libpmemobj"));
    // Alone, 1,000 a commit, and three numbers of threads.
    let rocks = if stdout.contains("SKIPPED: rocksdb") { 0 } else { 5 };
    // This and the bare loop, alone and with many outstanding, and fibers once.
    assert_eq!(series.len(), 2 * 2 + 1 + others + pmem + rocks, "{stdout}");
    for series in series {
        let samples = series["samples"].as_array().unwrap();
        assert!(samples.len() == 2 && samples.iter().all(|sample| sample.as_f64().unwrap() > 0.0), "{series}");
    }
    assert_eq!(file["results"]["structures"].as_array().unwrap().len(), 2);
    assert_eq!(file["results"]["targets"].as_array().unwrap().len(), 12);
    let basics = file["results"]["basics"].as_array().unwrap();
    assert_eq!(basics.len(), 8);
    let by_corundum = |basic: &&Value| basic["corundum_ns"].as_f64().is_some();
    assert_eq!(basics.iter().filter(by_corundum).count(), if stdout.contains("SKIPPED: corundum") { 0 } else { 8 });
    assert_eq!(cfg!(feature = "stores"), !stdout.contains("SKIPPED: lmdb"));
    assert_eq!(fs::read_dir(&stores).unwrap().count(), 0, "nothing is left");
}

#[test]
fn region() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("results.json");
    let stdout = succeed(&["region", "--smoke", "--rounds", "1", "--json", json.to_str().unwrap()]);
    let file: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let series = file["results"]["series"].as_array().unwrap();
    let skipped = file["results"]["skipped"].as_object().unwrap();
    assert_eq!(series.len() + skipped.len(), 56, "{stdout}");
    assert!(series.iter().all(|series| series["median_ns"].as_f64().unwrap() > 0.0), "{stdout}");
    // Where there can be no regions, or no MPI, threads and copies are left.
    assert!(series.len() >= 16, "{stdout}");
    assert_eq!(file["results"]["targets"].as_array().unwrap().len(), 23, "{stdout}");
    assert!(fail(&["region", "--smoke", "--only", "matrices"]).contains("matrix: region"));
    assert!(fail(&["region-run", "--work", "scan", "--size", "1"]).contains("needs --fabric"));
}

#[test]
fn busy() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("busy.json");
    let path = json.to_str().unwrap();
    let workloads = "apply,apply_then-16,tables-zipf,trustees-2";
    let contenders = "default,std-mutex,dashmap,std-mpsc";
    let arguments = ["busy", "--smoke", "--workloads", workloads, "--contenders", contenders, "--json", path];
    let stdout = succeed(&arguments);
    let file: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let results = &file["results"];
    let skipped = results["skipped"].as_object().unwrap();
    // A picture a condition.
    let pictures = succeed(&["plot", "--json", path, "--out", folder.path().to_str().unwrap()]);
    assert_eq!(pictures.lines().count(), 12 - skipped.len(), "{pictures}");
    for (condition, why) in skipped {
        assert!(stdout.contains(&format!("SKIPPED: {condition}: {}", why.as_str().unwrap())));
    }
    assert!(skipped.keys().all(|name| ["half-workers", "quota", "real-time"].contains(&name.as_str())), "{skipped:?}");
    let series = results["series"].as_array().unwrap();
    // Two contenders of two workloads and three of the table; plain threads have a workload of two.
    assert_eq!(series.len(), (11 - skipped.len()) * (2 * 2 + 3) + 2);
    for one in series {
        assert_samples(one, 2);
        let by_trust = one["contender"] == "default";
        for sample in one["samples"].as_array().unwrap() {
            assert!(sample["transfer_ns"].as_f64() > Some(0.0) && sample["ops"].as_u64() > Some(0), "{one}");
        }
        assert_eq!(one["stats_per_second"].get("polls").is_some(), by_trust, "{one}");
        assert_eq!(one["latency"].is_null(), one["work"] != "apply" && one["condition"] != "std-threads", "{one}");
    }
    let of_hog =
        |one: &&Value| one["condition"] == "hog-pinned" && one["work"] == "apply" && one["contender"] == "default";
    let latency = &series.iter().find(of_hog).unwrap()["latency"];
    // On two cores each request is to or from the worker beside the hog; few are timed in so short a run.
    if file["machine"]["cores"] == 2 {
        assert!(latency["others"].is_null(), "{latency}");
    }
    let taken = ["to_taken", "from_taken"].map(|name| latency[name]["p50_ns"].as_f64());
    assert!(taken.iter().flatten().all(|&ns| ns > 0.0), "{latency}");
    assert!(results["time_slice_us"].as_f64() > Some(100.0));
    let targets = results["targets"].as_array().unwrap();
    let reached = |name: &str| {
        let found = targets.iter().find(|target| target["target"].as_str().unwrap().starts_with(name));
        found.unwrap_or_else(|| panic!("no target {name}"))["reached"].as_f64()
    };
    assert!(reached("workers-2x over quiet, apply_then-16") > Some(0.0));
    assert!(reached("std-threads: trustees-2 over std-mpsc") > Some(0.0));
    assert!(reached("real-time over quiet, apply").is_some() != skipped.contains_key("real-time"));
    assert!(reached("an idle pool, percent of one core").is_some());
    assert_eq!(reached("noise: the default over the best fixed spin"), None, "no fixed spin was measured");
    let few = ["busy", "--smoke", "--conditions", "noise", "--workloads", "apply_then-1", "--contenders", "default"];
    assert!(fail(&[&few[..], &["--strict"]].concat()).contains("were not measured"));
    assert!(
        fail(&["busy", "--smoke", "--conditions", "noise", "--workloads", "trustees-1"]).contains("nothing is left")
    );
    assert!(fail(&["busy", "--conditions", "loud"]).contains("hog-pinned"));
    assert!(fail(&["busy", "--millis", "1"]).contains("5 to 60000"));
}

#[test]
fn kv_tables() {
    let folder = tempfile::tempdir().unwrap();
    let (stdout, file, drawn) = measure(folder.path(), &["kv", "--tables", "--dist", "zipf", "--mix", "50"]);
    let tables = file["results"]["tables"].as_array().unwrap();
    let others = ["mutex-std", "mutex-parking_lot", "rwlock-std", "rwlock-parking_lot", "dashmap", "papaya"];
    let of_trust = OF_TRUST.iter().filter(|contender| contender.starts_with("apply_then"));
    for contender in others.iter().chain(of_trust) {
        assert!(stdout.contains(contender), "{contender} is not in the table");
        let own = tables.iter().filter(|series| series["contender"] == *contender);
        assert_eq!(own.inspect(|series| assert_samples(series, 2)).count(), 2, "{contender}");
    }
    assert_eq!(drawn, 1, "a picture for each distribution and mix");
    let (_, _, drawn) = measure(
        folder.path(),
        &["kv", "--tables", "--dist", "zipf", "--mix", "0,100", "--only", "papaya", "--rounds", "1"],
    );
    assert_eq!(drawn, 1 + 2 + 2, "two more mixes, and the mixes beside one another for each number of keys");
    assert_eq!(file["results"]["targets"].as_array().unwrap().len(), 2);
    assert!(fail(&["kv", "--tables", "--smoke", "--only", "cuckoo"]).contains("dashmap, papaya"));
    assert!(fail(&["kv", "--tables", "--smoke", "--mix", "A"]).contains("writes in a hundred"));
    assert!(fail(&["kv", "--tables", "--smoke", "--strict", "--only", "papaya"]).contains("were not measured"));
}

#[test]
fn kv_servers() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("kv.json");
    let arguments = ["kv", "--smoke", "--dist", "zipf", "--mix", "50,D,F", "--json", json.to_str().unwrap()];
    let stdout = succeed(&arguments);
    let file: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let servers = &file["results"]["servers"];
    let series = servers["series"].as_array().unwrap();
    let of_trust = ["kv", "kv-dedicated", "dashmap", "papaya", "mutex", "rwlock"];
    for server in of_trust {
        // Two numbers of keys, three mixes.
        assert_eq!(series.iter().filter(|series| series["server"] == server).count(), 6, "{server}");
    }
    for series in series {
        assert_eq!(series["samples"].as_array().unwrap().len(), 2);
        let us = |name: &str| series[name].as_f64().unwrap();
        assert!(us("median_kops") > 0.0 && us("p50_us") <= us("p99_us") && us("p99_us") <= us("p999_us"), "{series}");
    }
    // A server that cannot be had is named, and does not count as measured.
    for (skipped, why) in servers["skipped"].as_object().unwrap() {
        assert!(stdout.contains(&format!("SKIPPED: {skipped}: {}", why.as_str().unwrap())));
    }
    assert_eq!(file["results"]["targets"].as_array().unwrap().len(), 4);
    let mut without = Command::new(env!("CARGO_BIN_EXE_gossamer-bench"));
    let output = without.args(["kv", "--smoke", "--only", "memcached"]).env("PATH", folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("SKIPPED: memcached: there is no `memcached`"), "{said}");
    assert!(fail(&["kv", "--smoke", "--only", "redis"]).contains("memcached"));
    assert!(fail(&["kv", "--smoke", "--mix", "E"]).contains("A, B, C, D, F"));
    assert!(fail(&["kv", "--smoke", "--value-bytes", "15"]).contains("--value-bytes 15"));
    assert!(fail(&["kv", "--smoke", "--address", "127.0.0.1:1"]).contains("there is no server at 127.0.0.1:1"));
}

#[test]
fn memcached() {
    let folder = tempfile::tempdir().unwrap();
    let built = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/memcached");
    let json = folder.path().join("memcached.json");
    let stdout = succeed(&["memcached", "--smoke", "--folder", built, "--json", json.to_str().unwrap()]);
    let file: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(file["results"]["targets"].as_array().unwrap().len(), 5);
    if file["results"]["skipped"].as_object().unwrap().is_empty() {
        // Three builds, two distributions.
        assert_eq!(file["results"]["series"].as_array().unwrap().len(), 6, "{stdout}");
        succeed(&["memcached", "--smoke", "--folder", built, "--soak", "20000"]);
    } else {
        println!("{stdout}");
    }
    // A contender that cannot be had is named, and does not count as measured.
    let nowhere = folder.path().to_str().unwrap();
    let said = succeed(&["memcached", "--smoke", "--folder", nowhere]);
    assert!(said.contains("SKIPPED: ") && said.contains("examples/memcached/build makes it"), "{said}");
    assert!(fail(&["memcached", "--smoke", "--strict", "--folder", nowhere]).contains("were not measured"));
    assert!(fail(&["memcached", "--writes", "101"]).contains("0 to 100"));
}

#[test]
fn wrong_options_say_what_is_right() {
    assert!(fail(&["fetch-add", "--smoke", "--only", "mutex"]).contains("std-mutex, parking_lot"));
    assert!(fail(&["fetch-add", "--smoke", "--batch", "0"]).contains("1 to 256"));
    assert!(fail(&["fetch-add", "--smoke", "--objects", "0"]).contains("--objects 0"));
    assert!(fail(&["fetch-add", "--smoke", "--threads", "2", "--dedicated", "2"]).contains("no thread is left"));
    assert!(fail(&["latency", "--smoke", "--series", "64"]).contains("OBJECTS:DIST"));
    assert!(fail(&["latency", "--smoke", "--load", "0"]).contains("--load"));
    assert!(fail(&["plot", "--json", "no such file", "--out", "."]).contains("cannot be read"));
}

#[test]
fn heap() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("results.json");
    let stdout = succeed(&["heap", "--smoke", "--json", json.to_str().unwrap()]);
    let file: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let series = file["results"]["series"].as_array().unwrap();
    let is_there = |work: &str, contender: &str| {
        series.iter().any(|series| series["work"] == work && series["contender"] == contender)
    };
    // Six of one process, ten over two, five of each of four programs; each foreign one where it can be had, else the
    // reason.
    let foreign = [
        ("64 B of the other process, MPI_Get", "mpi", &["mpi"][..], 1),
        ("64 KiB handed over", "iceoryx2", &["iceoryx2"], 1),
        ("social", "tonic", &["tonic"], 1),
        ("dataframe", "polars", &["polars, memory", "polars, stream"], 2),
        // With them our two: nobody else multiplies by that library.
        ("gemm by OpenBLAS", "scalapack", &["scalapack, 64", "scalapack, 256", "scalapack, 1536", "2 x 1, shm"], 5),
    ];
    let mut wanted = 6 + 10 + 4 * 5;
    for (work, contender, ways, count) in foreign {
        let is_skipped = file["results"]["skipped"][contender].is_string();
        for way in ways {
            assert!(is_there(work, way) != is_skipped, "{contender}, {way}: {stdout}");
        }
        wanted += if is_skipped { 0 } else { count };
    }
    assert_eq!(series.len(), wanted, "{stdout}");
    assert!(series.iter().all(|series| series["median_ns"].as_f64().unwrap() > 0.0), "{stdout}");
    assert_eq!(file["results"]["targets"].as_array().unwrap().len(), 22);
    assert!(fail(&["heap", "--objects", "3"]).contains("power of two"));
}

#[test]
fn operations() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("results.json");
    let stdout = succeed(&["operations", "--smoke", "--json", json.to_str().unwrap()]);
    let file: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let series = file["results"]["series"].as_array().unwrap();
    // Targets that need no other program: echo, three rates, the metrics.
    assert!(series.len() >= 5, "{stdout}");
    assert!(series.iter().all(|series| series["median"].as_f64().unwrap() > 0.0), "{stdout}");
    assert_eq!(file["results"]["targets"].as_array().unwrap().len(), 16, "{stdout}");
}

#[test]
fn transfers() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("results.json");
    let stdout = succeed(&["transfers", "--smoke", "--accounts", "9", "--json", json.to_str().unwrap()]);
    let file: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let series = file["results"]["series"].as_array().unwrap();
    assert_eq!(series.len(), 10);
    assert!(series.iter().all(|series| series["median_mops"].as_f64().unwrap() > 0.0), "{stdout}");
    assert_eq!(file["results"]["targets"].as_array().unwrap().len(), 3);
    assert!(fail(&["transfers", "--accounts", "8"]).contains("at least 9"));
}

#[test]
fn async_programs() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("results.json");
    let stdout = succeed(&["async", "--smoke", "--json", json.to_str().unwrap()]);
    let file: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let series = file["results"]["series"].as_array().unwrap();
    assert_eq!(series.len(), 8);
    assert!(series.iter().all(|series| series["median_mops"].as_f64().unwrap() > 0.0), "{stdout}");
    assert_eq!(file["results"]["targets"].as_array().unwrap().len(), 3);
    assert!(fail(&["async", "--smoke", "--tasks", "0"]).contains("at least one"));
}
