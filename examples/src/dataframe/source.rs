//! The rows from CSV. Texts are coded: a number for each that there is.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, bail};

use super::generated::NO_LABEL;

/// Which columns of CSV files.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'a> {
    /// Name of the key column, in the rows' file and in that of the labels.
    pub key: &'a str,
    /// Name of the value column of the rows' file, a number.
    pub value: &'a str,
    /// Name of the label column of the labels' file.
    pub label: &'a str,
}

/// Texts, each with a number.
#[derive(Debug, Default)]
pub struct Codes(HashMap<String, u32>);

impl Codes {
    fn code(&mut self, text: &str) -> u32 {
        match self.0.get(text) {
            Some(code) => *code,
            None => {
                let code = self.0.len() as u32; // below the number of bytes of any file that fits
                self.0.insert(text.to_owned(), code);
                code
            }
        }
    }

    /// The texts by their numbers.
    pub fn texts(self) -> Vec<String> {
        let mut texts: Vec<(u32, String)> = self.0.into_iter().map(|(text, code)| (code, text)).collect();
        texts.sort_unstable();
        texts.into_iter().map(|(_, text)| text).collect()
    }
}

/// Reads all rows of a file, and hands on so many at a time. Returns the keys.
///
/// # Errors
/// It cannot be read, is no CSV with a line of headers, or has a wrong value in a column.
pub fn read_rows(
    path: &Path,
    columns: Columns<'_>,
    at_once: usize,
    mut take: impl FnMut(Vec<u32>, Vec<f64>),
) -> anyhow::Result<Codes> {
    let (mut reader, [key, value]) = open(path, [columns.key, columns.value])?;
    let (mut codes, mut record) = (Codes::default(), csv::StringRecord::new());
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    while reader.read_record(&mut record).with_context(|| path.display().to_string())? {
        let text = record.get(value).unwrap_or_default();
        let number: Option<f64> = text.trim().parse().ok().filter(|number: &f64| number.is_finite());
        let Some(number) = number else {
            let line = record.position().map_or(0, csv::Position::line);
            bail!("{}:{line}: {text:?} in column {:?} is not a finite number", path.display(), columns.value);
        };
        keys.push(codes.code(record.get(key).unwrap_or_default()));
        values.push(number);
        if keys.len() == at_once {
            take(std::mem::take(&mut keys), std::mem::take(&mut values));
        }
    }
    if !keys.is_empty() {
        take(keys, values);
    }
    Ok(codes)
}

/// Reads the label of each of these keys. Returns the labels by key, and their texts.
///
/// # Errors
/// Same as [`read_rows`]; a key that is there twice.
pub fn read_labels(path: &Path, columns: Columns<'_>, keys: &Codes) -> anyhow::Result<(Vec<u32>, Codes)> {
    let (mut reader, [key, label]) = open(path, [columns.key, columns.label])?;
    let (mut labels, mut codes) = (vec![NO_LABEL; keys.0.len()], Codes::default());
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).with_context(|| path.display().to_string())? {
        let text = record.get(key).unwrap_or_default();
        let Some(&key) = keys.0.get(text) else { continue };
        if labels[key as usize] != NO_LABEL {
            let line = record.position().map_or(0, csv::Position::line);
            bail!(
                "{}:{line}: {text:?} is in column {:?} for the second time: give each key one row",
                path.display(),
                columns.key
            );
        }
        labels[key as usize] = codes.code(record.get(label).unwrap_or_default());
    }
    Ok((labels, codes))
}

