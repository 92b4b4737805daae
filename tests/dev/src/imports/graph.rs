//! Which file of a crate imports which: found in `use` declarations and in paths, by the names of modules.
//!
//! Here: the modules of a crate, by the places of their files; the paths in their code; the target of a path, also by
//! way of a name that another module passes on (`pub use`). Not here: which imports there may be. Code made by macros
//! is not seen, nor are methods: a caller of one has the type from somewhere, and that import is seen.
//!
//! Invariant: lines under `#[cfg(test)]`, and files that are declared so, have no imports.

use crate::house::text;
use anyhow::Context as _;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

/// The names of a path.
type Names = Vec<String>;

/// First place at which a file uses another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// The importing file, and the file of the imported item, by their numbers.
    pub from: usize,
    pub to: usize,
    /// Number of the line, from 1.
    pub line: usize,
    /// The path, from the root of the crate.
    pub what: String,
}

/// The files of a crate, and their imports.
pub struct Graph {
    /// Each file's name below the root, and its module.
    files: Vec<(PathBuf, Names)>,
    folders: BTreeSet<String>,
    imports: Vec<Import>,
    /// Files that each file imports, parents and children left out.
    next: Vec<BTreeSet<usize>>,
}

impl Graph {
    /// Reads all sources under the root of a crate, which has a `lib.rs` or a `main.rs`.
    pub fn read(root: &Path) -> anyhow::Result<Graph> {
        let mut sources = Vec::new();
        for path in crate::house::rust_files(root)? {
            let name = path.strip_prefix(root).context("a file outside of its folder")?.to_path_buf();
            if !crate::house::is_test_file(&name, &path) {
                let source = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                sources.push((module_of(&name), name, Source::read(&source)));
            }
        }
        // A file of tests may have files of its own.
        let known: HashSet<Names> = sources.iter().map(|(module, ..)| module.clone()).collect();
        sources.retain(|(module, ..)| module.is_empty() || known.contains(&module[..module.len() - 1]));
        let folders =
            sources.iter().filter(|(_, name, _)| name.ends_with("mod.rs")).map(|(module, ..)| module[0].clone());
        let resolver = Resolver::new(sources.iter().map(|(module, _, source)| (module, source)));
        let imports = resolver.imports(sources.iter().map(|(_, _, source)| source));
        let graph = Graph {
            folders: folders.collect(),
            files: sources.iter().map(|(module, name, _)| (name.clone(), module.clone())).collect(),
            next: Vec::new(),
            imports,
        };
        Ok(graph.linked())
    }

    /// Sets `next` as the imports say.
    fn linked(mut self) -> Graph {
        self.next = vec![BTreeSet::new(); self.files.len()];
        for index in 0..self.imports.len() {
            let Import { from, to, .. } = self.imports[index];
            if !self.are_kin(from, to) {
                self.next[from].insert(to);
            }
        }
        self
    }

    pub fn files(&self) -> usize {
        self.files.len()
    }

    pub fn imports(&self) -> &[Import] {
        &self.imports
    }

    /// The folders right below the root.
    pub fn folders(&self) -> &BTreeSet<String> {
        &self.folders
    }

    /// The file `lib.rs` or `main.rs`.
    pub fn root(&self) -> usize {
        self.files.iter().position(|(_, module)| module.is_empty()).unwrap_or(usize::MAX)
    }

    /// A file's name below the root.
    pub fn name(&self, file: usize) -> &Path {
        &self.files[file].0
    }

    /// The folder that a file is in; `None` for files at the root.
    pub fn folder(&self, file: usize) -> Option<&str> {
        let first = self.files[file].1.first()?;
        self.folders.contains(first).then_some(first)
    }

    /// Is one of them the parent of the other, or further up?
    pub fn are_kin(&self, one: usize, other: usize) -> bool {
        let (one, other) = (&self.files[one].1, &self.files[other].1);
        one.starts_with(other) || other.starts_with(one)
    }

    /// The shortest way by imports, both ends included.
    pub fn way(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        let mut before: HashMap<usize, usize> = HashMap::new();
        let mut queue = VecDeque::from([from]);
        while let Some(file) = queue.pop_front() {
            if file == to {
                let mut way = vec![to];
                while way[way.len() - 1] != from {
                    way.push(before[&way[way.len() - 1]]);
                }
                way.reverse();
                return Some(way);
            }
            for &next in &self.next[file] {
                if next != from && !before.contains_key(&next) {
                    before.insert(next, file);
                    queue.push_back(next);
                }
            }
        }
        None
    }
}

