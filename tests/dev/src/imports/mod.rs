//! Imports point down: `cargo dev imports`.
//!
//! docs/ARCHITECTURE.md has a table of the folders of `trust/src`, from the top down, and for each the folders that it
//! imports. Here: the rules for that table and for the imports of each package. Not here: how imports are found in the
//! sources (`graph`).
//!
//! The rules for `trust`: each folder has a row; a row names folders of rows below it only (so there is no cycle of
//! folders); the code imports exactly the folders that its folder's row names; files at the root of `trust/src` import
//! no folder. The rule for all packages: no files import each other in a circle, but a parent and its children. Some
//! packages still have circles: [`CIRCLES`] has their number, which only falls. Tests may import anything.

mod graph;

use crate::command::Context;
use crate::tier::Verdict;
use anyhow::Context as _;
use graph::{Graph, Import};
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The crate with the folders, and the page with their table.
const SOURCES: &str = "trust/src";
const PAGE: &str = "docs/ARCHITECTURE.md";
/// The heading above the table.
const HEADING: &str = "## The folders of `trust/src`";

/// Folders of sources with imports in circles, and the number of such imports in each.
const CIRCLES: [(&str, usize); 6] = [
    ("comm/src", 2),
    ("examples/graph/src", 7),
    ("examples/src", 2),
    ("gossamer/array/src", 30),
    ("gossamer/heap/src", 2),
    ("trust/durable/src", 35),
];

/// Checks all imports and lists the offenders.
pub fn check(context: &Context) -> anyhow::Result<Verdict> {
    let page = fs::read_to_string(context.root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let mut offences = Vec::new();
    let (mut files, mut imports) = (0, 0);
    for sources in sources_of_packages(context)? {
        let graph = Graph::read(&context.root.join(&sources))?;
        (files, imports) = (files + graph.files(), imports + graph.imports().len());
        if sources == SOURCES {
            offences.extend(offences_of(&graph, &page));
        }
        offences.extend(circles_but_known(&graph, &sources, &CIRCLES));
    }
    offences.iter().for_each(|offence| println!("{offence}"));
    Ok(if offences.is_empty() {
        let known: usize = CIRCLES.iter().map(|(_, count)| count).sum();
        println!("{files} files, {imports} imports, none that goes up, {known} in circles that are known");
        Verdict::passed()
    } else {
        Verdict::failed(format!("{} imports or rows of {PAGE} to mend", offences.len())).with_failures(offences)
    })
}

/// Returns the folder of sources of each package of the workspace that has a library or a program.
fn sources_of_packages(context: &Context) -> anyhow::Result<BTreeSet<String>> {
    let metadata = context.cargo(&["metadata", "--no-deps", "--format-version", "1"]).capture()?;
    anyhow::ensure!(metadata.success, "cargo metadata: {}", metadata.stderr.trim());
    let metadata: Value = serde_json::from_str(&metadata.stdout).context("cargo metadata is not JSON")?;
    let targets = metadata["packages"].as_array().into_iter().flatten();
    let targets = targets.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let paths = targets.filter_map(|target| Path::new(target["src_path"].as_str()?).strip_prefix(&context.root).ok());
    let roots = paths.filter(|path| path.ends_with("src/lib.rs") || path.ends_with("src/main.rs"));
    Ok(roots.filter_map(|path| path.parent()?.to_str().map(str::to_owned)).collect())
}

/// One row of the table.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    line: usize,
    folder: String,
    imports: Vec<String>,
}

/// The rows, from the top down: those with a folder in the first cell, such as `` `slot/` ``. The last cell lists
/// folders.
fn rows(page: &str) -> Vec<Row> {
    let lines = page.lines().enumerate().skip_while(|(_, line)| *line != HEADING).skip(1);
    let table = lines.take_while(|(_, line)| !line.starts_with("## "));
    let folders = |cell: &str| -> Vec<String> {
        cell.split('`').filter_map(|word| word.strip_suffix('/')).map(str::to_owned).collect()
    };
    let row = |(index, line): (usize, &str)| {
        let mut cells = line.strip_prefix("| ")?.trim_end().trim_end_matches('|').split(" | ");
        let folder = folders(cells.next()?).pop()?;
        Some(Row { line: index + 1, folder, imports: folders(cells.last()?) })
    };
    table.filter_map(row).collect()
}

/// All that is wrong, each as one line.
fn offences_of(graph: &Graph, page: &str) -> Vec<String> {
    let rows = rows(page);
    if rows.is_empty() {
        return vec![format!("{PAGE}:1: no table of folders under `{HEADING}`")];
    }
    let mut offences = table(graph, &rows);
    offences.extend(graph.imports().iter().filter_map(|import| arrow(graph, &rows, import)));
    offences
}

