//! Options of `gossamer-launch run`, from the command line to the processes that obey them.
//!
//! [`RunOptions`] is declared once, with its help, and passed on whole: clap fills it, `rack.yaml` completes it
//! ([`RunOptions::on_rack`]), and it goes on in the description of a run
//! ([`LaunchConfig`](crate::launch::LaunchConfig), [`RackRun`](crate::rack::RackRun)), in the message that starts the
//! program on each host ([`Start`](crate::wire::Start)), and to the code that starts its machines
//! ([`machines::Start`]). An option is obeyed in one of these, or in the program itself: by a variable
//! ([`RunOptions::environment`]), or by a rule for its end ([`RunOptions::policy`]).
//!
//! Invariants: paths, names and variables of the launcher's host do not travel (`serde(skip)`). Nor do options that
//! have their default: a host of an earlier version runs programs without a new option, and refuses those with it by
//! its name. A host checks each value that it obeys: clap checks on the launcher's host, and a client may have none.
//!
//! [`machines::Start`]: crate::machines::Start

use std::ffi::OsString;
use std::ops::RangeBounds;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use gossamer::bootstrap::{FabricChoice, SILENCE_MS, START_TIMEOUT_MS};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cli::size::parse_duration;
use crate::config::{MemoryBytes, RackConfig};
use crate::environment::Environment;
use crate::input::Reader;
use crate::region::{Moves, Sharing};
use crate::supervisor::Policy;

/// Default address of a page about a program.
pub(crate) const VIEW_ADDRESS: &str = "127.0.0.1:0";
/// Most machines of a program that has all of them on one host.
pub const MAX_LOCAL_MACHINES: u16 = 128;
/// The most machines of a program on each host of a rack.
const MAX_MACHINES_PER_HOST: u16 = 128;

/// Parser of `on` and `off`.
fn on_or_off() -> impl TypedValueParser<Value = bool> {
    let values = [PossibleValue::new("on").alias("true"), PossibleValue::new("off").alias("false")];
    PossibleValuesParser::new(values).map(|text| text == "on" || text == "true")
}

