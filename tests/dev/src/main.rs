//! `cargo dev <tier>`: the one way to run any check of this project; CI runs the same.
//!
//! Here: the command line, and the order in which `ci` runs the tiers. Not here: the work of a tier (`aarch64`,
//! `basic`, `calls`, `clients`, `compare`, `deb`, `durable`, `loom`, `fallback`, `fuzz`, `mutants`, `publish`,
//! `sanitize`, `starters`, `timed`, `rdma`, `book`, `house`, `imports`, `install`, `programs`, `view`), how a
//! program is run (`command`), how libtest's output is counted (`count`), tests that a tier leaves out
//! (`left_out`), the lanes beside the tiers (`beside`), how verdicts are reported (`tier`).
//!
//! Invariant: a tier ends as passed, failed or SKIPPED with its reason, and only the first counts as
//! passed; with `--require` a skipped tier is a failed one.

mod aarch64;
mod basic;
mod beside;
mod book;
mod calls;
mod clients;
mod command;
mod compare;
mod count;
mod deb;
mod durable;
mod fallback;
mod fuzz;
mod hosts;
mod house;
mod imports;
mod install;
mod left_out;
mod loom;
mod mutants;
mod programs;
mod publish;
mod rdma;
mod sanitize;
mod starters;
mod tier;
mod timed;
mod tools;
mod view;

use beside::Beside;
use book::BenchBook;
use clap::{Parser, Subcommand};
use command::Context;
use deb::Deb;
use durable::Torture;
use hosts::Rack;
use install::Install;
use mutants::Mutants;
use publish::Publish;
use std::path::PathBuf;
use std::process::ExitCode;
use tier::{Report, Verdict};

/// Runs the checks of this project, each by name, or all of them as CI does.
#[derive(Parser)]
#[command(name = "cargo dev", bin_name = "cargo dev")]
struct Cli {
    /// Treats a tier that cannot run here as failed.
    #[arg(long, global = true)]
    require: bool,
    /// Seconds that one command may take where no terminal is attached
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = command::LIMIT_S)]
    limit: u64,
    /// Writes how it ended to this file, as JSON
    #[arg(long, global = true, value_name = "FILE")]
    verdict: Option<PathBuf>,
    #[command(subcommand)]
    what: What,
}

/// A tier.
#[derive(Subcommand, Clone, PartialEq, Eq, Debug)]
enum What {
    /// Every tier that CI runs, in order, with a table at the end; a failing tier does not stop the rest
    Ci,
    /// Formatting, house rules, imports, lints, unit tests, documentation tests, and the suite on few racks: minutes,
    /// before a commit
    Quick,
    /// Formatting: cargo fmt --check
    Fmt,
    /// Clippy over all targets of the workspace, then the documentation; warnings are errors
    Lint,
    /// Unit, integration, compile-fail and documentation tests, and the benchmarks at their smallest size
    Test,
    /// Loom models of all packages that have some (LOOM_MAX_PREEMPTIONS, default 3)
    Loom,
    /// `trust` without the auto trait (`Send + 'static` only), and `gossamer` refusing that build
    Fallback(Build),
    /// AddressSanitizer over the tests of `trust`
    Asan(Build),
    /// The tests of `trust` and `comm`, and the suite on few racks, built for aarch64 and run by qemu (rustup's target,
    /// Debian's gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user; no root)
    Aarch64,
    /// The verbs fabric in virtual machines with soft-RoCE devices (no RDMA card, no root needed)
    Rdma {
        /// One part alone
        #[arg(value_enum)]
        only: Option<rdma::Part>,
    },
    /// Miri over the parts of `trust`, of durable memory and of the heap that it can run
    Miri,
    /// The tests named `timed_…`, which judge times: one at a time; the machine should have nothing else to do
    Timed,
    /// Programs on a rack of hosts, which are network namespaces (root, iproute2, nftables; GOSSAMER_KILLS,
    /// GOSSAMER_SEED)
    Rack(Rack),
    /// Programs under Slurm, mpirun, hydra, and in containers as a Kubernetes Job has them (each SKIPPED where it
    /// cannot be had)
    Starters,
    /// The tests of other people's clients of memcached, against `kv` (network for the first time)
    Clients,
    /// The view of a program: scraped by Prometheus, drawn by Chromium (Debian's chromium, prometheus; network for the
    /// first time)
    View,
    /// Programs of Debian and of public suites, unchanged, over several machines beside a plain run: a table of right,
    /// refused, wrong, hung and of times (those that are installed or built; an hour with all of them)
    Programs(programs::Table),
    /// Generated threaded C programs over several machines, each beside a plain run (200; before a release 1,000)
    ComparePrograms(compare::Seeds),
    /// The benchmark book: measures at full size (over an hour), draws, and writes docs/benchmarks.md
    BenchBook(BenchBook),
    /// The stress tests in release mode (STRESS_SEED, STRESS_SECONDS for each test; default: clock, 60)
    Stress,
    /// A program with a durable trust, killed again and again (DURABLE_KILLS, default 200; DURABLE_SEED)
    Durable(Torture),
    /// The fuzzer over code that takes bytes from others (cargo-fuzz; FUZZ_SECONDS for each target; default: 60)
    Fuzz,
    /// Single-line changes of the core that no test notices (cargo-mutants; hours; before a release)
    Mutants(Mutants),
    /// House rules that no lint has: prose, Release beside Acquire, file sizes, opening lines, unfinished marks,
    /// documents
    Tidy,
    /// Imports of `trust`: folders import only as docs/ARCHITECTURE.md says, and only downwards
    Imports,
    /// Packages for the registry: manifests, contents, the build of each package, programs that depend on them
    Publish(Publish),
    /// The Debian package of daemon and launcher: built, installed, removed (cargo-deb, dpkg, root)
    Deb(Deb),
    /// Writes the table of refused calls into docs/region.md, from the code's own
    Calls,
    /// Lines of code, comments and tests of each file
    Size,
    /// The C API: header, libraries and pkg-config file
    Install(Install),
    /// Adds parts for the tiers to the toolchain (rustfmt, clippy, the target for aarch64; miri where a nightly is),
    /// cargo-mutants and cargo-deb
    InstallTools,
}