/// Faults of the table itself.
fn table(graph: &Graph, rows: &[Row]) -> Vec<String> {
    let mut offences = Vec::new();
    let has_row = |folder: &str| rows.iter().any(|row| row.folder == folder);
    for folder in graph.folders().iter().filter(|folder| !has_row(folder)) {
        offences.push(format!(
            "{SOURCES}/{folder}/mod.rs:1: `{folder}/` has no row in {PAGE}: say there what it owns and imports"
        ));
    }
    let used: BTreeSet<(&str, &str)> = graph
        .imports()
        .iter()
        .filter_map(|import| Some((graph.folder(import.from)?, graph.folder(import.to)?)))
        .collect();
    for (place, row) in rows.iter().enumerate() {
        let Row { line, folder, imports } = row;
        if !graph.folders().contains(folder.as_str()) {
            offences.push(format!("{PAGE}:{line}: there is no folder `{SOURCES}/{folder}/`: take the row out"));
        }
        for import in imports {
            if !rows[place + 1..].iter().any(|below| below.folder == *import) {
                offences.push(format!(
                    "{PAGE}:{line}: `{folder}/` may import rows below it only, and `{import}/` is none of them"
                ));
            } else if !used.contains(&(folder.as_str(), import.as_str())) {
                offences
                    .push(format!("{PAGE}:{line}: `{folder}/` does not import `{import}/`: take it out of the row"));
            }
        }
    }
    offences
}

/// The fault of one import, by its folders.
fn arrow(graph: &Graph, rows: &[Row], import: &Import) -> Option<String> {
    let to = graph.folder(import.to)?;
    let at = format!("{SOURCES}/{}:{}", graph.name(import.from).display(), import.line);
    let what = &import.what;
    let cure =
        "move what both need below them, hand it over as a parameter, or ask for it by a trait that the lower one has";
    let Some(from) = graph.folder(import.from) else {
        let is_root = import.from == graph.root();
        return (!is_root).then(|| {
            format!(
                "{at}: a file at the root of {SOURCES} imports `{to}/` (`{what}`), and all folders may import it: \
                     {cure}"
            )
        });
    };
    if from == to {
        return None;
    }
    let place = |folder: &str| rows.iter().position(|row| row.folder == folder);
    let (from_row, to_row) = (place(from)?, place(to)?);
    if to_row < from_row {
        Some(format!("{at}: `{from}/` imports `{to}/` (`{what}`), which is above it in {PAGE}: {cure}"))
    } else if !rows[from_row].imports.iter().any(|import| import == to) {
        Some(format!(
            "{at}: `{from}/` imports `{to}/` (`{what}`), which its row in {PAGE} does not name: name it there, if \
             `{from}/` is to know `{to}/`, or {cure}"
        ))
    } else {
        None
    }
}

/// The circles of a package where their number is not the known one.
fn circles_but_known(graph: &Graph, sources: &str, known: &[(&str, usize)]) -> Vec<String> {
    let circles = circles(graph, sources);
    let known = known.iter().find(|(package, _)| *package == sources).map_or(0, |(_, count)| *count);
    match circles.len().cmp(&known) {
        Ordering::Equal => Vec::new(),
        Ordering::Greater => circles,
        Ordering::Less => vec![format!(
            "tests/dev/src/imports/mod.rs: {sources} has {} imports in circles, fewer than the {known} of `CIRCLES`: \
             say so there",
            circles.len()
        )],
    }
}

