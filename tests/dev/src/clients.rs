//! Clients of memcached that others wrote, each with its own tests, against `kv`.
//!
//! Here: the origin of each suite, how it is run, and the tests that are left out and why. Not here: `kv`'s own tests
//! (`examples/tests/kv`).
//!
//! Invariant: a suite that cannot be had is SKIPPED with the reason, and the tier with it; one that runs no test has
//! failed.
//!
//! Suites are of fixed versions and kept in `target/clients`. Nothing is installed on the host: the packages that a
//! suite needs are for the administrator (`.ci/run`) to install.

use crate::command::Context;
use crate::count::Counts;
use crate::tier::{State, Verdict};
use anyhow::Context as _;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A client's own tests. Both scripts run in `target/clients`; their output is kept.
struct Suite {
    client: &'static str,
    /// Gets the missing parts. Where it fails its last line says why.
    prepare: &'static str,
    /// Runs all against `127.0.0.1:$PORT`. It may be run again.
    run: &'static str,
    /// The number of tests that ran, by the output.
    count: fn(&str) -> Option<usize>,
}

/// Time limit of a suite, and of fetching it: each takes a few seconds where nothing hangs.
const LIMIT_S: &str = "1200";

/// The Python package installer, in a folder of its own.
const VENV: &str = "[ -x venv/bin/pytest ] || { python3 -m venv venv && venv/bin/pip install -q pytest==8.4.2; } || \
    { echo 'no Python with venv and pip, or no package index: on Debian, apt-get install python3-venv' >&2; exit 1; \
    }\n";