/// Selection from a tier that has a build of its own.
#[derive(clap::Args, Clone, Copy, PartialEq, Eq, Debug)]
struct Build {
    /// Builds the tests only: the tier counts as skipped
    #[arg(long)]
    no_run: bool,
}

/// The whole tier.
const RUN: Build = Build { no_run: false };

/// Tiers that `ci` runs beside the others, in this order: see `beside`.
const BESIDE: [What; 4] =
    [What::Fallback(Build { no_run: true }), What::Asan(Build { no_run: true }), What::Loom, What::Miri];

/// The tier that it runs beside the tests and later tiers: machines of their own, with clocks that bear to be slow.
const BESIDE_TESTS: [What; 1] = [What::Rdma { only: None }];

/// Tiers that it runs beside the tests as well, before that one: they mostly wait, and judge no time (`rack` leaves
/// out the tests that do); and tests that run as they are, once more in other builds.
const WAITING: [What; 5] = [
    What::Starters,
    What::Rack(Rack { untimed: true }),
    What::Durable(Torture { quick: true }),
    What::Fallback(RUN),
    What::Asan(RUN),
];

/// The tiers of `ci`: the quick ones first, those that run beside them where their output is shown, and at last, when
/// these are over, the tests that judge times.
const CI: [What; 17] = [
    What::Fmt,
    What::Tidy,
    What::Imports,
    What::Publish(Publish { contents: true }),
    What::Lint,
    What::Test,
    What::Durable(Torture { quick: true }),
    What::Rack(Rack { untimed: true }),
    What::Starters,
    What::Clients,
    What::View,
    What::Rdma { only: None },
    What::Fallback(RUN),
    What::Asan(RUN),
    What::Loom,
    What::Miri,
    What::Timed,
];

/// The tiers of `quick`, before its tests.
const QUICK: [What; 4] = [What::Fmt, What::Tidy, What::Imports, What::Lint];