/// Files that import each other in a circle: each such import, with the way back.
fn circles(graph: &Graph, sources: &str) -> Vec<String> {
    let offence = |import: &Import| {
        let back = graph.way(import.to, import.from)?;
        let back: Vec<String> = back.into_iter().map(|file| graph.name(file).display().to_string()).collect();
        Some(format!(
            "{sources}/{}:{}: imports `{}` of {}, which leads back to it ({}): files that need each other are one \
             file, or have a third below them",
            graph.name(import.from).display(),
            import.line,
            import.what,
            back[0],
            back.join(" -> "),
        ))
    };
    graph.imports().iter().filter(|import| !graph.are_kin(import.from, import.to)).filter_map(offence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences_of(files: &[(&str, &str)], page: &str) -> Vec<String> {
        let graph = graph(files);
        [super::offences_of(&graph, page), circles(&graph, SOURCES)].concat()
    }

    const TABLE: &str = "## The folders of `trust/src`\n\n| folder | what | imports |\n|---|---|---|\n| `top/` | a | \
                         `low/` |\n| `mid/` | calls `top/` | `low/` |\n| `low/` | b | |\n| files | c | |\n\n## Next\n| \
                         `no/` | x | |\n";

    fn graph(files: &[(&str, &str)]) -> Graph {
        let folder = tempfile::tempdir().expect("a folder");
        let sources = [("lib.rs", "mod top;\nmod mid;\nmod low;\nmod base;\npub use low::Low;\n"), ("base.rs", "")];
        for (name, text) in sources.iter().chain(files) {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        Graph::read(folder.path()).expect("it can be read")
    }

    /// Three folders that keep to the table.
    const TOP: (&str, &str) = ("top/mod.rs", "use crate::low;\nfn f() { low::g() }\n");
    const MID: (&str, &str) = ("mid/mod.rs", "use crate::Low;\nuse crate::base::X;\n");
    const LOW: (&str, &str) = ("low/mod.rs", "use crate::base;\npub struct Low;\n#[cfg(test)]\nuse crate::top;\n");

    #[test]
    fn imports_that_go_down_are_left_alone() {
        assert_eq!(rows(TABLE).iter().map(|row| row.folder.as_str()).collect::<Vec<_>>(), ["top", "mid", "low"]);
        assert_eq!(rows(TABLE)[1].imports, ["low"]);
        assert!(offences_of(&[TOP, MID, LOW], TABLE).is_empty());
        let text = "macro_rules! m { () => { pub use $crate::low::Low; } }\nuse {crate::low::Low, std::fmt};\n";
        assert!(offences_of(&[TOP, MID, LOW, ("low/inner.rs", text)], TABLE).is_empty());
    }

    #[test]
    fn an_import_that_goes_up_is_told_with_file_line_folders_and_cure() {
        let low = ("low/inner.rs", "//! x\n\nfn f() {\n    crate::top::g();\n}\n");
        let offences = offences_of(&[TOP, MID, LOW, low], TABLE);
        assert_eq!(offences.len(), 1, "{offences:?}");
        for part in ["trust/src/low/inner.rs:4: `low/` imports `top/` (`top::g`)", "above it", "a trait"] {
            assert!(offences[0].contains(part), "{offences:?}");
        }
    }

    #[test]
    fn an_import_that_is_not_in_the_table_is_told() {
        let offences = offences_of(&[("top/mod.rs", "use crate::{\n    low,\n    mid::M,\n};\n"), MID, LOW], TABLE);
        assert_eq!(offences.len(), 1, "{offences:?}");
        assert!(offences[0].contains("trust/src/top/mod.rs:3: `top/` imports `mid/` (`mid::M`)"), "{offences:?}");
        assert!(offences[0].contains("does not name"), "{offences:?}");
    }

    #[test]
    fn a_file_at_the_root_imports_no_folder() {
        let offences = offences_of(&[TOP, MID, LOW, ("base.rs", "use crate::low::Low;\n")], TABLE);
        assert!(offences[0].contains("trust/src/base.rs:1: a file at the root"), "{offences:?}");
    }

    #[test]
    fn a_table_that_is_stale_or_goes_up_is_told() {
        let stale = TABLE
            .replace("| calls `top/` | `low/` |", "| m | `top/` `low/` |")
            .replace("`low/` | b | |", "`low/` | b | `mid/` |");
        let offences = offences_of(&[("top/mod.rs", ""), MID, LOW], &stale);
        let told = |text: &str| assert!(offences.iter().any(|offence| offence.contains(text)), "{text}: {offences:?}");
        told("docs/ARCHITECTURE.md:5: `top/` does not import `low/`");
        told("docs/ARCHITECTURE.md:6: `mid/` may import rows below it only, and `top/` is none");
        told("docs/ARCHITECTURE.md:7: `low/` may import rows below it only, and `mid/` is none");
        let offences = offences_of(&[TOP, LOW, ("new/mod.rs", "")], TABLE);
        assert!(
            offences.iter().any(|offence| offence.contains("trust/src/new/mod.rs:1: `new/` has no row")),
            "{offences:?}"
        );
        assert!(
            offences.iter().any(|offence| offence.contains(":6: there is no folder `trust/src/mid/`")),
            "{offences:?}"
        );
        assert!(offences_of(&[TOP], "# A page\n")[0].contains("no table"));
    }

    #[test]
    fn files_that_import_each_other_are_told_but_for_parents_and_children() {
        let a = ("low/a.rs", "use super::b::B;\nuse super::Parent;\n");
        let b = ("low/b.rs", "use crate::low::c;\nfn f() { c::C::new() }\n");
        let c = ("low/c.rs", "pub use crate::low::Again;\n");
        let parent = ("low/mod.rs", "mod a;\nmod b;\nmod c;\nuse a::x;\npub use a::A as Again;\n");
        let offences = offences_of(&[TOP, MID, parent, a, b, c], TABLE);
        assert_eq!(offences.len(), 3, "{offences:?}");
        assert!(
            offences[0].contains("trust/src/low/a.rs:1: imports `low::b::B` of low/b.rs, which leads back"),
            "{offences:?}"
        );
        assert!(offences[0].contains("(low/b.rs -> low/c.rs -> low/a.rs)"), "{offences:?}");
        let known =
            |count: usize| circles_but_known(&graph(&[TOP, MID, parent, a, b, c]), "x/src", &[("x/src", count)]);
        assert!(known(3).is_empty());
        assert_eq!(known(2).len(), 3, "one is new: all are told");
        assert!(known(4)[0].contains("x/src has 3 imports in circles, fewer than the 4"), "{:?}", known(4));
        let offences = offences_of(&[TOP, MID, parent, a, ("low/b.rs", ""), c], TABLE);
        assert!(offences.is_empty(), "{offences:?}");
    }
}
