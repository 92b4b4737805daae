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

/// The command fails and says this.
fn fails(command: &str, wanted: &str) {
    let output = bench(&command.split_whitespace().collect::<Vec<_>>());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(wanted), "{command}: {said}");
}

/// The command, with no other programs in `PATH`, succeeds and says why a contender is skipped.
fn skips(command: &str, why: &str) {
    let mut without = Command::new(env!("CARGO_BIN_EXE_gossamer-bench"));
    let output = without.args(command.split_whitespace()).env("PATH", "/nowhere").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains(&format!("SKIPPED: {why}")), "{command}: {said}");
}

/// A command that was run with `--smoke --json`: its output, its results, and how many pictures they have.
struct Ran {
    stdout: String,
    file: Value,
    drawn: usize,
}

/// Runs a command and checks the fields that every file of results must hold.
fn measure(command: &str) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let [json, pictures] = ["results.json", "pictures"].map(|name| folder.path().join(name));
    let [json_path, pictures_path] = [&json, &pictures].map(|path| path.to_str().expect("a path in UTF-8"));
    let words: Vec<&str> = command.split_whitespace().chain(["--smoke", "--json", json_path]).collect();
    let stdout = succeed(&words);
    let file: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(file["command"], words[0]);
    assert!(file["machine"]["rustc"].as_str().unwrap().starts_with("rustc "));
    for fact in ["cpu", "commit", "profile"] {
        assert!(!file["machine"][fact].as_str().unwrap().is_empty(), "machine has no {fact}");
    }
    succeed(&["plot", "--json", json_path, "--out", pictures_path]);
    let mut drawn = 0;
    for picture in fs::read_dir(&pictures).unwrap() {
        let svg = fs::read_to_string(picture.unwrap().path()).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        drawn += 1;
    }
    Ran { stdout, file, drawn }
}

impl Ran {
    fn list(&self, name: &str) -> &[Value] {
        self.file["results"][name].as_array().unwrap_or_else(|| panic!("no {name}: {}", self.file["results"]))
    }

    /// The series, all with these positive figures and so many samples.
    fn series(&self, figures: &[&str], samples: usize) -> &[Value] {
        let series = self.list("series");
        for one in series {
            assert!(figures.iter().all(|figure| one[figure].as_f64() > Some(0.0)), "{one}");
            assert_eq!(one["samples"].as_array().unwrap().len(), samples, "{one}");
        }
        series
    }

    /// There are so many targets, each printed, and met where its figure says so.
    fn has_targets(&self, count: usize) -> &[Value] {
        let targets = self.list("targets");
        assert_eq!(targets.len(), count, "{}", self.stdout);
        for target in targets {
            assert!(self.stdout.contains(target["target"].as_str().unwrap()), "{target}");
            let (reached, wanted) = (target["reached"].as_f64(), target["wanted"].as_f64());
            let is_met =
                reached.map(|_| if target["bound"] == "at least" { reached >= wanted } else { reached <= wanted });
            assert_eq!(target["met"].as_bool(), is_met, "{target}");
        }
        targets
    }

    fn is_skipped(&self, contender: &str) -> bool {
        let is_in_file = self.file["results"]["skipped"][contender].is_string();
        assert_eq!(is_in_file, self.stdout.contains(&format!("SKIPPED: {contender}: ")), "{contender}");
        is_in_file
    }
}

fn count(series: &[Value], field: &str, value: &str) -> usize {
    series.iter().filter(|one| one[field] == value).count()
}

fn assert_samples(series: &Value, rounds: usize) {
    let samples = series["samples"].as_array().unwrap();
    assert_eq!(samples.len(), rounds, "{series}");
    assert!(samples.iter().all(|sample| sample["mops"].as_f64().unwrap() > 0.0));
    assert_middle(series);
}

fn assert_middle(series: &Value) {
    let (low, middle, high) =
        (series["min_mops"].as_f64(), series["median_mops"].as_f64(), series["max_mops"].as_f64());
    assert!(low <= middle && middle <= high, "{series}");
}

