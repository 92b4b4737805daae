//! Graphs from files: DIMACS (.gr), Matrix Market (.mtx), edge lists as those of SNAP, each plain or gzip.
//!
//! Each line is an edge both ways. The format follows from the file's name, or from its first bytes; a byte order mark
//! (BOM) before it is skipped. Nothing in a file makes this panic; an error names the file and the line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use crate::metis::{self, Metis};
use crate::{Edge, VERTICES_MAX, Vertex};

/// A graph as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing {
    /// Number of vertices, those without edges included.
    pub vertices: u32,
    /// The number that the file has for the first of them: 1 in DIMACS and Matrix Market files.
    pub first: Vertex,
    /// The edges, in the order of the file, with vertices counted from 0.
    pub edges: Vec<Edge>,
}

/// A file that is no graph.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A line is not as the format has it.
    #[error("{}:{line}: {what}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: u64,
        /// The fault, and the form expected.
        what: String,
    },
}

/// Some editors begin files with it.
const BOM: char = '\u{feff}';
/// The longest line.
const LINE_BYTES_MAX: u64 = 1 << 16;
/// Vertices take memory, with or without edges: so many are possible, and so many more for each edge.
const FREE_VERTICES: u64 = 1 << 24;
const VERTICES_PER_EDGE: u64 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Dimacs,
    MatrixMarket,
    List,
}

/// Reads a graph; `progress` is called from time to time with the edges read so far.
///
/// # Errors
/// The file cannot be read; a line is wrong.
pub fn read(path: &Path, progress: impl FnMut(u64)) -> Result<Listing, FileError> {
    let unreadable = |error| FileError::Read { path: path.to_owned(), error };
    let mut file = BufReader::new(File::open(path).map_err(unreadable)?);
    let is_gzip = file.fill_buf().map_err(unreadable)?.starts_with(&[0x1f, 0x8b]);
    let bytes: Box<dyn Read> = if is_gzip { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let format = match name.rsplit_once('.') {
        Some((_, "gr")) => Some(Format::Dimacs),
        Some((_, "mtx")) => Some(Format::MatrixMarket),
        _ => None,
    };
    let mut reader = Reader::new(format, progress);
    let mut input = BufReader::with_capacity(1 << 16, bytes);
    let mut text = Vec::new();
    loop {
        text.clear();
        reader.line += 1;
        let result = match (&mut input).take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut text) {
            Ok(0) => break,
            Ok(_) if text.len() as u64 > LINE_BYTES_MAX => Err(format!("a line has at most {LINE_BYTES_MAX} bytes")),
            Ok(_) => std::str::from_utf8(&text).map_err(|_| "it is not text (UTF-8)".to_owned()),
            Err(error) if reader.line == 1 => return Err(unreadable(error)),
            Err(error) => Err(error.to_string()),
        };
        let line = result.map(|line| if reader.line == 1 { line.trim_start_matches(BOM) } else { line });
        let taken = line.and_then(|line| reader.take(line.trim()));
        taken.map_err(|what| FileError::Line { path: path.to_owned(), line: reader.line, what })?;
    }
    let line = reader.line;
    reader.finish().map_err(|what| FileError::Line { path: path.to_owned(), line, what })
}

/// Facts known so far.
struct Reader<P> {
    format: Option<Format>,
    progress: P,
    line: u64,
    /// Vertices and edges, where the file says how many there are.
    declared: Option<(u64, u64)>,
    /// Whether the entries have values (Matrix Market).
    has_banner: bool,
    has_values: bool,
    highest: Option<Vertex>,
    edges: Vec<Edge>,
    /// Whether the first line of a list was seen, and the other formats it may be.
    has_begun: bool,
    metis: Option<Metis>,
}

const EDGES_PER_PROGRESS: usize = 1 << 16;

impl<P: FnMut(u64)> Reader<P> {
    fn new(format: Option<Format>, progress: P) -> Self {
        Reader {
            format,
            progress,
            line: 0,
            declared: None,
            has_banner: false,
            has_values: false,
            highest: None,
            edges: Vec::new(),
            has_begun: false,
            metis: None,
        }
    }

    fn take(&mut self, line: &str) -> Result<(), String> {
        if line.is_empty() {
            self.note_words(&[]);
            return Ok(());
        }
        let format = *self.format.get_or_insert_with(|| {
            let is_dimacs = ["c", "p"].contains(&line.split_whitespace().next().unwrap_or_default());
            match () {
                () if line.to_lowercase().starts_with("%%matrixmarket") => Format::MatrixMarket,
                () if is_dimacs => Format::Dimacs,
                () => Format::List,
            }
        });
        match format {
            Format::Dimacs => self.take_dimacs(line),
            Format::MatrixMarket => self.take_matrix(line),
            Format::List => self.take_pair(line),
        }
    }

