//! The view of running programs, as others see it: Prometheus scrapes it, promtool and PyPI's parser of OpenMetrics
//! accept it, Chromium draws it, `gossamer-launch top` names a stuck worker and the cause, traces are read
//! (`view/trace.rs`), and a request costs the same instructions with and without a watcher (`view/instructions.rs`).
//!
//! Here: the programs and the looks. Not here: authorization and limits (unit tests of `gossamer`), ways over daemons
//! (tests of `gossamer-daemon`).
//!
//! Invariant: a program that is missing on this machine is SKIPPED with the reason, and so is the tier then.
//! Screenshots and output stay in `target/view`.

mod instructions;
mod record;
mod trace;

use crate::command::Context;
use crate::tier::{State, Verdict};
use anyhow::{Context as _, bail, ensure};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit of everything that is waited for.
const LIMIT: Duration = limits::HANG;
/// Seconds that programs run: longer than they are looked at.
const RUN_S: &str = "1800";
/// Time in which `top` has to name a stuck worker.
const STUCK_LIMIT: Duration = Duration::from_secs(2);
/// A name that would be an element, were it not taken for text.
const HOSTILE: &str = "<img src=x onerror=alert(1)>";

/// A process that is ended with its children when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The launcher ends its machines at SIGTERM, and when it is gone they end too.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs all of it.
pub fn check(context: &Context) -> anyhow::Result<Verdict> {
    let needed =
        [("chromium", "chromium"), ("promtool", "prometheus"), ("prometheus", "prometheus"), ("valgrind", "valgrind")];
    for (program, package) in needed {
        if !context.command(program, &["--version"]).capture().is_ok_and(|done| done.success) {
            return Ok(Verdict::skipped(format!("no {program}: on Debian, apt-get install {package}")));
        }
    }
    let folder = context.target.join("view");
    fs::create_dir_all(&folder)?;
    let python = folder.join("venv/bin/python");
    let parser = "[ -x venv/bin/python ] || python3 -m venv venv && venv/bin/python -c 'import prometheus_client' \
                  2>/dev/null || venv/bin/pip install -q prometheus-client==0.23.1";
    let prepared = Command::new("sh").args(["-c", parser]).current_dir(&folder).status()?;
    if !prepared.success() || !python.exists() {
        return Ok(Verdict::skipped(
            "no Python with venv and pip, or no package index: on Debian, apt-get install python3-venv",
        ));
    }
    let built = crate::basic::programs(context)?;
    if built.state != State::Passed {
        return Ok(built);
    }
    let all = All { folder, programs: context.target.join("debug") };
    instructions::are_the_same(&all.programs, &all.folder)?;
    all.stuck_workers_are_named()?;
    all.metrics(&python)?;
    all.pictures()?;
    Ok(match all.trace(&python)? {
        None => Verdict::passed(),
        Some(why) => Verdict::skipped(format!("Perfetto's importer alone: {why}; all else has passed")),
    })
}

struct All {
    folder: PathBuf,
    programs: PathBuf,
}

impl All {
    fn launcher(&self) -> Command {
        let mut command = Command::new(self.programs.join("gossamer-launch"));
        command.stdin(Stdio::null());
        command
    }

    /// Starts this, and waits until it says where its view is.
    fn serve(&self, mut command: Command) -> anyhow::Result<(Running, String)> {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let said = child.stderr.take().context("it was piped")?;
        let running = Running(child);
        let mut lines = BufReader::new(said).lines();
        for line in lines.by_ref() {
            let line = line?;
            if let Some((_, url)) = line.split_once("view at ") {
                let url = url.to_owned();
                std::thread::spawn(move || lines.for_each(drop)); // it must not wait for its reader
                return Ok((running, url));
            }
            println!("{line}");
        }
        bail!("it ended without saying where its view is")
    }

    fn program(
        &self,
        machines: &str,
        threads: &str,
        program: &Path,
        more: &[&str],
    ) -> anyhow::Result<(Running, String)> {
        let mut command = self.launcher();
        command.args(["run", "--local", machines, "--threads", threads, "--view"]).arg(program).arg(RUN_S).args(more);
        self.serve(command)
    }