/// A Debian source package's tests, as upstream made them, from wherever this machine has its packages.
const SOURCE: &str = "sources() {
    [ -d \"$2\" ] && return
    mkdir -p lists/partial
    apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' | sort -u \
    >source.list
    here=\"-o Dir::Etc::SourceList=$PWD/source.list -o Dir::Etc::SourceParts=- -o Dir::State::Lists=$PWD/lists\"
    apt-get $here update -qq && apt-get $here source -qq --download-only --tar-only \"$1\" && tar xzf \
    \"$1\"_*.orig.tar.gz
    [ -d \"$2\" ] || { echo \"no source of $1 $2 from Debian\" >&2; exit 1; }
}\n";

const SUITES: [Suite; 5] = [
    Suite {
        client: "libmemcached (C), memccapable",
        prepare: "command -v memccapable || { echo 'on Debian, apt-get install libmemcached-tools' >&2; exit 1; }",
        run: "memccapable -a -h 127.0.0.1 -p $PORT",
        count: |said| Some(said.matches("[pass]").count()),
    },
    Suite {
        client: "pymemcache (Python)",
        prepare: "[ -d pymemcache-4.0.0 ] || { venv/bin/pip install -q pymemcache==4.0.0 && \
            venv/bin/pip download -q --no-deps --no-binary :all: pymemcache==4.0.0 && tar xzf pymemcache-4.0.0.tar.gz; \
            }",
        // Items that live for a second may be gone on a busy machine before they are touched: a failed suite is run
        // once more.
        run: "cd pymemcache-4.0.0/pymemcache/test; run() { ../../../venv/bin/python -m pytest -q -c /dev/null \
              --rootdir . -W ignore test_integration.py --server 127.0.0.1 --port $PORT \"$@\"; }; run || run \
              --last-failed",
        count: pytest,
    },
    Suite {
        client: "pylibmc (Python, by libmemcached)",
        prepare: "[ -d pylibmc-1.6.3 ] || { venv/bin/pip install -q --only-binary :all: pylibmc==1.6.3 && \
            venv/bin/pip download -q --no-deps --no-binary :all: pylibmc==1.6.3 && tar xzf pylibmc-1.6.3.tar.gz; }",
        // Text instead of the binary protocol, which `kv` does not speak; without the two tests of keys that no text
        // can have (memcached refuses them too), and those of a server at port 11211.
        run: "cd pylibmc-1.6.3; sed -i s/binary=True/binary=False/ tests/*.py; MEMCACHED_PORT=$PORT ../venv/bin/python \
              -m pytest -q -c /dev/null --rootdir . -W ignore tests --ignore tests/test_autoconf.py \
            --deselect tests/test_client.py::ClientTests::test_utf8_encoding \
            --deselect tests/test_client.py::ClientTests::test_zerokey",
        count: pytest,
    },
    Suite {
        client: "Cache::Memcached (Perl)",
        prepare: "perl -MCache::Memcached -e1 2>/dev/null || { echo 'on Debian, apt-get install \
                  libcache-memcached-perl' >&2; exit 1; }
            sources libcache-memcached-perl Cache-Memcached-1.30",
        run: "rm -rf perl; cp -r Cache-Memcached-1.30 perl; sed -i s/11211/$PORT/ perl/t/*.t; sed -i \
              s/127.1:11211/127.1:$PORT/ perl/t/*.t; cd perl; prove t",
        count: prove,
    },
    Suite {
        client: "Cache::Memcached::Fast (Perl, a client in C)",
        prepare: "perl -MCache::Memcached::Fast -MTest2::V0 -e1 2>/dev/null || \
            { echo 'on Debian, apt-get install libcache-memcached-fast-perl libtest2-suite-perl' >&2; exit 1; }
            sources libcache-memcached-fast-perl Cache-Memcached-Fast-0.28",
        // Without the tests of its documents and names, of which the last fails with memcached too. noreply.t skips
        // itself, for it takes kv's version for that of an old memcached.
        run: "rm -rf fast; cp -r Cache-Memcached-Fast-0.28 fast; sed -i s/11211/$PORT/ fast/t/*; cd fast; \
            rm t/pod*.t t/tidy.t t/perl-namespace.t; prove -It t",
        count: prove,
    },
];

/// `3 failed, 38 passed in 6.12s`
fn pytest(said: &str) -> Option<usize> {
    let line = said.lines().rev().find(|line| line.contains(" passed"))?;
    line.split(", ").find_map(|part| part.trim().split_once(" passed")?.0.parse().ok())
}

/// `Files=8, Tests=72,  5 wallclock secs …`
fn prove(said: &str) -> Option<usize> {
    let (_, rest) = said.split_once("Tests=")?;
    rest.split(',').next()?.parse().ok()
}

/// `kv`, which ends with its value.
struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn start(context: &Context) -> anyhow::Result<Server> {
        let mut command = Command::new(context.target.join("debug/kv"));
        let command = command.args(["--port", "0", "--threads", "2"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start kv")?;
        let stdout = child.stdout.take().context("kv has no output")?;
        let mut line = String::new();
        let read = BufReader::new(stdout).read_line(&mut line);
        let mut server = Server { child, port: String::new() };
        read.context("kv says nothing")?;
        server.port = line.trim().rsplit(':').next().unwrap_or_default().to_owned();
        anyhow::ensure!(server.port.parse::<u16>().is_ok(), "kv does not say where it listens: {line:?}");
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended by itself where that fails, which its tests have noticed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All suites, one after the other.
pub fn check(context: &Context) -> anyhow::Result<Verdict> {
    let built = crate::basic::programs(context)?;
    if built.state != State::Passed {
        return Ok(built);
    }
    let folder = context.target.join("clients");
    std::fs::create_dir_all(&folder)?;
    let folder = folder.to_string_lossy().into_owned();
    let server = Server::start(context)?;
    let script = |text: &str| {
        let text = format!("cd \"$FOLDER\" || exit\n{text}");
        let command = context.command("timeout", &["--kill-after", "5", LIMIT_S, "sh", "-c", &text]);
        command.env("FOLDER", folder.clone()).env("PORT", server.port.clone()).capture()
    };
    let mut verdict = Verdict::passed();
    for suite in &SUITES {
        let needs = if suite.run.contains("venv/") { VENV } else { SOURCE };
        let prepared = script(&format!("{needs}{}", suite.prepare))?;
        if !prepared.success {
            let why = prepared.stderr.trim().lines().last().unwrap_or("it says nothing").to_owned();
            println!("{}: SKIPPED: {why}", suite.client);
            verdict = verdict.and(Verdict::skipped(format!("{}: {why}", suite.client)));
            continue;
        }
        let done = script(suite.run)?;
        let said = format!("{}{}", done.stdout, done.stderr);
        verdict = verdict.and(match (suite.count)(&said) {
            Some(passed @ 1..) if done.success => {
                println!("{}: {passed} passed", suite.client);
                Verdict::passed().with_tests(Counts { passed, ..Counts::default() })
            }
            _ => {
                println!("{}: FAILED\n{said}", suite.client);
                Verdict::failed(format!("{}: {}", suite.client, done.status))
            }
        });
    }
    Ok(verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_by_what_suites_print() {
        assert_eq!(pytest("x\n3 failed, 38 passed in 13.70s\n"), Some(38));
        assert_eq!(pytest("100 passed, 3 skipped in 4.54s"), Some(100));
        assert_eq!(pytest("no tests ran in 0.01s"), None);
        assert_eq!(prove("t/x.t .. ok\nFiles=8, Tests=72,  5 wallclock secs"), Some(72));
        assert_eq!(prove("Result: NOTESTS"), None);
    }
}
