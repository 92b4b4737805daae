//! The table in words: a heading, a line for each program, the sums.
//!
//! Here: columns. Not here: the outcomes (`mod`).
//!
//! Invariant: a line is complete when its program has ended, so that a table that is cut off says what it can.

use super::{Outcome, Row};

/// Characters of a program's name.
const NAME: usize = 34;
/// Characters of a message.
const MESSAGE: usize = 150;

/// The heading for runs in these ways.
pub fn heading(ways: &[String]) -> String {
    let over: String = ways.iter().map(|way| format!(" {:>14}", format!("{way}, s"))).collect();
    format!("{:<NAME$} {:>8} {:>8}{over}  message", "program", "1, s", "2, s")
}

/// The line of a program.
pub fn line(row: &Row) -> String {
    if let Some(why) = &row.skipped {
        return format!("{:<NAME$} SKIPPED: {why}", row.name);
    }
    let over: String = row
        .over
        .iter()
        .map(|(_, outcome, seconds)| format!(" {:>14}", format!("{} {seconds:.2}", word(outcome))))
        .collect();
    let message = row.over.iter().find_map(|(_, outcome, _)| match outcome {
        Outcome::Right => None,
        Outcome::Refused(why) | Outcome::Wrong(why) | Outcome::Hangs(why) => Some(why.as_str()),
    });
    let message: String = message.unwrap_or_default().chars().take(MESSAGE).collect();
    let [one, two] = row.plain_s;
    format!("{:<NAME$} {one:>8.2} {two:>8.2}{over}  {message}", row.name).trim_end().to_owned()
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Right => "right",
        Outcome::Refused(_) => "refused",
        Outcome::Wrong(_) => "WRONG",
        Outcome::Hangs(_) => "HANGS",
    }
}

/// The sums of a table.
pub fn sum(rows: &[Row]) -> String {
    let count = |is: &dyn Fn(&Outcome) -> bool| {
        rows.iter().flat_map(|row| &row.over).filter(|(_, outcome, _)| is(outcome)).count()
    };
    let ran = rows.iter().filter(|row| row.skipped.is_none()).count();
    format!(
        "{ran} programs, {} runs over machines: {} right, {} refused, {} wrong, {} hang; {} programs skipped",
        rows.iter().map(|row| row.over.len()).sum::<usize>(),
        count(&|outcome| *outcome == Outcome::Right),
        count(&|outcome| matches!(outcome, Outcome::Refused(_))),
        count(&|outcome| matches!(outcome, Outcome::Wrong(_))),
        count(&|outcome| matches!(outcome, Outcome::Hangs(_))),
        rows.len() - ran
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_verdict_and_time_of_each_way() {
        let over = vec![
            ("shm".to_owned(), Outcome::Right, 0.5),
            ("tcp".to_owned(), Outcome::Wrong("status 0 and another answer".to_owned()), 2.0),
        ];
        let row = Row { name: "pigz", skipped: None, plain_s: [0.2, 0.1], over };
        let line = line(&row);
        assert!(line.starts_with("pigz ") && line.ends_with("status 0 and another answer"), "{line}");
        assert!(line.contains("0.20     0.10") && line.contains("right 0.50") && line.contains("WRONG 2.00"), "{line}");
        assert!(heading(&["shm".to_owned()]).contains("shm, s"));
        let skipped = Row { name: "x", skipped: Some("not installed".to_owned()), plain_s: [0.0; 2], over: vec![] };
        assert!(super::line(&skipped).contains("SKIPPED: not installed"));
        assert!(
            sum(&[row, skipped]).starts_with("1 programs, 2 runs over machines: 1 right, 0 refused, 1 wrong, 0 hang")
        );
    }
}