    /// `top` names a worker in a closure that does not end within two seconds.
    fn stuck_workers_are_named(&self) -> anyhow::Result<()> {
        let (_running, url) = self.program("2", "4", &self.programs.join("watched"), &["stuck"])?;
        let end = Instant::now() + LIMIT;
        loop {
            let start = Instant::now();
            let top = self.launcher().args(["top", "--once", "--json", &url]).output()?;
            let took = start.elapsed();
            let told: serde_json::Value = serde_json::from_slice(&top.stdout).unwrap_or_default();
            let alert = told["alerts"].as_array().and_then(|alerts| alerts.first()?.as_str().map(str::to_owned));
            match alert {
                Some(alert) if alert.starts_with("m1w1 on ") => {
                    println!("top, after {took:.1?}: {alert}");
                    // On a machine that is busy, the program may take long to start: the quickest time counts.
                    if took >= STUCK_LIMIT && Instant::now() < end {
                        continue;
                    }
                    ensure!(took < STUCK_LIMIT, "it took {took:?}");
                    let is_named = alert.contains("the closure `watched::gsm_main::{{closure}}` on a `u64` keeps it");
                    ensure!(is_named, "the closure is not named");
                    return Ok(());
                }
                // It has not got there yet.
                _ if Instant::now() < end => {}
                other => bail!("top does not name m1w1: {other:?}"),
            }
        }
    }

    /// Both formats are accepted by their makers' tools, and Prometheus finds the values it scrapes.
    fn metrics(&self, python: &Path) -> anyhow::Result<()> {
        let hostile = self.folder.join(HOSTILE);
        fs::copy(self.programs.join("watched"), &hostile)?;
        let (running, url) = self.program("4", "16", &hostile, &[])?;
        let until = Instant::now() + LIMIT;
        while !get(&url, "metrics", "text/plain").is_ok_and(|text| text.contains("worker=\"3\"")) {
            ensure!(Instant::now() < until, "no metrics come");
            std::thread::sleep(Duration::from_millis(100));
        }
        let text = get(&url, "metrics", "text/plain;version=0.0.4")?;
        through(Command::new("promtool").args(["check", "metrics"]), &text).context("promtool")?;
        let open = get(&url, "metrics", "application/openmetrics-text;version=1.0.0")?;
        let parse = "import sys; from prometheus_client.openmetrics.parser import text_string_to_metric_families as \
                     parse\nfamilies = list(parse(sys.stdin.read())); assert len(families) > 20, families";
        through(Command::new(python).args(["-c", parse]), &open).context("prometheus_client")?;
        let of_worker =
            text.lines().filter(|line| line.contains("machine=\"0\"") && line.contains("worker=\"0\"")).count();
        ensure!((20..=40).contains(&of_worker), "{of_worker} series a worker");
        self.prometheus(&url)?;

        // A record of the view, for the pictures.
        let mut lines = String::new();
        for _ in 0..4 {
            lines += &get(&url, "sample.json", "*/*")?;
            lines += "\n";
            std::thread::sleep(Duration::from_millis(600));
        }
        fs::write(self.folder.join("16.json"), lines)?;
        drop(running);
        Ok(())
    }

