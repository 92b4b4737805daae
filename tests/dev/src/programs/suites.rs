//! The programs of public suites that somebody built outside of this repository, each with one small job.
//!
//! Here: the jobs. Not here: the programs of Debian (`list`), the inputs (`suite_inputs`), how a folder of them is
//! made (docs/region.md).
//!
//! Invariant: a program's name is its file's name in the folder. Phoenix's `-pthread` programs start a thread for each
//! processor of all hosts; all others start as many as they are told.

use super::list::Answer::{ErrorLinesWith, File, LinesWith, LinesWithout, Stdout};
use super::list::{Answer, Program, Source};

const fn built(name: &'static str, command: &'static str, answer: Answer) -> Program {
    Program { name, source: Source::Built, command, prepare: "", stdin: None, beside: &[], answer }
}

/// Words of lines with times of Splash-3: dates, rows of its statistics, progress of threads.
const SPLASH_TIMES: Answer = LinesWithout(&["ime", "TIME", "COMPUTE", "    0  ", "iter_num", "Step", "raction"]);
const NPB_TIMES: Answer = LinesWithout(&["ime in seconds", "Mop/s", "CPU Time", "nitialization time"]);
const GAP_TIMES: Answer = LinesWithout(&["Time", "Relabel"]);
/// With the rows that a thread has, of which there are as many as processors of all hosts.
const PHOENIX_TIMES: Answer = LinesWithout(&["ompleted", "number of processors", "Allocated"]);

/// All programs of suites. The results of Barnes are not printed; those of Radiosity, Volrend, PageRank, fluidanimate
/// and freqmine depend on the order of the threads, so that their sizes or their own verdicts are compared.
pub const SUITES: &[Program] = &[
    built("splash-barnes", "splash-barnes", SPLASH_TIMES).reading("barnes-{n}"),
    built("splash-fmm", "splash-fmm -o", SPLASH_TIMES).reading("fmm-{n}"),
    built("splash-ocean", "splash-ocean -n258 -p{n} -o", SPLASH_TIMES),
    built("splash-ocean-rows", "splash-ocean-rows -n130 -p{n} -o", SPLASH_TIMES),
    built("splash-radiosity", "splash-radiosity -p {n} -batch -ae 10000 -bf 0.05", LinesWith("Number of patches")),
    built("splash-raytrace", "splash-raytrace -p{n} scene.env", File("scene.rl")).beside(&["scene.env", "scene.geo"]),
    built("splash-volrend", "splash-volrend {n} ball 20", LinesWith("bytes")).beside(&["ball.den"]),
    built("splash-water-nsquared", "splash-water-nsquared", SPLASH_TIMES).reading("water-{n}").beside(&["random.in"]),
    built("splash-water-spatial", "splash-water-spatial", SPLASH_TIMES).reading("water-{n}").beside(&["random.in"]),
    built("splash-cholesky", "splash-cholesky -p{n} -t {in}/grid.O", SPLASH_TIMES),
    built("splash-fft", "splash-fft -m16 -p{n} -t -o", SPLASH_TIMES),
    built("splash-lu", "splash-lu -n512 -p{n} -b16 -t", SPLASH_TIMES),
    built("splash-lu-rows", "splash-lu-rows -n512 -p{n} -b16 -t", SPLASH_TIMES),
    built("splash-radix", "splash-radix -p{n} -n1048576 -r1024 -t", SPLASH_TIMES),
    built("npb-bt-s", "npb-bt-s", NPB_TIMES),
    built("npb-cg-s", "npb-cg-s", NPB_TIMES),
    built("npb-cg-w", "npb-cg-w", NPB_TIMES),
    built("npb-ep-s", "npb-ep-s", NPB_TIMES),
    built("npb-ft-s", "npb-ft-s", NPB_TIMES),
    built("npb-ft-w", "npb-ft-w", NPB_TIMES),
    built("npb-is-s", "npb-is-s", NPB_TIMES),
    built("npb-is-w", "npb-is-w", NPB_TIMES),
    built("npb-lu-s", "npb-lu-s", NPB_TIMES),
    built("npb-mg-s", "npb-mg-s", NPB_TIMES),
    built("npb-mg-w", "npb-mg-w", NPB_TIMES),
    built("npb-sp-s", "npb-sp-s", NPB_TIMES),
    built("gap-bc", "gap-bc -g 13 -n 2 -v -a", GAP_TIMES),
    built("gap-bfs", "gap-bfs -g 16 -n 2 -v -a", GAP_TIMES),
    built("gap-cc", "gap-cc -g 16 -n 2 -v", GAP_TIMES),
    built("gap-pr", "gap-pr -g 15 -n 2 -v", LinesWith("Verification: ")),
    built("gap-sssp", "gap-sssp -g 15 -n 2 -v -a", GAP_TIMES),
    built("gap-tc", "gap-tc -g 12 -n 2 -v", GAP_TIMES),
    built("phoenix-histogram", "phoenix-histogram {in}/picture.bmp", PHOENIX_TIMES),
    built("phoenix-kmeans", "phoenix-kmeans -d 3 -c 20 -p 20000 -s 1000", PHOENIX_TIMES),
    built("phoenix-kmeans-pthread", "phoenix-kmeans-pthread -d 3 -c 20 -p 20000 -s 1000", PHOENIX_TIMES),
    built("phoenix-linear_regression", "phoenix-linear_regression {in}/text", PHOENIX_TIMES),
    built("phoenix-linear_regression-pthread", "phoenix-linear_regression-pthread {in}/text", PHOENIX_TIMES),
    built("phoenix-matrix_multiply", "phoenix-matrix_multiply 300 1", PHOENIX_TIMES).beside(MATRICES),
    built("phoenix-matrix_multiply-pthread", "phoenix-matrix_multiply-pthread 300", PHOENIX_TIMES).beside(MATRICES),
    built("phoenix-pca", "phoenix-pca -r 300 -c 200 -s 100", PHOENIX_TIMES),
    built("phoenix-pca-pthread", "phoenix-pca-pthread -r 300 -c 200 -s 100", PHOENIX_TIMES),
    built("phoenix-string_match", "phoenix-string_match {in}/keys", PHOENIX_TIMES),
    built("phoenix-string_match-pthread", "phoenix-string_match-pthread {in}/keys", PHOENIX_TIMES),
    built("phoenix-word_count", "phoenix-word_count {in}/text", PHOENIX_TIMES),
    built("phoenix-word_count-pthread", "phoenix-word_count-pthread {in}/text", PHOENIX_TIMES),
    built("parsec-blackscholes", "parsec-blackscholes {n} {in}/options out", File("out")),
    built("parsec-dedup", "parsec-dedup -c -p -t {n} -i {in}/text -o out", File("out")),
    built("parsec-fluidanimate", "parsec-fluidanimate {n} 20 {in}/drop.fluid out", Stdout),
    built("parsec-freqmine", "parsec-freqmine {in}/baskets 60 out", LinesWith("transaction")),
    built("parsec-streamcluster", "parsec-streamcluster 5 10 16 2048 2048 500 none out {n}", File("out")),
    built("parsec-swaptions", "parsec-swaptions -ns 8 -sm 20000 -nt {n}", ErrorLinesWith("SwaptionPrice")),
];

const MATRICES: &[&str] = &["matrix_file_A.txt", "matrix_file_B.txt"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_the_file() {
        assert!(SUITES.iter().all(|program| program.command.split(' ').next() == Some(program.name)));
    }
}