    fn take_dimacs(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["c", ..] => Ok(()),
            ["p", "sp", vertices, edges] if self.declared.is_none() => self.declare(vertices, vertices, edges),
            ["p", ..] => Err(format!("{line:?}: one line `p sp VERTICES ARCS` is expected")),
            ["a", from, to, weight] => self.add_counted(from, to, Some(weight)),
            _ => Err(format!("{line:?}: `a FROM TO WEIGHT`, `p sp VERTICES ARCS` or `c COMMENT` is expected")),
        }
    }

    fn take_matrix(&mut self, line: &str) -> Result<(), String> {
        if !self.has_banner {
            return self.take_banner(line);
        }
        if line.starts_with('%') {
            return Ok(());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [rows, columns, entries] if self.declared.is_none() => self.declare(rows, columns, entries),
            _ if self.declared.is_none() => Err(format!("{line:?}: `ROWS COLUMNS ENTRIES` is expected")),
            [row, column] if !self.has_values => self.add_counted(row, column, None),
            [row, column, value] if self.has_values => self.add_counted(row, column, Some(value)),
            _ if self.has_values => Err(format!("{line:?}: `ROW COLUMN VALUE` is expected")),
            _ => Err(format!("{line:?}: `ROW COLUMN` is expected")),
        }
    }

    fn take_banner(&mut self, line: &str) -> Result<(), String> {
        let expected = "`%%MatrixMarket matrix coordinate real|integer|pattern general|symmetric` is expected";
        let lower = line.to_lowercase();
        let words: Vec<&str> = lower.split_whitespace().collect();
        self.has_values = match words[..] {
            ["%%matrixmarket", "matrix", "coordinate", "real" | "integer", "general" | "symmetric"] => true,
            ["%%matrixmarket", "matrix", "coordinate", "pattern", "general" | "symmetric"] => false,
            _ => return Err(format!("{line:?}: {expected}")),
        };
        self.has_banner = true;
        Ok(())
    }

    fn take_pair(&mut self, line: &str) -> Result<(), String> {
        if line.starts_with(['#', '%']) {
            return Ok(());
        }
        let words: Vec<&str> = line.split([' ', '\t', ',']).filter(|word| !word.is_empty()).collect();
        if self.has_begun {
            self.note_words(&words);
        } else {
            self.has_begun = true;
            self.metis = Metis::of_header(&words);
            if Metis::is_certain(&words) {
                return Err(format!("{line:?}: {}", metis::HINT));
            }
        }
        match words[..] {
            [from, to] => self.add(number(from)?, number(to)?, None),
            [from, to, weight] => self.add(number(from)?, number(to)?, Some(weight)),
            _ => {
                let hint = self.metis.as_ref().map_or(String::new(), |_| format!("; {}", metis::HINT));
                Err(format!("{line:?}: `FROM TO` or `FROM TO WEIGHT` is expected{hint}"))
            }
        }
    }

    /// Reads a line of a list after its first one.
    fn note_words(&mut self, words: &[&str]) {
        self.metis.take_if(|metis| !metis.take(words));
    }

    /// Reads the declared numbers.
    fn declare(&mut self, rows: &str, columns: &str, edges: &str) -> Result<(), String> {
        let vertices = number(rows)?.max(number(columns)?);
        if vertices > VERTICES_MAX {
            return Err(format!("{vertices} vertices: at most {VERTICES_MAX} are possible"));
        }
        self.declared = Some((vertices, number(edges)?));
        Ok(())
    }

    /// An edge of vertices that are counted from 1.
    fn add_counted(&mut self, from: &str, to: &str, weight: Option<&str>) -> Result<(), String> {
        let Some((vertices, _)) = self.declared else {
            return Err("an edge comes before the line that says how many vertices there are".to_owned());
        };
        let (from, to) = (number(from)?, number(to)?);
        if let Some(bad) = [from, to].into_iter().find(|vertex| !(1..=vertices).contains(vertex)) {
            return Err(format!("there is no vertex {bad}: they are 1 to {vertices}"));
        }
        self.add(from - 1, to - 1, weight)
    }

    fn add(&mut self, from: u64, to: u64, weight: Option<&str>) -> Result<(), String> {
        let weight = weight.map_or(Ok(1.0), weight_of)?;
        let vertex = |vertex: u64| {
            Vertex::try_from(vertex)
                .ok()
                .filter(|vertex| u64::from(*vertex) < VERTICES_MAX)
                .ok_or_else(|| format!("vertex {vertex}: the highest possible is {}", VERTICES_MAX - 1))
        };
        let edge = Edge { from: vertex(from)?, to: vertex(to)?, weight };
        self.highest = self.highest.max(Some(edge.from.max(edge.to)));
        self.edges.push(edge);
        if self.edges.len().is_multiple_of(EDGES_PER_PROGRESS) {
            (self.progress)(self.edges.len() as u64);
        }
        Ok(())
    }

    fn finish(self) -> Result<Listing, String> {
        if self.metis.as_ref().is_some_and(Metis::is_whole) {
            return Err(format!("the lines are those of another format: {}", metis::HINT));
        }
        let found = self.edges.len() as u64;
        let vertices = match self.declared {
            Some((_, edges)) if edges != found => {
                return Err(format!("the file ends after {found} edges, but {edges} were announced"));
            }
            Some((vertices, _)) => vertices as u32,
            None if self.format.is_some_and(|format| format != Format::List) => {
                return Err("the file ends before the line that says how many vertices there are".to_owned());
            }
            None => self.highest.map_or(0, |highest| highest + 1),
        };
        if u64::from(vertices) > FREE_VERTICES + VERTICES_PER_EDGE * found {
            let lack = format!("{vertices} vertices are too many for {found} edges, and would only take memory");
            return Err(lack + ": renumber the vertices");
        }
        let first = Vertex::from(self.declared.is_some());
        Ok(Listing { vertices, first, edges: self.edges })
    }
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("{word:?} is not a whole number of 0 or more"))
}

/// Weights are kept as `f32`: a whole number that is not one would be another number.
fn weight_of(word: &str) -> Result<f32, String> {
    let exact: f64 = word.parse().map_err(|_| format!("{word:?} is not a number"))?;
    let weight = exact as f32;
    if !weight.is_finite() || exact < 0.0 {
        return Err(format!("weight {word}: it must be finite and 0 or more"));
    }
    if exact.fract() == 0.0 && f64::from(weight) != exact {
        return Err(format!("weight {word}: whole weights are exact up to 16777216 (2^24) only; scale them down"));
    }
    // -0.0 would sort before 0.0.
    Ok(weight.abs())
}
