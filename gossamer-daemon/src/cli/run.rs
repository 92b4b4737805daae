//! `gossamer-launch run`: on this host with `--local`, else on the hosts of a rack.

use std::ffi::OsString;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use gossamer::view::{self, server::Access};

use super::{complain, console, detach};
use crate::config::RackConfig;
use crate::environment::Environment;
use crate::error::LaunchError;
use crate::launch::{self, LaunchConfig};
use crate::options::{MAX_LOCAL_MACHINES, RunOptions};
use crate::orphans::{self, Spare};
use crate::outcome::{Ended, FAILURE_STATUS, USAGE_STATUS};
use crate::rack::plan::find_program;
use crate::rack::{self, RackError, RackRun};
use crate::region;

#[derive(Debug, Args)]
pub(super) struct Run {
    /// Start N machines (processes) on this host, with no daemon and no rack.yaml
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_LOCAL_MACHINES)))]
    pub(super) local: Option<u16>,

    #[command(flatten)]
    pub(super) options: RunOptions,

    /// With --region: do not run PROGRAM, but list the calls of it and of its libraries that several machines refuse,
    /// or that hold on one machine; status 1 if one is refused wherever it is called, or the program cannot be run so
    #[arg(long, requires = "region")]
    pub(super) check: bool,

    /// The program, a path or a name to be found in PATH, and its arguments, passed on as they are
    #[arg(value_names = ["PROGRAM", "ARGS"], num_args = 1.., required = true, trailing_var_arg = true)]
    pub(super) program: Vec<OsString>,
}

pub(super) const HELP: &str = "\
Examples:
  gossamer-launch run --local 2 ./wordcount docs/
      two machines on this host
  gossamer-launch run --local 4 --threads 8 ./wordcount --top 10 docs/
      four machines with two workers each; options after the program's name are the program's
  gossamer-launch run --local 2 --no-prefix --region auto ./kmeans
      a program with pthreads, as it is, on two machines
  gossamer-launch run --local 2 --no-prefix --region explicit --region-stats ./kmeans
      one that names what its threads share (gossamer_region.h); at the end it tells which pages travelled most
  gossamer-launch run --rack rack.yaml --no-prefix --region auto ./kmeans
      the same on each host of the rack, which are to have the same C library
  gossamer-launch run --region auto --check ./kmeans
      which calls of it several machines refuse; nothing runs
  gossamer-launch run --local 2 --no-prefix ./wordcount docs/ > counts.txt
      output as the program wrote it, line by line
  gossamer-launch run --rack rack.yaml ./wordcount /data/docs
      one machine on each host of the rack, as many workers there as it has cores
  gossamer-launch run uname -r
      any program, on each host
  gossamer-launch run --detach --wait --time-limit 2h ./wordcount /data/docs
      when there is room for it, in the background; `gossamer-launch logs --output -f NUMBER` shows what it writes
  gossamer-launch run --hosts alpha,beta --machines-per-host 2 --threads 16 ./wordcount /data/docs
      two machines on each of two hosts, with four workers each

Hosts:
  Without --local the program runs on the hosts of a rack.yaml (the first of --rack, $GOSSAMER_RACK, ./rack.yaml,
  ~/.config/gossamer/rack.yaml, /etc/gossamer/rack.yaml), each of which runs gossamer-daemon; docs/running-a-rack.md
  says how. Hosts that lack the program get it from this one. It starts in the same working folder as here (or
  --folder), with this environment but for what belongs to this host or session (HOME, USER, SSH_..., and the like);
  --env adds to that and replaces, --clean-env passes on nothing else. Where a host does not answer, nothing is started;
  with --any the program runs on the others, machine 0 on the first of them.

Room:
  A host runs at most limits.programs programs at a time, and refuses more. With --wait the program waits there in a
  queue, and starts when it has room on all its hosts; Ctrl-C leaves the queue.

Streams:
  Lines of stdout go to stdout, lines of stderr to stderr, never mixed within a line (longer than 1 MiB: in pieces of
  that length, each a line), after the machine's name (`m1 | `, or `m1@beta | ` on a rack). With --no-prefix no byte is
  added, also where a machine's output ends within a line. With --local 1 the machine writes to stdout and stderr
  itself. When one of them cannot be written (no space left), the program is ended and the
  cause is reported. Standard input goes to machine 0; the others read an end of file. On a rack it is read ahead of the
  program: in a `while read` loop, say --stdin none, as for srun and ssh -n; then machine 0 reads an end of file, too.

Any program:
  PROGRAM may be any program (`ls`, a script); each machine runs to its own end, whatever becomes of the others. When \
  one
  machine has called gossamer::main, all have to: one that ends without it ends the others, and is named. With \
  --must-join
  it does so even if no other calls it.

End:
  The program ends when the main function of machine 0 has returned. When a machine dies before that, all the others
  are ended within a second, and the machine, its process id and the cause are named. Ctrl-C, SIGTERM, SIGHUP and
  SIGQUIT are passed on to all machines; what is left after 3 seconds, or at a second signal, is killed. The end of
  --time-limit does as SIGTERM does. When gossamer-launch itself is killed, the machines end too. On a rack a host \
  that is
  cut off or hangs counts as dead after timeouts.silence_ms (3 s), here as there.

Exit status:
  of machine 0      the program has finished
  0, or the first   a program that does not call gossamer::main: 0 if all machines exited with 0, else that of the first
  other one         that did not
  of the dead one   a machine exited too early: its status (101 after a panic), or 70 where that is 0;
                    killed by signal S: 128 + S
  128 + S           gossamer-launch was told to end by signal S (130: Ctrl-C)
  124               the time limit was over
  141               nobody reads stdout or stderr any more (`| head`) and the machines ended well or by SIGPIPE: no \
  message
  70                any other failure, of a machine or of gossamer-launch; also where stdout or stderr cannot be written
  127               PROGRAM was not found or cannot be executed
  1                 --check: a call is refused wherever the program makes it, or several machines cannot run it at all
  2                 the command line is wrong";