/// Options of `gossamer-launch run` but `--local`; the comments of the fields are its help.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunOptions {
    /// The hosts of the rack [default: $GOSSAMER_RACK, ./rack.yaml, and so on]
    #[arg(long, value_name = "FILE", conflicts_with = "local")]
    #[serde(skip)]
    pub rack: Option<PathBuf>,

    /// Names of the hosts to run on, machine 0 on the first [default: all of rack.yaml]
    #[arg(long, value_name = "A,B", value_delimiter = ',', conflicts_with = "local")]
    #[serde(skip)]
    pub hosts: Vec<String>,

    /// Run on those of the hosts that answer, or on the first N of these, instead of failing where one does not; the
    /// hosts that are left out are named
    #[arg(long, value_name = "N", require_equals = true, num_args = 0..=1, conflicts_with = "local",
          value_parser = clap::value_parser!(u16).range(1..))]
    #[serde(skip)]
    pub any: Option<Option<u16>>,

    /// Machines to start on each host
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "local",
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_MACHINES_PER_HOST)))]
    pub machines_per_host: u16,

    /// Workers in all machines together, at least one each. Default: with --local the program decides, on a rack the
    /// hosts do
    #[arg(long, value_name = "T")]
    pub threads: Option<u32>,

    /// Pin each worker to a core of its own, if there is a core for each [default: the program decides]
    #[arg(long, value_name = "on|off", value_parser = on_or_off())]
    pub pin: Option<bool>,

    /// Longest time in microseconds that an idle worker polls before it sleeps [default: the program decides]
    #[arg(long, value_name = "US")]
    pub spin: Option<u64>,

    /// Go on without up to N machines that are lost [default: the program decides, mostly 0: a loss ends all]. See
    /// docs/surviving.md
    #[arg(long, value_name = "N")]
    pub survives: Option<u16>,

    /// Let all workers of two machines share one way, or give each pair of workers rings of its own [default: the
    /// program decides, mostly by the size of the rack]. See docs/scaling.md
    #[arg(long, value_name = "on|off", value_parser = on_or_off())]
    pub machine_ways: Option<bool>,

    /// Transport between machines: `auto` (shared memory between the machines of a host, else the best that both hosts
    /// have), `shm`, `tcp` or `verbs` [default: auto, or the value in rack.yaml]
    #[arg(long, value_name = "FABRIC")]
    pub fabric: Option<FabricChoice>,

    /// With --local: act as if the machines were on H hosts without shared memory, to try `auto` as on a rack
    #[arg(long, value_name = "H", default_value_t = 1, requires = "local")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub pretend_hosts: u16,

    /// With --local: seconds for the machines to find one another
    #[arg(long, value_name = "S", default_value = "30", requires = "local", value_parser = seconds(1..))]
    pub start_timeout: Duration,

    /// With --local: seconds without a sign of life after which a machine that is reached by TCP counts as dead
    #[arg(long, value_name = "S", default_value = "3", requires = "local", value_parser = seconds(2..=86_400))]
    pub silence: Duration,

    /// Run the file at PROGRAM's path on each host, instead of sending the program where it differs
    #[arg(long, conflicts_with = "local")]
    pub in_place: bool,

    /// Working folder on each host [default: this one's path]
    #[arg(long, value_name = "FOLDER", conflicts_with = "local")]
    #[serde(skip)]
    pub folder: Option<PathBuf>,

    /// Set a variable for PROGRAM, or pass on the one with this name here, even one that is not passed on by default
    #[arg(long, value_name = "NAME[=VALUE]")]
    #[serde(skip)]
    pub env: Vec<OsString>,

    /// Pass on no variables but those of --env
    #[arg(long)]
    pub clean_env: bool,

    /// Memory that the program may take on each host, its machines there and their children together (512M, 8G); more
    /// ends it. A lower `memory` in a host's rack.yaml counts. The daemons need cgroups with the controller `memory`
    #[arg(long, value_name = "SIZE", conflicts_with = "local")]
    pub memory: Option<MemoryBytes>,

    /// End the program after this time (90s, 10m, 1h30m, 2d), as if by SIGTERM; status 124
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub time_limit: Option<Duration>,

    /// Wait in a queue where the limit of programs (limits.programs) is reached; Ctrl-C leaves the queue
    #[arg(long, conflicts_with = "local")]
    pub wait: bool,

    /// Print the program's number once it runs, and return: `ps`, `logs --output` and `kill` take that number.
    /// gossamer-launch continues in the background of this host
    #[arg(long, conflicts_with = "local")]
    pub detach: bool,

    /// With --local: serve a page about the program, and print its address with the token [default address: 127.0.0.1
    /// and a free port; without this option $GOSSAMER_VIEW]. See `gossamer-launch help view`
    #[arg(long, value_name = "ADDRESS", requires = "local", require_equals = true, num_args = 0..=1,
          default_missing_value = VIEW_ADDRESS)]
    #[serde(skip)]
    pub view: Option<String>,

    /// With --view: read the token from FILE; needed where ADDRESS is not local to this host
    #[arg(long, value_name = "FILE", requires = "view")]
    #[serde(skip)]
    pub view_token: Option<PathBuf>,

    /// PROGRAM is a threaded one in C or C++: its threads run on all machines, and share all memory (`auto`), or only
    /// the memory that it names by gsm_region_share (`explicit`); see docs/region.md
    #[arg(long, value_name = "WAY")]
    pub region: Option<Sharing>,

    /// With --region: report at the end which pages travelled, and name the N most requested [default N: 10]
    #[arg(long, value_name = "N", requires = "region", require_equals = true, num_args = 0..=1)]
    #[arg(default_missing_value = "10", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub region_stats: Option<u32>,

    /// With --region: number of consecutive threads of the program to start on machine 0, on machine 1, and so on, then
    /// again from the start; for programs that give more work to threads created earlier [default: 1 on each]
    #[arg(long, value_name = "N,N,..", requires = "region", value_delimiter = ',')]
    pub threads_at: Vec<u32>,

    /// With --region auto: which threads of the program move to other machines while they run [default: never]
    #[arg(long = "move", value_name = "WHEN", requires = "region")]
    pub moves: Option<Moves>,

    /// PROGRAM must call gossamer::main: a machine that ends before it does so fails the program
    #[arg(long)]
    pub must_join: bool,

    /// Machine that reads standard input. `none`: each machine reads an end of file, and gossamer-launch leaves its own
    /// input to the next reader, such as a shell's `while read`
    #[arg(long, value_name = "MACHINE", default_value = "0")]
    pub stdin: Reader,

    /// Do not put the machine's name (`m0 | `) before each line of output
    #[arg(long)]
    pub no_prefix: bool,
}

/// Parses a whole number of seconds in this range.
fn seconds(range: impl RangeBounds<i64>) -> impl TypedValueParser<Value = Duration> {
    clap::value_parser!(u32).range(range).map(|seconds| Duration::from_secs(seconds.into()))
}