    fn prometheus(&self, url: &str) -> anyhow::Result<()> {
        let (host, token) = parts(url)?;
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n  - job_name: gossamer\n    \
             authorization: {{credentials: {token}}}\n    static_configs: [{{targets: ['{host}']}}]\n"
        );
        let file = self.folder.join("prometheus.yml");
        fs::write(&file, config)?;
        let data = self.folder.join(format!("prometheus-{}", std::process::id()));
        // The port is free now, and another program hardly binds it before Prometheus does.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let log = fs::File::create(self.folder.join("prometheus.log"))?;
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let running = Running(child);
        let end = Instant::now() + LIMIT;
        let query = "api/v1/query?query=sum(gossamer_requests_served_total)";
        let found = loop {
            let told = get(&format!("http://127.0.0.1:{port}/"), query, "*/*").unwrap_or_default();
            let told: serde_json::Value = serde_json::from_str(&told).unwrap_or_default();
            let value = told["data"]["result"][0]["value"][1].as_str().and_then(|text| text.parse::<f64>().ok());
            match value {
                Some(value) if value > 0.0 => break value,
                _ => ensure!(
                    Instant::now() < end,
                    "Prometheus has scraped nothing: {}",
                    self.folder.join("prometheus.log").display()
                ),
            }
            std::thread::sleep(Duration::from_millis(200));
        };
        println!("Prometheus has scraped {found} requests");
        drop(running);
        let _ = fs::remove_dir_all(data);
        Ok(())
    }

    /// The page at 2, 16 and 1,024 workers, with no word on the console; a hostile name is text.
    fn pictures(&self) -> anyhow::Result<()> {
        fs::write(self.folder.join("2.json"), record::of(2, 1, None))?;
        fs::write(self.folder.join("1024.json"), record::of(16, 64, Some((11, 17))))?;
        for (name, size, is_dark) in [("2", "1200,640", false), ("16", "1440,760", true), ("1024", "1440,1000", false)]
        {
            let mut command = self.launcher();
            command.args(["view", "--recorded"]).arg(self.folder.join(format!("{name}.json")));
            let mut child = command.stdout(Stdio::piped()).spawn()?;
            let mut line = String::new();
            BufReader::new(child.stdout.take().context("it was piped")?).read_line(&mut line)?;
            let _running = Running(child);
            let url = line.trim().strip_prefix("view at ").context("no address")?.to_owned();
            let picture = self.folder.join(format!("{name}.png"));
            let _ = fs::remove_file(&picture);
            let scheme = if is_dark {
                "--blink-settings=preferredColorScheme=0"
            } else {
                "--blink-settings=preferredColorScheme=1"
            };
            let shot = format!("--screenshot={}", picture.display());
            self.chromium(&[&format!("--window-size={size}"), scheme, &shot, &url])?;
            let bytes = fs::metadata(&picture).context("no picture was taken")?.len();
            ensure!((20_000..400_000).contains(&bytes), "{} has {bytes} bytes", picture.display());
            let page = self.chromium(&["--dump-dom", &url])?;
            let cells = page.matches("class=\"cell\"").count() + page.matches("class=\"cell ").count();
            ensure!(cells == name.parse::<usize>()?, "{cells} cells are drawn for {name} workers");
            ensure!(page.contains("live, each second"), "the page is not live");
            ensure!(!page.contains("<img"), "a name became an element");
            let hostile = HOSTILE.replace('<', "&lt;").replace('>', "&gt;");
            ensure!(name != "16" || page.contains(&hostile), "the program's name is not shown");
            ensure!(
                name != "1024"
                    || page.contains(
                        "m11w17 on node11 has not come to its loop for 1.7 s: the closure \
                                                     `pagerank::add` on a `Vec&lt;f64&gt;` keeps it"
                    ),
                "no alert is \
                                                         shown"
            );
            println!("{name} workers: {} ({bytes} bytes)", picture.display());
        }
        Ok(())
    }

    /// Draws a page; returns the drawn document, if Chromium was asked for that. The console must stay empty.
    fn chromium(&self, args: &[&str]) -> anyhow::Result<String> {
        let profile = self.folder.join("profile");
        let output = Command::new("timeout")
            .args(["60", "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
            .args(["--virtual-time-budget=8000", "--enable-logging=stderr"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .args(args)
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "chromium: {}\n{said}", output.status);
        let console: Vec<&str> = said.lines().filter(|line| line.contains(":CONSOLE")).collect();
        ensure!(console.is_empty(), "the browser's console says: {}", console.join("\n"));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Host and path of an address.
fn parts(url: &str) -> anyhow::Result<(&str, &str)> {
    let rest = url.strip_prefix("http://").and_then(|rest| rest.split_once('/'));
    let (host, path) = rest.with_context(|| format!("{url} is no address"))?;
    Ok((host, path.trim_end_matches('/')))
}

/// The text of the page.
fn get(url: &str, what: &str, accept: &str) -> anyhow::Result<String> {
    let (host, path) = parts(url)?;
    let slash = if path.is_empty() { "" } else { "/" };
    let mut stream = TcpStream::connect(host)?;
    stream.set_read_timeout(Some(LIMIT))?;
    write!(stream, "GET /{path}{slash}{what} HTTP/1.0\r\nHost: {host}\r\nAccept: {accept}\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").context("no answer")?;
    ensure!(head.contains(" 200 "), "{what}: {}", head.lines().next().unwrap_or_default());
    Ok(body.to_owned())
}

/// Has a program read this.
fn through(command: &mut Command, text: &str) -> anyhow::Result<()> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().context("it was piped")?;
    let text = text.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output()?;
    let _ = writer.join();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    ensure!(output.status.success(), "{}: {said}", output.status);
    Ok(())
}