/// The module of a file: `slot/mod.rs` is `slot`, `slot/cursor.rs` is `slot::cursor`, `lib.rs` and
/// `main.rs` are the crate.
fn module_of(name: &Path) -> Names {
    let mut names: Names = name.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if names.last().is_some_and(|last| last == "mod") || names == ["lib"] || names == ["main"] {
        names.pop();
    }
    names
}

/// A path as it stands in a file.
struct Mention {
    line: usize,
    /// Inline modules around it.
    inside: Names,
    names: Names,
    /// The name that a `use` makes of it, and whether others see that.
    alias: Option<(String, bool)>,
}

/// Names that a file mentions.
#[derive(Default)]
struct Source {
    mentions: Vec<Mention>,
}

struct Tokens {
    list: Vec<(String, usize)>,
    at: usize,
}

impl Tokens {
    fn of(source: &str) -> Tokens {
        let mut list = Vec::new();
        for (index, line) in text::lines(source).into_iter().enumerate().filter(|(_, line)| !line.test) {
            let mut rest = line.code.as_str();
            while let Some(first) = rest.chars().next() {
                let is_name = |c: char| c.is_alphanumeric() || c == '_';
                let length = if is_name(first) {
                    rest.find(|c| !is_name(c)).unwrap_or(rest.len())
                } else if rest.starts_with("::") {
                    2
                } else {
                    first.len_utf8()
                };
                let (token, behind) = rest.split_at(length);
                if !token.trim().is_empty() {
                    list.push((token.to_owned(), index + 1));
                }
                rest = behind;
            }
        }
        Tokens { list, at: 0 }
    }

    fn peek(&self, ahead: usize) -> &str {
        self.list.get(self.at + ahead).map_or("", |(token, _)| token)
    }

    fn line(&self) -> usize {
        self.list.get(self.at).map_or(0, |(_, line)| *line)
    }

    fn is_name(&self) -> bool {
        self.peek(0).starts_with(|c: char| c.is_alphabetic() || c == '_')
    }

    /// Reads `a::b::c`, up to the first token that is no name.
    fn path(&mut self) -> Names {
        let mut names = vec![self.peek(0).to_owned()];
        self.at += 1;
        while self.peek(0) == "::" && self.peek(1).starts_with(|c: char| c.is_alphabetic() || c == '_') {
            names.push(self.peek(1).to_owned());
            self.at += 2;
        }
        names
    }
}

impl Source {
    fn read(source: &str) -> Source {
        let mut tokens = Tokens::of(source);
        let mut read = Source::default();
        // Inline modules, each with the depth of braces around it.
        let (mut inside, mut depth): (Vec<(String, usize)>, usize) = (Vec::new(), 0);
        while tokens.at < tokens.list.len() {
            let around = || inside.iter().map(|(name, _)| name.clone()).collect::<Names>();
            match tokens.peek(0) {
                "{" => depth += 1,
                "}" => {
                    depth = depth.saturating_sub(1);
                    inside.retain(|(_, outside)| *outside < depth);
                }
                "mod" if tokens.peek(2) == "{" => {
                    inside.push((tokens.peek(1).to_owned(), depth));
                    tokens.at += 1;
                }
                // Not the bound `use<..>`.
                "use" if tokens.peek(1) != "<" => {
                    let is_public = tokens.at > 0 && {
                        let before = &tokens.list[tokens.at - 1].0;
                        before == "pub" || before == ")"
                    };
                    tokens.at += 1;
                    read.tree(&mut tokens, &[], &around(), is_public);
                    continue;
                }
                _ if tokens.is_name() && tokens.peek(1) == "::" => {
                    let line = tokens.line();
                    let names = tokens.path();
                    read.mentions.push(Mention { line, inside: around(), names, alias: None });
                    continue;
                }
                _ => {}
            }
            tokens.at += 1;
        }
        read
    }