impl Default for RunOptions {
    /// As for a command line without options.
    fn default() -> RunOptions {
        RunOptions {
            rack: None,
            hosts: Vec::new(),
            any: None,
            machines_per_host: 1,
            threads: None,
            pin: None,
            spin: None,
            survives: None,
            machine_ways: None,
            fabric: None,
            pretend_hosts: 1,
            start_timeout: Duration::from_millis(START_TIMEOUT_MS),
            silence: Duration::from_millis(SILENCE_MS),
            in_place: false,
            folder: None,
            env: Vec::new(),
            clean_env: false,
            memory: None,
            time_limit: None,
            wait: false,
            detach: false,
            view: None,
            view_token: None,
            region: None,
            region_stats: None,
            threads_at: Vec::new(),
            moves: None,
            must_join: false,
            stdin: Reader::default(),
            no_prefix: false,
        }
    }
}

impl RunOptions {
    /// Returns the options for this rack, which has keys for those that are only for `--local`.
    #[must_use]
    pub fn on_rack(self, rack: &RackConfig) -> RunOptions {
        RunOptions { start_timeout: rack.timeouts.start(), silence: rack.timeouts.silence(), ..self }
    }

    /// Returns the options for hosts, as JSON: those that differ from the defaults.
    ///
    /// # Errors
    /// None for the options that there are: their values are plain data.
    pub fn to_json(&self) -> serde_json::Result<String> {
        let fields = |options| serde_json::from_value::<Map<String, Value>>(serde_json::to_value(options)?);
        let (mut own, defaults) = (fields(self)?, fields(&RunOptions::default())?);
        own.retain(|name, value| defaults.get(name) != Some(value));
        serde_json::to_string(&own)
    }

    /// Parses the text of [`to_json`](Self::to_json).
    ///
    /// # Errors
    /// The text has an option that this side does not know: the other one is of a later version. Or it is none at all.
    pub fn from_json(text: &str) -> serde_json::Result<RunOptions> {
        serde_json::from_str(text)
    }

    /// Checks that `--threads-at`, if it is there, fits the number of machines.
    ///
    /// # Errors
    /// A text: it does not, or leaves no machine.
    pub fn check_threads_at(&self, machines: usize) -> Result<(), String> {
        let counts = &self.threads_at;
        if !counts.is_empty() && counts.len() != machines {
            return Err(format!(
                "--threads-at has numbers for {} machines, and the program has {machines}",
                counts.len()
            ));
        }
        if !counts.is_empty() && counts.iter().all(|count| *count == 0) {
            return Err("--threads-at leaves no machine for threads: one number at least has to be above 0".to_owned());
        }
        Ok(())
    }

    /// Returns the time without a sign of life after which a host counts as lost while the program starts there.
    #[must_use]
    pub fn start_limit(&self) -> Duration {
        self.start_timeout.max(self.silence)
    }

    /// Returns [`start_timeout`](Self::start_timeout) and [`silence`](Self::silence) in milliseconds, for a plan.
    #[must_use]
    pub fn limits_ms(&self) -> (u64, u64) {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        (milliseconds(self.start_timeout), milliseconds(self.silence))
    }