/// A file, and where these columns are.
fn open<const N: usize>(path: &Path, columns: [&str; N]) -> anyhow::Result<(csv::Reader<File>, [usize; N])> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let mut reader = csv::Reader::from_reader(file);
    let headers = reader.headers().with_context(|| path.display().to_string())?;
    let mut found = [0; N];
    for (found, column) in found.iter_mut().zip(columns) {
        let mut named = headers.iter().enumerate().filter(|(_, header)| header.trim() == column).map(|(at, _)| at);
        let there = || headers.iter().collect::<Vec<&str>>();
        let Some(at) = named.next() else {
            bail!("{} has no column {column:?}; its first line has {:?}", path.display(), there());
        };
        if named.next().is_some() {
            bail!(
                "{} has several columns {column:?}: give each another name; its first line has {:?}",
                path.display(),
                there()
            );
        }
        *found = at;
    }
    Ok((reader, found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const COLUMNS: Columns<'static> = Columns { key: "who", value: "paid", label: "where" };

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn rows_and_labels_come_from_files() {
        let rows = file("paid,note,who\n1.5,x,Ada\n2,\"a, b\",Bob\n -3 ,,Ada\n");
        let mut chunks = Vec::new();
        let keys = read_rows(rows.path(), COLUMNS, 2, |keys, values| chunks.push((keys, values))).unwrap();
        assert_eq!(chunks, [(vec![0, 1], vec![1.5, 2.0]), (vec![0], vec![-3.0])]);
        let labels = file("who,where\nEve,Rome\nBob,Oslo\n");
        let (labels, texts) = read_labels(labels.path(), COLUMNS, &keys).unwrap();
        assert_eq!(
            (labels, texts.texts(), keys.texts()),
            (vec![NO_LABEL, 0], vec!["Oslo".to_owned()], vec!["Ada".to_owned(), "Bob".to_owned()])
        );
    }

    #[test]
    fn files_of_other_systems_are_read() {
        let rows = file("\u{feff}who ,,paid\r\nAda,,1.5 \r\nBob,, 2\r\n");
        let mut all = Vec::new();
        let keys = read_rows(rows.path(), COLUMNS, 9, |keys, values| all.push((keys, values))).unwrap();
        assert_eq!(all, [(vec![0, 1], vec![1.5, 2.0])]);
        let labels = file("\u{feff}where,who\r\nOslo,Bob\r\n");
        let (labels, texts) = read_labels(labels.path(), COLUMNS, &keys).unwrap();
        assert_eq!((labels, texts.texts()), (vec![NO_LABEL, 0], vec!["Oslo".to_owned()]));
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        fn said(text: &str) -> String {
            format!("{:#}", read_rows(file(text).path(), COLUMNS, 9, |_, _| ()).unwrap_err())
        }
        assert!(
            said("who,paid\nAda,1\nBob,much\n").ends_with(":3: \"much\" in column \"paid\" is not a finite number")
        );
        for cell in ["NaN", "inf", "-inf", "Infinity", "1e400", "-1e400", "", " "] {
            let text = said(&format!("who,paid\nAda,{cell}\n"));
            assert!(text.ends_with(&format!(":2: {cell:?} in column \"paid\" is not a finite number")), "{text}");
        }
        for twice in ["who,paid,paid\nAda,1,2\n", "who,paid,who\nAda,1,2\n", "who,paid, paid \r\nAda,1,2\r\n"] {
            let text = said(twice);
            assert!(text.contains("has several columns") && text.contains("its first line has"), "{text}");
        }
        // The line of headers again, as of files that were put together.
        assert!(said("who,paid\nAda,1\nwho,paid\n").ends_with("\"paid\" in column \"paid\" is not a finite number"));
        assert!(said("who,spent\n").ends_with("has no column \"paid\"; its first line has [\"who\", \"spent\"]"));
        assert!(said("who,paid\nAda\n").contains("1 field"), "{}", said("who,paid\nAda\n"));
        let mut keys = Codes::default();
        keys.code("Ada");
        let twice = file("who,where\nAda,Rome\nAda,Oslo\n");
        let said = read_labels(twice.path(), COLUMNS, &keys).unwrap_err().to_string();
        assert!(
            said.ends_with(":3: \"Ada\" is in column \"who\" for the second time: give each key one row"),
            "{said}"
        );
        let said = format!("{:#}", read_rows(Path::new("/no/such.csv"), COLUMNS, 9, |_, _| ()).unwrap_err());
        assert!(said.starts_with("/no/such.csv: No such file"), "{said}");
    }
}