impl What {
    /// The name typed on the command line.
    fn name(&self) -> &'static str {
        match self {
            What::Ci => "ci",
            What::Quick => "quick",
            What::Fmt => "fmt",
            What::Lint => "lint",
            What::Test => "test",
            What::Loom => "loom",
            What::Fallback(_) => "fallback",
            What::Asan(_) => "asan",
            What::Aarch64 => "aarch64",
            What::Rdma { .. } => "rdma",
            What::Miri => "miri",
            What::Timed => "timed",
            What::Rack(_) => "rack",
            What::Starters => "starters",
            What::Clients => "clients",
            What::View => "view",
            What::Programs(_) => "programs",
            What::ComparePrograms(_) => "compare-programs",
            What::BenchBook(_) => "bench-book",
            What::Stress => "stress",
            What::Durable(_) => "durable",
            What::Fuzz => "fuzz",
            What::Mutants(_) => "mutants",
            What::Tidy => "tidy",
            What::Imports => "imports",
            What::Publish(_) => "publish",
            What::Deb(_) => "deb",
            What::Calls => "calls",
            What::Size => "size",
            What::Install(_) => "install",
            What::InstallTools => "install-tools",
        }
    }

    /// The words after the name.
    fn arguments(&self) -> &'static [&'static str] {
        match self {
            What::Fallback(Build { no_run: true }) | What::Asan(Build { no_run: true }) => &["--no-run"],
            What::Publish(Publish { contents: true }) => &["--contents"],
            What::Rack(Rack { untimed: true }) => &["--untimed"],
            What::Durable(Torture { quick: true }) => &["--quick"],
            _ => &[],
        }
    }

    /// Runs one tier. `Ci` and `Quick` are no tiers: `main` runs theirs one by one.
    fn run(&self, context: &Context) -> anyhow::Result<Verdict> {
        match self {
            What::Ci | What::Quick => anyhow::bail!("{} is a list of tiers", self.name()),
            What::Fmt => basic::fmt(context),
            What::Lint => basic::lint(context),
            What::Test => basic::test(context),
            What::Rack(which) => hosts::rack(context, *which),
            What::Starters => starters::check(context),
            What::Clients => clients::check(context),
            What::View => view::check(context),
            What::Programs(table) => programs::check(context, table),
            What::ComparePrograms(seeds) => compare::programs(context, seeds),
            What::Loom => loom::models(context),
            What::Stress => loom::stress(context),
            What::Durable(torture) => durable::torture(context, torture),
            What::Fallback(build) => fallback::check(context, build.no_run),
            What::Asan(build) => sanitize::asan(context, build.no_run),
            What::Aarch64 => aarch64::check(context),
            What::Rdma { only } => rdma::check(context, *only),
            What::Miri => sanitize::miri(context),
            What::Timed => timed::check(context),
            What::BenchBook(options) => book::make(context, options),
            What::Fuzz => fuzz::targets(context),
            What::Mutants(options) => mutants::check(context, options),
            What::Tidy => house::check(context),
            What::Imports => imports::check(context),
            What::Publish(publish) => publish::check(context, *publish),
            What::Deb(deb) => deb::check(context, *deb),
            What::Calls => calls::write(context),
            What::Size => house::size(context),
            What::Install(what) => install::install(context, what),
            What::InstallTools => tools::install(context),
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let context = match Context::new(cli.limit) {
        Ok(context) => context,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::from(2);
        }
    };
    let mut report = Report::new(cli.require);
    match &cli.what {
        What::Ci => {
            if let Err(error) = ci(&context, &mut report, cli.limit) {
                eprintln!("error: {error:#}");
                return ExitCode::from(2);
            }
        }
        What::Quick => {
            QUICK.into_iter().for_each(|tier| report.run(tier.name(), || tier.run(&context)));
            report.run("test", || basic::quick_test(&context));
        }
        one => report.run(one.name(), || one.run(&context)),
    }
    print!("{}", report.summary());
    let kept = cli.verdict.map_or(Ok(()), |file| report.keep(&file));
    if let Err(error) = &kept {
        eprintln!("error: {error:#}");
    }
    if report.succeeded() && kept.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs all tiers.
fn ci(context: &Context, report: &mut Report, limit_s: u64) -> anyhow::Result<()> {
    let mut lanes = vec![Beside::start(context, &BESIDE, beside::LAST, limit_s)?];
    for what in CI {
        if what == What::Test {
            // By itself, and first: a build keeps all others from building in the same folder.
            report.run("build", || basic::build(context));
            lanes.push(Beside::start(context, &BESIDE_TESTS, beside::LATER, limit_s)?);
            lanes.push(Beside::start(context, &WAITING, beside::SOON, limit_s)?);
        }
        // The later lane first: the one before it has built for it.
        report.run(what.name(), || match lanes.iter().rev().find_map(|lane| lane.wait(&what)) {
            Some((true, done)) => {
                let done = done?;
                print!("{}", done.said);
                println!("beside the other tiers, in {:.1} s", done.taken.as_secs_f64());
                Ok(done.verdict)
            }
            Some((false, built)) => {
                match built {
                    Ok(done) => println!("built beside the other tiers, in {:.1} s", done.taken.as_secs_f64()),
                    Err(error) => println!("not built ahead: {error:#}"),
                }
                // Where that failed, it is tried again, and shown.
                what.run(context)
            }
            None => what.run(context),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        for command in Cli::command().get_subcommands() {
            let cli = Cli::try_parse_from(["dev", command.get_name()]).expect("a subcommand");
            assert_eq!(cli.what.name(), command.get_name());
        }
    }

    #[test]
    fn what_is_done_beside_the_tiers_is_typed_as_it_is_meant() {
        for what in BESIDE.into_iter().chain(BESIDE_TESTS).chain(WAITING) {
            let words = ["dev", what.name()].into_iter().chain(what.arguments().iter().copied());
            assert_eq!(Cli::try_parse_from(words).expect("parses").what, what);
            assert!(CI.iter().any(|tier| tier.name() == what.name()));
        }
    }

    #[test]
    fn require_is_accepted_after_the_subcommand() {
        assert!(Cli::try_parse_from(["dev", "asan", "--require"]).expect("parses").require);
        assert!(!Cli::try_parse_from(["dev", "asan"]).expect("parses").require);
    }
}
