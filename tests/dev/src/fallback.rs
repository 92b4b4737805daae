//! The build without language features: `trust` falls back to `Send + 'static`, with and without the parts for the C
//! API and without any of its features; `gossamer` refuses; a library outside of the workspace (docs/libraries.md)
//! works in both builds.
//!
//! Here: both builds and the proof that each is the one it claims to be. Not here: the choice itself
//! (trust's build script, which sets the cfg `noref_auto`).
//!
//! Invariant: the cfg is read from cargo's report of the build script's output, in both builds; a tier that
//! silently tested the strict build twice would fail.

use crate::command::{Command, Context, Done};
use crate::count::Counts;
use crate::tier::Verdict;
use serde_json::Value;

/// `-1` makes the compiler refuse feature gates, on a nightly too; the process environment outranks the
/// `[env]` table of .cargo/config.toml.
const NO_FEATURES: (&str, &str) = ("RUSTC_BOOTSTRAP", "-1");

/// The cfg of the strict build.
const STRICT: &str = "noref_auto";

/// Tests `trust` without features, and that `gossamer` names the missing ones; or only builds for that.
pub fn check(context: &Context, no_run: bool) -> anyhow::Result<Verdict> {
    let folder = context.target.join("fallback").to_string_lossy().into_owned();
    let probe = || context.cargo(&["check", "--quiet", "--package", "gossamer-trust", "--message-format", "json"]);
    let tests = without(context.cargo(&["test", "--no-fail-fast", "--package", "gossamer-trust"]), &folder);
    let gossamer = without(context.cargo(&["check", "--quiet", "--package", "gossamer-rack"]), &folder);
    let c_api = without(context.cargo(&["check", "--quiet", "--package", "gossamer-trust-ffi"]), &folder);
    let bare = ["check", "--quiet", "--package", "gossamer-trust", "--no-default-features"];
    let bare = without(context.cargo(&bare), &folder);
    let library = || context.cargo(&["test", "--manifest-path", "examples/library/Cargo.toml"]);
    let libraries = [
        library().args(&["--target-dir", &context.target.join("library").to_string_lossy()]),
        without(library(), &folder),
    ];
    let lenient = without(probe(), &folder).capture_aloud()?;
    let others = c_api.check()?.and(bare.check()?);
    if no_run {
        gossamer.capture_aloud()?;
        let built = tests.build_only()?;
        return libraries.into_iter().try_fold(built, |built, library| Ok(built.and(library.build_only()?)));
    }
    let strict = probe().capture_aloud()?;
    let verdict =
        verdict_on_probe("by default", &strict, true).and(verdict_on_probe("without features", &lenient, false));
    let mut verdict = verdict.and(others).and(tests.tests()?);
    for library in libraries {
        verdict = verdict.and(library.tests()?);
    }
    let refused = gossamer.capture_aloud()?;
    println!("{}", refused.stderr.trim_end());
    Ok(verdict.and(verdict_on_refusal(&refused)))
}

/// The command without features, and in a folder of its own.
fn without<'a>(command: Command<'a>, folder: &str) -> Command<'a> {
    command.args(&["--target-dir", folder]).env(NO_FEATURES.0, NO_FEATURES.1)
}

/// Whether a build of `trust` is the one expected.
fn verdict_on_probe(which: &str, done: &Done, strict_expected: bool) -> Verdict {
    if !done.success {
        eprintln!("{}{}", done.stderr, rendered(&done.stdout));
        return Verdict::failed(format!("trust does not build {which}"));
    }
    let Some(cfgs) = build_script_cfgs(&done.stdout, "gossamer-trust") else {
        return Verdict::failed(format!("{which}, trust has no build script that could set `{STRICT}`"));
    };
    let strict = cfgs.iter().any(|cfg| cfg == STRICT);
    println!("trust {which}: {}", if strict { "strict (auto trait NoRef)" } else { "Send + 'static" });
    if strict == strict_expected {
        Verdict::passed().with_tests(Counts::PASSED)
    } else {
        Verdict::failed(format!("trust built {which} has `{STRICT}` = {strict}"))
    }
}

