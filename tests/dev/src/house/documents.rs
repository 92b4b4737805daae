//! Documents that have to agree with the code: the README with CI, the list of dependencies with cargo, the tables of
//! benchmarks.md with the files they come from, that of region.md with the code's own, names in pages with the tree.
//!
//! Here: the first two comparisons (the others are those of `book`, `calls` and `names`). Not here: other contents of
//! the documents.
//!
//! Invariant: a document that is missing is an offence, like one that disagrees.

use super::names;
use crate::command::Context;
use anyhow::Context as _;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

/// Disagreements, each as one line.
pub fn check(context: &Context) -> anyhow::Result<Vec<String>> {
    let text = |name: &str| fs::read_to_string(context.root.join(name)).unwrap_or_default();
    let metadata = context.cargo(&["metadata", "--no-deps", "--format-version", "1"]).capture()?;
    anyhow::ensure!(metadata.success, "cargo metadata: {}", metadata.stderr.trim());
    let metadata = serde_json::from_str(&metadata.stdout).context("cargo metadata is not JSON")?;
    let mut offences = Vec::from_iter(commands(&text("README.md"), &text(".ci/run")));
    offences.extend(dependencies(&text("docs/dependencies.md"), &metadata));
    offences.extend(crate::book::document::stale(&context.root));
    offences.extend(crate::calls::stale(&context.root));
    offences.extend(names::missing(context, &metadata)?);
    Ok(offences)
}

/// The command that README's second `sh` block ends with has to be the one that CI runs.
fn commands(readme: &str, ci: &str) -> Option<String> {
    let promised = second_block(readme);
    let run = ci
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .map(|line| line.trim_start_matches("exec ").trim_end_matches("</dev/null").trim());
    match (promised, run) {
        (Some(promised), Some(run)) if promised == run => None,
        (promised, run) => Some(format!(
            "README.md:1: its second ```sh block ends with `{}` and .ci/run with `{}`",
            promised.unwrap_or("nothing"),
            run.unwrap_or("nothing")
        )),
    }
}

/// The last command of the second `sh` block.
fn second_block(readme: &str) -> Option<&str> {
    let mut lines = readme.lines();
    for _ in 0..2 {
        lines.find(|line| line.trim() == "```sh")?;
    }
    let block = lines.take_while(|line| line.trim() != "```");
    block.map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).last()
}

/// Each crate from a registry that a package names has its row, and each row its crate.
fn dependencies(document: &str, metadata: &Value) -> Vec<String> {
    let used: BTreeSet<&str> = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|package| package["dependencies"].as_array().into_iter().flatten())
        .filter(|dependency| dependency["source"].is_string())
        .filter_map(|dependency| dependency["name"].as_str())
        .collect();
    let rows: BTreeSet<&str> =
        document.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(name, _)| name).collect();
    let missing = used.difference(&rows).map(|name| format!("`{name}` has no row: say what it is for"));
    let stale = rows.difference(&used).map(|name| format!("`{name}` is used by no package"));
    missing.chain(stale).map(|what| format!("docs/dependencies.md:1: {what}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const README: &str = "# G\n```sh\ncargo run\n```\ntext\n```rust\nx\n```\n```sh\n# all\ncargo dev ci\n```\n";

    #[test]
    fn readme_and_ci_run_the_same() {
        assert_eq!(commands(README, "set -e\nexec cargo dev ci </dev/null\n"), None);
        assert_eq!(commands(README, "cargo dev ci\n\n"), None);
        for (readme, ci) in [(README, "exec cargo test"), ("", "cargo dev ci"), (README, "")] {
            assert!(commands(readme, ci).is_some(), "{readme:?} {ci:?}");
        }
        let one_block = "```sh\ncargo dev ci\n```";
        assert!(commands(one_block, "cargo dev ci").is_some());
    }

    #[test]
    fn the_table_lists_what_is_used_and_nothing_else() {
        let metadata = json!({"packages": [
            {"dependencies": [{"name": "libc", "source": "registry+x"}, {"name": "trust", "source": null}]},
            {"dependencies": [{"name": "serde", "source": "registry+x"}, {"name": "libc", "source": "registry+x"}]},
        ]});
        assert!(dependencies("| `libc` | 0.2 |\n| `serde` | 1 |\n", &metadata).is_empty());
        let offences = dependencies("| crate |\n| `libc` | 0.2 |\n| `rand` | 1 |\n", &metadata);
        assert_eq!(offences.len(), 2);
        assert!(offences[0].contains("`serde` has no row"));
        assert!(offences[1].contains("`rand` is used by no package"));
    }
}