impl Run {
    pub(super) fn main(self) -> io::Result<ExitCode> {
        let (machines, options) = (self.local.unwrap_or(1), &self.options);
        if let Some(threads) = options.threads.filter(|threads| *threads < u32::from(machines)) {
            complain(format_args!(
                "--threads {threads} is not enough for --local {machines}: each machine needs at least one worker"
            ));
            return Ok(ExitCode::from(USAGE_STATUS));
        }
        let library = match options.region.map(|_| region::find_library()).transpose() {
            Ok(library) => library,
            Err(cause) => {
                complain(cause);
                return Ok(ExitCode::from(FAILURE_STATUS));
            }
        };
        if self.check {
            return self.check_program();
        }
        if let (Err(cause), Some(_)) = (options.check_threads_at(machines.into()), self.local) {
            complain(cause);
            return Ok(ExitCode::from(USAGE_STATUS));
        }
        let mut environment = match options.environment() {
            Ok(environment) => environment,
            Err(cause) => {
                complain(cause);
                return Ok(ExitCode::from(USAGE_STATUS));
            }
        };
        if library.is_some() && self.local != Some(1) {
            region::make_teams_sleep(&mut environment);
        }
        if options.detach && !detach::is_background() {
            return detach::start();
        }
        if options.detach
            && let Err(error) = detach::settle()
        {
            complain(format_args!("cannot go on in the background: {error}"));
            return Ok(ExitCode::from(FAILURE_STATUS));
        }
        Ok(match self.local {
            Some(machines) => self.run_local(machines, environment, library.as_deref()),
            None => self.run_rack(environment, library),
        })
    }

    /// Prints which calls of the program several machines refuse.
    fn check_program(&self) -> io::Result<ExitCode> {
        let program = match find_program(&self.words().0) {
            Ok(program) => program,
            Err(error) => {
                complain(&error);
                return Ok(ExitCode::from(error.status().unwrap_or(FAILURE_STATUS)));
            }
        };
        match region::check::check(&program) {
            Ok(report) => {
                console::write(&report.text)?;
                Ok(ExitCode::from(u8::from(report.is_refused)))
            }
            Err(cause) => {
                complain(cause);
                Ok(ExitCode::from(FAILURE_STATUS))
            }
        }
    }

    /// Returns the program's name and its arguments.
    fn words(&self) -> (OsString, Vec<OsString>) {
        let Some((program, args)) = self.program.split_first() else { unreachable!("clap asks for at least one") };
        (program.clone(), args.to_vec())
    }

    fn run_local(self, machines: u16, mut environment: Environment, library: Option<&Path>) -> ExitCode {
        let (program, args) = self.words();
        if let Some(library) = library {
            match region::preload(library, environment.value(region::PRELOAD).as_deref()) {
                Ok(value) => environment.set(region::PRELOAD, value),
                Err(cause) => {
                    complain(cause);
                    return ExitCode::from(FAILURE_STATUS);
                }
            }
        }
        let found = match environment.is_inherited() {
            true => Ok(program),
            // With the PATH of this process, not that of the machines.
            false => find_program(&program).map(PathBuf::into_os_string),
        };
        let program = match found {
            Ok(program) => program,
            Err(error) => {
                complain(&error);
                return ExitCode::from(error.status().unwrap_or(FAILURE_STATUS));
            }
        };
        // The machines do not serve the view themselves: the launcher shows all of them.
        let options = self.options;
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let address = options.view.clone().or_else(|| variable(view::VARIABLE)?.into_string().ok());
        let token = options.view_token.clone().or_else(|| variable(view::TOKEN_FILE_VARIABLE).map(PathBuf::from));
        let view = match address.map(|address| Access::new(&address, token.as_deref())).transpose() {
            Ok(view) => view,
            Err(cause) => {
                complain(format_args!("--view, {}: {cause}", view::VARIABLE));
                return ExitCode::from(USAGE_STATUS);
            }
        };
        let config = LaunchConfig {
            options,
            environment,
            view,
            on_view: |url| complain(format_args!("view at {url}")),
            ..LaunchConfig::new(program, args, machines)
        };
        if let Err(error) = orphans::adopt(Spare::Earlier) {
            complain(format_args!("cannot take on what machines leave behind: {error}"));
            return ExitCode::from(FAILURE_STATUS);
        }
        let ended = launch::run(&config);
        orphans::end(launch::ORPHANS_LIMIT);
        tell(ended, LaunchError::status)
    }

    fn run_rack(self, environment: Environment, library: Option<PathBuf>) -> ExitCode {
        let (program, args) = self.words();
        let rack = RackConfig::find(self.options.rack.as_deref()).map_err(RackError::from);
        let on_start = if self.options.detach { detach::tell_caller } else { |_| () };
        let run = |rack: RackConfig| RackRun {
            options: self.options.on_rack(&rack),
            rack,
            program,
            args,
            environment,
            library,
            notice: |text| complain(text),
            on_start,
        };
        tell(rack.map(run).and_then(|run| rack::run(&run)), RackError::status)
    }
}

fn tell<E: Display>(ended: Result<Ended, E>, status: fn(&E) -> Option<u8>) -> ExitCode {
    match ended {
        Ok(ended) => {
            ended.messages().iter().for_each(complain);
            ExitCode::from(ended.status())
        }
        Err(error) => {
            complain(&error);
            ExitCode::from(status(&error).unwrap_or(FAILURE_STATUS))
        }
    }
}