/// Quantiles that grow.
fn assert_quantiles(latency: &Value) {
    let ns = ["p50_ns", "p99_ns", "p999_ns"].map(|name| latency[name].as_f64().unwrap());
    assert!(0.0 < ns[0] && ns.is_sorted(), "{latency}");
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
const OF_TRUST: [&str; 5] = ["apply", "apply-dedicated", "apply_then", "apply_then-dedicated", "apply_then-slice"];

#[test]
fn fetch_add() {
    let ran = measure("fetch-add --threads 2 --objects 1,3,5000");
    let results = ran.file["results"].as_array().unwrap();
    assert_eq!(results.len(), 2 * 3 * (ALWAYS.len() + OF_TRUST.len()));
    assert_eq!(ran.drawn, 2, "one picture for each distribution");
    results.iter().for_each(|series| assert_samples(series, 2));
    for contender in ALWAYS.iter().chain(&OF_TRUST) {
        assert!(ran.stdout.contains(contender), "{contender} is not in the table");
        assert_eq!(count(results, "contender", contender), 6, "{contender}");
    }
    let ran = measure("fetch-add --threads 1,4 --objects 3 --dist zipf --pause");
    let results = ran.file["results"].as_array().unwrap();
    let with_one_thread: Vec<_> = results.iter().filter(|series| series["threads"] == 1).collect();
    assert!(with_one_thread.iter().all(|series| series["contender"] != "channel"));
    assert_eq!(results.len() - with_one_thread.len(), ALWAYS.len() + OF_TRUST.len());
}

#[test]
fn latency() {
    let ran = measure("latency");
    let points = ran.file["results"].as_array().unwrap();
    // Two loads, two series; four locks, and four contenders of trust.
    assert_eq!(points.len(), 2 * 2 * (4 + 4));
    assert_eq!(ran.drawn, 2, "the means of two series");
    for point in points {
        assert_quantiles(&point["latency"]);
        // A sample of a few milliseconds may have none, where the machine is busy.
        let operations = point["samples"].as_array().unwrap().iter().map(|sample| sample["ops"].as_u64().unwrap());
        assert!(operations.sum::<u64>() > 0, "{point}");
    }
}

#[test]
fn targets() {
    let ran = measure("targets");
    assert!(ran.has_targets(12).iter().all(|target| target["reached"].as_f64() > Some(0.0)), "{}", ran.stdout);
    assert!(ran.stdout.contains("ping-pong"));
    ran.list("series").iter().for_each(|series| assert_samples(series, 2));
    assert_eq!(ran.drawn, 3 + 3, "three numbers of objects, three kinds of single requests");
}

#[test]
fn tune() {
    let ran = measure("tune --objects 1,16");
    // A sample of a few milliseconds may have no operation, where the machine is busy.
    assert!(ran.has_targets(7).iter().any(|target| target["reached"].as_f64() > Some(0.0)), "{}", ran.stdout);
    let series = ran.list("series");
    // Two numbers of counters and four other loads; no servers, one that only serves, one that is a client too, with
    // and without polling; tuned; a lock.
    assert_eq!(series.len(), (2 + 4) * (3 * 2 + 1) + 1);
    for series in series {
        assert_eq!(series["samples"].as_array().unwrap().len(), 2, "{series}");
        assert_middle(series);
    }
    assert!(ran.file["results"]["pauses"]["timed"].as_f64() > Some(1.0), "{}", ran.stdout);
    assert_eq!(ran.drawn, 2 + 4);
    fails("tune --smoke --threads 1", "two workers at least");
}

#[test]
fn echo() {
    let ran = measure("echo --only threads,shm,tcp,shm-ways,tcp-ways");
    let series = ran.series(&["median_mops", "memory_mib"], 2);
    assert_eq!(series.len(), 5 * 2 * 2, "five contenders, two sizes, two numbers of outstanding requests");
    series.iter().for_each(assert_quantiles);
    assert_eq!(ran.drawn, 2, "throughput over the size, and the tail over throughput");
    ran.has_targets(8);
    skips("echo --smoke --only mpi", "mpi: there is no `mpirun`");
    fails("echo --smoke --strict --only threads", "were not measured");
    fails("echo --smoke --only pigeons", "threads, shm, tcp");
    fails("echo --smoke --processes 1", "2 to 64");
    fails("echo-rack --bytes 9", "--bytes 9");
}

#[test]
fn sssp() {
    let ran = measure("sssp --workers 1,2 --only threads,shm,tcp,dijkstra");
    let series = ran.series(&["median_mteps", "median_time_s"], 2);
    assert_eq!(series.len(), 2 * (2 + 1 + 1 + 1), "two scales; threads with one and two workers");
    let has_roots = |run: &Value| run.as_array().unwrap().len() == 2;
    assert!(series.iter().all(|one| one["samples"].as_array().unwrap().iter().all(has_roots)));
    assert_eq!(ran.drawn, 1, "traversed edges over the size");
    ran.has_targets(2 * 3 + 1);
    skips("sssp --smoke --only mpi", "mpi: there is no `mpirun`");
    fails("sssp --smoke --strict --only dijkstra", "were not measured");
    fails("sssp --smoke --only bfs", "threads,shm,tcp,mpi,dijkstra");
    fails("sssp --smoke --workers 0", "--workers 0");
}

#[test]
fn array() {
    let own = "vec,memcpy,counted,array,array-views,array-bulk,array-lock,array-threads,array-single,apply_then";
    let ran = measure(&format!("array --only {own}"));
    let series = ran.series(&["median_mops"], 2);
    let in_works = [("hits", 3), ("sum", 2), ("pass", 3), ("zipf", 4), ("uniform", 3), ("sets", 2), ("dense", 3 * 2)];
    for (work, contenders) in
        in_works.into_iter().chain([("ranks", 3), ("labels", 3), ("heat", 3), ("gets", 2), ("puts", 2)])
    {
        assert_eq!(count(series, "work", work), contenders, "{work}: {}", ran.stdout);
    }
    assert_eq!(ran.drawn, 1, "combining and delegating over the density");
    for target in ran.has_targets(20) {
        let of_others = ["mpi", "shmem", "lamellar", "graph", "the others"];
        let is_measured = !of_others.iter().any(|name| target["target"].as_str().unwrap().ends_with(name));
        assert_eq!(target["reached"].as_f64() > Some(0.0), is_measured, "{target}");
    }
    skips("array --smoke --works pass --only mpi,shmem", "mpi: there is no `mpirun`");
    skips("array --smoke --works pass --only mpi,shmem", "shmem: there is no `oshcc`");
    fails("array --smoke --strict --works hits --only vec", "were not measured");
    fails("array --smoke --only slice", "array-views");
    fails("array-run --contender vec --work zipf", "has no part in zipf");
    fails("array-run --contender array --work hits --elements 1000", "power of two");
    fails("array-run --contender array --work pass", "two processes are needed");
}

#[test]
fn durable() {
    let folder = tempfile::tempdir().unwrap();
    let ran = measure(&format!("durable --folder {}", folder.path().display()));
    let series = ran.series(&["median"], 2);
    let others = if cfg!(feature = "stores") { 3 * 4 } else { 0 };
    let pmem = usize::from(!ran.is_skipped("libpmemobj"));
    // Alone, 1,000 a commit, and three numbers of threads.
    let rocks = if ran.is_skipped("rocksdb") { 0 } else { 5 };
    // This and the bare loop, alone and with many outstanding.
    assert_eq!(series.len(), 2 * 2 + others + pmem + rocks, "{}", ran.stdout);
    assert_eq!(ran.list("structures").len(), 2);
    ran.has_targets(12);
    let by_corundum = |basic: &&Value| basic["corundum_ns"].as_f64().is_some();
    let wanted = if ran.is_skipped("corundum") { 0 } else { 8 };
    assert_eq!(ran.list("basics").iter().filter(by_corundum).count(), wanted);
    assert_eq!(ran.list("basics").len(), 8);
    assert_eq!(cfg!(feature = "stores"), !ran.is_skipped("lmdb"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn region() {
    let ran = measure("region --rounds 1");
    let series = ran.series(&["median"], 1);
    let skipped = ran.file["results"]["skipped"].as_object().unwrap();
    assert_eq!(series.len() + skipped.len(), 60, "{}", ran.stdout);
    // Where there can be no regions, or no MPI, threads are left.
    assert!(series.len() >= 15, "{}", ran.stdout);
    ran.has_targets(24);
    fails("region --smoke --only matrices", "matrix: region");
    fails("region-run --work scan --size 1", "needs --fabric");
}

#[test]
fn region_moves() {
    let ran = measure("region-moves --rounds 1");
    let series = ran.series(&["median"], 1);
    let skipped = ran.file["results"]["skipped"].as_object().unwrap();
    assert_eq!(series.len() + skipped.len(), 36, "{}", ran.stdout);
    ran.has_targets(17);
    fails("region-moves --smoke --only stays", "page: shm");
}

#[test]
fn busy() {
    let ran = measure(
        "busy --workloads apply,apply_then-16,tables-zipf,trustees-2 --contenders default,std-mutex,dashmap,std-mpsc",
    );
    let results = &ran.file["results"];
    let skipped = results["skipped"].as_object().unwrap();
    assert_eq!(ran.drawn, 12 - skipped.len(), "a picture a condition");
    assert!(skipped.keys().all(|name| ran.is_skipped(name)));
    assert!(skipped.keys().all(|name| ["half-workers", "quota", "real-time"].contains(&name.as_str())), "{skipped:?}");
    let series = ran.list("series");
    // Two contenders of two workloads and three of the table; plain threads have a workload of two.
    assert_eq!(series.len(), (11 - skipped.len()) * (2 * 2 + 3) + 2);
    for one in series {
        assert_middle(one);
        let samples = one["samples"].as_array().unwrap();
        assert_eq!(samples.len(), 2, "{one}");
        assert_eq!(one["stats_per_second"].get("polls").is_some(), one["contender"] == "default", "{one}");
        assert_eq!(one["latency"].is_null(), one["work"] != "apply" && one["condition"] != "std-threads", "{one}");
    }
    // A run has a few milliseconds: on a loaded machine, beside its own hogs, it may end before its first operation.
    let has_ops = |one: &&Value| one["samples"].as_array().unwrap().iter().any(|sample| sample["ops"] != 0);
    let works = ["apply", "apply_then-16", "tables-zipf", "trustees-2"];
    for work in works {
        assert!(series.iter().filter(|one| one["work"] == work).any(|one| has_ops(&one)), "{work}");
    }
    let of_hog =
        |one: &&Value| one["condition"] == "hog-pinned" && one["work"] == "apply" && one["contender"] == "default";
    let latency = &series.iter().find(of_hog).unwrap()["latency"];
    // On two cores each request is to or from the worker beside the hog; few are timed in so short a run.
    if ran.file["machine"]["cores"] == 2 {
        assert!(latency["others"].is_null(), "{latency}");
    }
    let taken = ["to_taken", "from_taken"].map(|name| latency[name]["p50_ns"].as_f64());
    assert!(taken.iter().flatten().all(|&ns| ns > 0.0), "{latency}");
    assert!(results["time_slice_us"].as_f64() > Some(100.0));
    let reached = |name: &str| {
        let found = ran.list("targets").iter().find(|target| target["target"].as_str().unwrap().starts_with(name));
        found.unwrap_or_else(|| panic!("no target {name}"))["reached"].as_f64()
    };
    for name in ["workers-2x over quiet, apply_then-16", "std-threads: trustees-2 over std-mpsc"] {
        reached(name); // it is there
    }
    assert!(reached("real-time over quiet, apply").is_some() != skipped.contains_key("real-time"));
    assert!(reached("an idle pool, percent of one core").is_some());
    assert_eq!(reached("noise: the default over the best fixed spin"), None, "no fixed spin was measured");
    fails(
        "busy --smoke --conditions noise --workloads apply_then-1 --contenders default --strict",
        "were not measured",
    );
    fails("busy --smoke --conditions noise --workloads trustees-1", "nothing is left");
    fails("busy --conditions loud", "hog-pinned");
    fails("busy --millis 1", "5 to 60000");
}

#[test]
fn kv_tables() {
    let ran = measure("kv --tables --dist zipf --mix 50");
    let tables = ran.list("tables");
    tables.iter().for_each(|series| assert_samples(series, 2));
    for contender in ["mutex-std", "dashmap"].iter().chain(&OF_TRUST[2..4]) {
        assert!(ran.stdout.contains(contender), "{contender} is not in the table");
        assert_eq!(count(tables, "contender", contender), 2, "{contender}");
    }
    let ran = measure("kv --tables --dist zipf --mix 0,100 --only dashmap --rounds 1");
    assert_eq!(ran.drawn, 2, "the mixes beside one another for each number of keys");
    ran.has_targets(2);
    fails("kv --tables --smoke --only cuckoo", "mutex-std, dashmap");
    fails("kv --tables --smoke --mix C", "writes in a hundred");
    fails("kv --tables --smoke --strict --only dashmap", "were not measured");
}

#[test]
fn kv_servers() {
    let ran = measure("kv --dist zipf --mix 50,D");
    let series = ran.file["results"]["servers"]["series"].as_array().unwrap();
    for server in ["kv", "kv-dedicated", "dashmap", "papaya", "mutex", "rwlock"] {
        assert_eq!(count(series, "server", server), 2 * 2, "{server}: two numbers of keys, two mixes");
    }
    for series in series {
        assert_eq!(series["samples"].as_array().unwrap().len(), 2);
        assert_quantiles(&series["latency"]);
        assert!(series["median_kops"].as_f64() > Some(0.0), "{series}");
    }
    ran.is_skipped("memcached");
    ran.has_targets(4);
    skips("kv --smoke --only memcached", "memcached: there is no `memcached`");
    fails("kv --smoke --only redis", "memcached");
    fails("kv --smoke --mix E", "C, D");
}

#[test]
fn memcached() {
    let built = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/memcached");
    let ran = measure(&format!("memcached --folder {built}"));
    ran.has_targets(5);
    if ran.file["results"]["skipped"].as_object().unwrap().is_empty() {
        assert_eq!(ran.list("series").len(), 6, "three builds, two distributions: {}", ran.stdout);
        succeed(&["memcached", "--smoke", "--folder", built, "--soak", "20000"]);
    } else {
        println!("{}", ran.stdout);
    }
    // A contender that cannot be had is named, and does not count as measured.
    skips("memcached --smoke --folder /nowhere", "stock: /nowhere/stock/memcached: there is no such file");
    fails("memcached --smoke --strict --folder /nowhere", "were not measured");
    fails("memcached --writes 101", "0 to 100");
}

#[test]
fn wrong_options_say_what_is_right() {
    fails("fetch-add --smoke --only mutex", "std-mutex, parking_lot");
    fails("fetch-add --smoke --objects 0", "--objects 0");
    fails("latency --smoke --load 0", "--load");
    fails("plot --json nothing --out .", "cannot be read");
    assert!(!Path::new("nothing").exists());
}

#[test]
fn heap() {
    let ran = measure("heap");
    let series = ran.list("series");
    let is_there = |work: &str, contender: &str| {
        series.iter().any(|series| series["group"] == work && series["contender"] == contender)
    };
    // Six of one process, ten over two, seven of jobs, eight of tasks, eight of copies, five of each of four programs;
    // each foreign one where it can be had, else the reason.
    let foreign = [
        ("64 B of the other process, MPI_Get", "mpi", &["mpi"][..], 1),
        ("64 KiB handed over", "iceoryx2", &["iceoryx2"], 1),
        ("social", "tonic", &["tonic"], 1),
        ("dataframe", "polars", &["polars, memory", "polars, stream"], 2),
        // With them our two: nobody else multiplies by that library.
        ("gemm by OpenBLAS", "scalapack", &["scalapack, 64", "scalapack, 256", "scalapack, 1536", "2 x 1, shm"], 5),
    ];
    let mut wanted = 6 + 10 + 7 + 8 + 8 + 4 * 5;
    for (work, contender, ways, count) in foreign {
        let is_skipped = ran.is_skipped(contender);
        for way in ways {
            assert!(is_there(work, way) != is_skipped, "{contender}, {way}: {}", ran.stdout);
        }
        wanted += if is_skipped { 0 } else { count };
    }
    assert_eq!(series.len(), wanted, "{}", ran.stdout);
    assert!(series.iter().all(|series| series["median"].as_f64() > Some(0.0)), "{}", ran.stdout);
    ran.has_targets(30);
}

#[test]
fn racks() {
    let ran = measure("racks");
    assert_eq!(ran.series(&["median"], 1).len(), 5 * 3 * 6, "five traffics, three schemes, six figures");
    let targets = ran.has_targets(5);
    assert_eq!(targets.iter().filter(|target| target["reached"].is_null()).count(), 2, "of racks not simulated here");
}

#[test]
fn operations() {
    let ran = measure("operations");
    // Targets that need no other program: echo, three rates, the metrics.
    assert!(ran.series(&["median"], 2).len() >= 5, "{}", ran.stdout);
    ran.has_targets(16);
}

#[test]
fn losses() {
    let ran = measure("losses");
    // Echo and kv with and without, four works over two fabrics, a socket; Erlang and Redis where they are.
    assert!(ran.series(&["median"], 2).len() >= 13, "{}", ran.stdout);
    ran.has_targets(8);
}

#[test]
fn transfers_and_async_programs() {
    let ran = measure("transfers");
    assert_eq!(ran.series(&["median"], 2).len(), 6);
    ran.has_targets(3);
    fails("transfers --workers 0", "at least one");
    let ran = measure("async");
    assert_eq!(ran.series(&["median"], 2).len(), 2 * 3);
    ran.has_targets(3);
}
