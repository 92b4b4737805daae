//! The programs over arrays and on the heap as machines of a launcher, by the library under `gossamer-launch run
//! --local`. Each checks its own answer, and its status tells. One test in a process of its own: the launcher wants its
//! signals.

use gossamer::bootstrap::FabricChoice;
use gossamer_daemon::launch::{self, LaunchConfig};
use gossamer_daemon::options::RunOptions;

#[test]
fn programs_over_arrays_and_on_the_heap_run_under_the_launcher() {
    let programs: [(&str, &[&str]); 10] = [
        (env!("CARGO_BIN_EXE_histogram"), &[]),
        (env!("CARGO_BIN_EXE_groupby"), &[env!("CARGO_MANIFEST_DIR")]),
        (env!("CARGO_BIN_EXE_pagerank"), &["--scale", "10", "--rounds", "5", "--verify"]),
        (env!("CARGO_BIN_EXE_components"), &["--scale", "10", "--edgefactor", "1", "--verify"]),
        (env!("CARGO_BIN_EXE_array-kv"), &["--keys", "300", "--operations", "4000", "--gets", "0.8", "--verify"]),
        (env!("CARGO_BIN_EXE_heat"), &["--size", "50", "--steps", "10", "--verify"]),
        (env!("CARGO_BIN_EXE_heap-kv"), &["--keys", "300", "--operations", "4000", "--verify"]),
        (env!("CARGO_BIN_EXE_gemm"), &["--size", "64", "--tile", "16", "--verify"]),
        (env!("CARGO_BIN_EXE_dataframe"), &["--rows", "5000", "--chunk", "100", "--verify"]),
        (env!("CARGO_BIN_EXE_social"), &["--users", "50", "--requests", "600", "--verify"]),
    ];
    for (program, args) in programs {
        for (machines, fabric) in [(2, FabricChoice::Tcp), (4, FabricChoice::Auto)] {
            let args = args.iter().map(Into::into).collect();
            let options = RunOptions { fabric: Some(fabric), ..RunOptions::default() };
            let config = LaunchConfig { options, ..LaunchConfig::new(program.into(), args, machines) };
            let ended = launch::run(&config).unwrap();
            assert_eq!(ended.status(), 0, "{program} as {machines}, {fabric:?}: {:?}", ended.messages());
        }
    }
}