/// Whether `gossamer` refused to build, in its own words and not by an accident.
fn verdict_on_refusal(done: &Done) -> Verdict {
    let said = done
        .stderr
        .lines()
        .any(|line| line.starts_with("error") && line.contains("gossamer") && line.contains("RUSTC_BOOTSTRAP"));
    if done.success {
        Verdict::failed("gossamer built without the auto trait; it has to refuse")
    } else if said {
        Verdict::passed().with_tests(Counts::PASSED)
    } else {
        Verdict::failed("gossamer refused without naming itself and RUSTC_BOOTSTRAP in its error")
    }
}

/// The cfgs that the build script of `package` printed, from cargo's JSON messages; `None` if it has none.
fn build_script_cfgs(messages: &str, package: &str) -> Option<Vec<String>> {
    messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find_map(|message| {
        let is_script = message["reason"] == "build-script-executed";
        let id = message["package_id"].as_str()?;
        (is_script && is_workspace_package(id, package)).then(|| {
            let cfgs = message["cfgs"].as_array().into_iter().flatten();
            cfgs.filter_map(Value::as_str).map(str::to_owned).collect()
        })
    })
}

/// Whether an id such as `path+file:///home/me/gossamer/trust#0.1.0` is that of `package`.
fn is_workspace_package(id: &str, package: &str) -> bool {
    let Some((path, version)) = id.strip_prefix("path+").and_then(|rest| rest.rsplit_once('#')) else {
        return false;
    };
    match version.split_once('@') {
        Some((name, _)) => name == package,
        None => path.rsplit('/').next() == Some(package),
    }
}

/// The compiler's messages as it would have shown them.
fn rendered(messages: &str) -> String {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| message["message"]["rendered"].as_str().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::State;

    fn script(id: &str, cfgs: &str) -> String {
        format!(r#"{{"reason":"build-script-executed","package_id":"{id}","cfgs":[{cfgs}]}}"#)
    }

    fn done(success: bool, stdout: String, stderr: &str) -> Done {
        Done { success, status: String::new(), stdout, stderr: stderr.to_owned() }
    }

    #[test]
    fn reads_the_cfgs_of_the_right_package() {
        let messages = [
            "not json".to_owned(),
            script("registry+https://github.com/rust-lang/crates.io-index#libc@0.2.0", r#""freebsd12""#),
            script("path+file:///somewhere/trust#0.1.0", r#""noref_auto""#),
        ]
        .join("\n");
        assert_eq!(build_script_cfgs(&messages, "trust"), Some(vec!["noref_auto".to_owned()]));
        assert_eq!(build_script_cfgs(&messages, "comm"), None);
    }

    #[test]
    fn knows_both_forms_of_an_id() {
        assert!(is_workspace_package("path+file:///a/trust#0.1.0", "trust"));
        assert!(is_workspace_package("path+file:///a/elsewhere#trust@0.1.0", "trust"));
        assert!(!is_workspace_package("path+file:///trust/comm#0.1.0", "trust"));
        assert!(!is_workspace_package("registry+https://x#trust@0.1.0", "trust"));
    }

    #[test]
    fn the_wrong_build_is_a_failure_both_ways() {
        let strict = script("path+file:///a/trust#gossamer-trust@0.1.0", r#""noref_auto""#);
        let lenient = script("path+file:///a/trust#gossamer-trust@0.1.0", "");
        let state = |out: &str, expected| verdict_on_probe("", &done(true, out.into(), ""), expected).state;
        assert_eq!(state(&strict, true), State::Passed);
        assert_eq!(state(&lenient, false), State::Passed);
        assert!(matches!(state(&strict, false), State::Failed(_)));
        assert!(matches!(state(&lenient, true), State::Failed(_)));
        assert!(matches!(state("", false), State::Failed(_)));
    }

    #[test]
    fn only_a_refusal_in_gossamers_words_passes() {
        let words = "error: gossamer needs the auto trait NoRef: set RUSTC_BOOTSTRAP=trust,gossamer";
        assert_eq!(verdict_on_refusal(&done(false, String::new(), words)).state, State::Passed);
        for (success, stderr) in [(true, words), (false, "error[E0433]: cannot find RUSTC_BOOTSTRAP")] {
            let verdict = verdict_on_refusal(&done(success, String::new(), stderr));
            assert!(matches!(verdict.state, State::Failed(_)), "{stderr}");
        }
    }
}