    /// Returns the rules for the program's end.
    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy { must_join: self.must_join || self.region.is_some(), time_limit: self.time_limit, ..Policy::default() }
    }

    /// Returns the environment that the user chose for the program, with the variables of the other options.
    ///
    /// # Errors
    /// A text: `--env` has a name that is empty or unknown here.
    pub fn environment(&self) -> Result<Environment, String> {
        let mut environment = Environment::new(self.clean_env, &self.env)?;
        for (name, value) in self.variables() {
            environment.set(name, value.into());
        }
        Ok(environment)
    }

    /// Returns the variables of the program that options set.
    fn variables(&self) -> impl Iterator<Item = (&'static str, String)> {
        let threads_at = self.threads_at.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let on_or_off = |is_on| if is_on { "on" } else { "off" }.to_owned();
        let table = [
            // Bound at the start: else each machine would write the addresses of functions among the variables of all.
            ("LD_BIND_NOW", self.region.map(|_| "1".to_owned())),
            ("GOSSAMER_PIN", self.pin.map(on_or_off)),
            ("GOSSAMER_SPIN_US", self.spin.map(|spin| spin.to_string())),
            ("GOSSAMER_SURVIVES", self.survives.map(|machines| machines.to_string())),
            ("GOSSAMER_MACHINE_WAYS", self.machine_ways.map(on_or_off)),
            ("GOSSAMER_REGION", self.region.map(|sharing| sharing.name().to_owned())),
            ("GOSSAMER_REGION_STATS", self.region_stats.map(|pages| pages.to_string())),
            ("GOSSAMER_REGION_THREADS_AT", Some(threads_at).filter(|counts| !counts.is_empty())),
            ("GOSSAMER_REGION_MOVE", self.moves.map(|moves| moves.name().to_owned())),
        ];
        table.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[arg(long)]
        local: Option<u16>,
        #[command(flatten)]
        options: RunOptions,
    }

    fn parse(line: &str) -> Result<RunOptions, clap::Error> {
        Line::try_parse_from(["run"].into_iter().chain(line.split_whitespace())).map(|line| line.options)
    }

    #[test]
    fn a_line_without_options_has_the_defaults() {
        assert_eq!(parse("").unwrap(), RunOptions::default());
    }

    #[test]
    fn times_are_whole_seconds_in_their_range() {
        let options = parse("--local 1 --silence 2 --start-timeout 1").unwrap();
        assert_eq!((options.silence, options.start_timeout), (Duration::from_secs(2), Duration::from_secs(1)));
        for wrong in
            ["--silence 1", "--silence 86401", "--silence 2.5", "--start-timeout 0", "--start-timeout 5000000000"]
        {
            assert!(parse(&format!("--local 1 {wrong}")).is_err(), "{wrong}");
        }
        assert!(parse("--silence 2").is_err(), "on a rack, rack.yaml says it");
    }

    #[test]
    fn any_hosts_may_have_a_number() {
        let any = |line: &str| parse(line).map(|options| options.any).map_err(|_| ());
        assert_eq!(["", "--any", "--any=3"].map(any), [Ok(None), Ok(Some(None)), Ok(Some(Some(3)))]);
        assert_eq!(["--any=0", "--any=x", "--any 3", "--local 2 --any"].map(any), [Err(()); 4]);
    }

    #[test]
    fn a_rack_has_times_of_its_own() {
        let text =
            "key_file: k\nhosts: [{name: a, address: 127.0.0.1}]\ntimeouts: {start_ms: 7000, silence_ms: 2500}\n";
        let rack = RackConfig::parse(text, "rack.yaml".as_ref()).unwrap();
        let options = parse("--wait").unwrap().on_rack(&rack);
        assert_eq!((options.start_timeout.as_millis(), options.silence.as_millis()), (7000, 2500));
        assert!(options.wait);
    }

    #[test]
    fn hosts_get_what_is_not_the_default_and_not_the_launchers() {
        let here = "--rack r --hosts a,b --any=2 --folder f --env A=1";
        let there = "--wait --memory 2G --time-limit 90s --fabric tcp --region auto --threads-at 1,0 --stdin none";
        let (all, travelled) = (parse(&format!("{here} {there}")).unwrap(), parse(there).unwrap());
        let json = all.to_json().unwrap();
        assert_eq!(RunOptions::from_json(&json).unwrap(), travelled);
        assert!(!["machines_per_host", "folder", "rack", "env"].iter().any(|name| json.contains(name)), "{json}");
        assert_eq!(RunOptions::default().to_json().unwrap(), "{}");
    }

    #[test]
    fn unknown_options_are_refused_by_name() {
        let refused = RunOptions::from_json(r#"{"wait":true,"teleport":3}"#).unwrap_err().to_string();
        assert!(refused.starts_with("unknown field `teleport`"), "{refused}");
    }

    #[test]
    fn options_of_a_region_are_variables_of_the_program() {
        let options =
            parse("--region explicit --region-stats --threads-at 2,0 --move asked --clean-env --env A=1").unwrap();
        let variables = options.environment().unwrap().variables(|_| true);
        let expected = [
            ("A", "1"),
            ("LD_BIND_NOW", "1"),
            ("GOSSAMER_REGION", "explicit"),
            ("GOSSAMER_REGION_STATS", "10"),
            ("GOSSAMER_REGION_THREADS_AT", "2,0"),
            ("GOSSAMER_REGION_MOVE", "asked"),
        ];
        assert_eq!(variables, expected.map(|(name, value)| (name.into(), value.into())));
        assert_eq!(parse("").unwrap().variables().count(), 0);
        assert!(options.policy().must_join && !RunOptions::default().policy().must_join);
    }

    #[test]
    fn there_is_a_number_of_threads_for_each_machine() {
        let options = |counts: &[u32]| RunOptions { threads_at: counts.to_vec(), ..RunOptions::default() };
        options(&[]).check_threads_at(3).unwrap();
        options(&[9, 0]).check_threads_at(2).unwrap();
        let refused = options(&[9, 10]).check_threads_at(3).unwrap_err();
        assert!(refused.contains("for 2 machines, and the program has 3"), "{refused}");
        assert!(options(&[0, 0]).check_threads_at(2).unwrap_err().contains("above 0"));
    }
}