    /// Reads one tree of a `use`, behind the path that leads to it.
    fn tree(&mut self, tokens: &mut Tokens, prefix: &[String], inside: &Names, is_public: bool) {
        let line = tokens.line();
        let mut names = prefix.to_vec();
        if tokens.is_name() {
            names.extend(tokens.path());
        }
        if tokens.peek(0) == "::" {
            tokens.at += 1;
        }
        match tokens.peek(0) {
            "{" => {
                tokens.at += 1;
                while !matches!(tokens.peek(0), "}" | "") {
                    self.tree(tokens, &names, inside, is_public);
                    if tokens.peek(0) == "," {
                        tokens.at += 1;
                    }
                }
                tokens.at += 1;
            }
            token => {
                let all = token == "*";
                tokens.at += usize::from(all);
                if names.last().is_some_and(|last| last == "self") && names.len() > 1 {
                    names.pop();
                }
                let mut alias = names.last().cloned();
                if tokens.peek(0) == "as" {
                    alias = Some(tokens.peek(1).to_owned());
                    tokens.at += 2;
                }
                let alias = alias.filter(|_| !all).map(|alias| (alias, is_public));
                // Nothing stands before the `$` of a macro's `$crate`, which is read as `crate` by itself.
                if !names.is_empty() {
                    self.mentions.push(Mention { line, inside: inside.clone(), names, alias });
                }
            }
        }
        if prefix.is_empty() && tokens.peek(0) == ";" {
            tokens.at += 1;
        }
    }
}

/// Finds the targets of paths.
struct Resolver<'a> {
    modules: Vec<&'a Names>,
    numbers: HashMap<&'a [String], usize>,
    /// Names that a module passes on; and its names for modules of others.
    passed_on: HashMap<(usize, &'a str), Names>,
    called: HashMap<(usize, &'a str), Names>,
}

impl<'a> Resolver<'a> {
    fn new(sources: impl Iterator<Item = (&'a Names, &'a Source)>) -> Resolver<'a> {
        let sources: Vec<(&Names, &Source)> = sources.collect();
        let mut resolver = Resolver {
            modules: sources.iter().map(|(module, _)| *module).collect(),
            numbers: sources.iter().enumerate().map(|(number, (module, _))| (module.as_slice(), number)).collect(),
            passed_on: HashMap::new(),
            called: HashMap::new(),
        };
        for (number, (_, source)) in sources.iter().enumerate() {
            for mention in &source.mentions {
                let Some((alias, is_public)) = &mention.alias else { continue };
                let Some(path) = resolver.absolute(number, mention) else { continue };
                if *is_public {
                    resolver.passed_on.insert((number, alias), path.clone());
                }
                resolver.called.insert((number, alias), path);
            }
        }
        resolver
    }

    /// A mentioned path from the root of the crate, if it is of this crate.
    fn absolute(&self, file: usize, mention: &Mention) -> Option<Names> {
        let mut module = [self.modules[file].as_slice(), &mention.inside].concat();
        let mut names = mention.names.as_slice();
        match names[0].as_str() {
            "crate" => return Some(names[1..].to_vec()),
            "self" => names = &names[1..],
            "super" => {
                while names.first().is_some_and(|name| name == "super") {
                    module.pop();
                    names = &names[1..];
                }
            }
            first => {
                module.push(first.to_owned());
                let is_child = self.numbers.contains_key(module.as_slice());
                module.pop();
                if !is_child {
                    let called = self.called.get(&(file, first)).filter(|_| mention.alias.is_none())?;
                    return Some([called, &names[1..]].concat());
                }
            }
        }
        Some([&module, names].concat())
    }

    /// The file that a path leads to.
    fn file(&self, path: &[String]) -> Option<usize> {
        let mut path = path.to_vec();
        // A name may be passed on a few times, and in a circle never ends.
        for _ in 0..8 {
            let length = (0..=path.len()).rev().find(|&length| self.numbers.contains_key(&path[..length]))?;
            let file = self.numbers[&path[..length]];
            let passed_on = path.get(length).and_then(|name| self.passed_on.get(&(file, name.as_str())));
            match passed_on {
                Some(target) if *target != path[..=length] => path = [target, &path[length + 1..]].concat(),
                _ => return Some(file),
            }
        }
        None
    }

    fn imports(&self, sources: impl Iterator<Item = &'a Source>) -> Vec<Import> {
        let mut imports: Vec<Import> = Vec::new();
        let mut known = HashSet::new();
        for (from, source) in sources.enumerate() {
            for mention in &source.mentions {
                let Some(path) = self.absolute(from, mention) else { continue };
                let Some(to) = self.file(&path).filter(|to| *to != from && !self.modules[*to].is_empty()) else {
                    continue;
                };
                // The first is enough to find the others.
                if known.insert((from, to)) {
                    imports.push(Import { from, to, line: mention.line, what: path.join("::") });
                }
            }
        }
        imports
    }
}
