//! Results without an x axis as horizontal bars, one file a group: `parts` and `targets` in nanoseconds an operation,
//! `busy` in operations a second.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, Result, ensure};
use plotters::prelude::*;
use serde::Deserialize;

use super::{FONT, File, SIZE, colour};
use crate::{machine::Machine, report::Series};

/// One bar.
struct Bar {
    name: String,
    contender: String,
    length: f64,
    label: String,
}

/// Bars that belong together.
struct Group {
    name: String,
    unit: &'static str,
    bars: Vec<Bar>,
}

/// Draws all groups of a file.
///
/// # Errors
/// A file that holds no samples, or values that no bar can show; a file that cannot be written.
pub fn draw_all(file: &File, stem: &str, out: &Path) -> Result<()> {
    let groups = if file.command == "busy" { of_busy(file)? } else { of_parts(file)? };
    ensure!(!groups.is_empty(), "there are no samples");
    for group in groups {
        let path = out.join(format!("{stem}-{}.svg", group.name.replace([' ', ','], "-").replace("--", "-")));
        draw(&group, &file.machine, &path).with_context(|| format!("{} cannot be drawn", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Puts bars into their groups, which are sorted by name.
fn grouped(unit: &'static str, bars: impl Iterator<Item = (String, Bar)>) -> Vec<Group> {
    let mut groups: BTreeMap<String, Vec<Bar>> = BTreeMap::new();
    bars.for_each(|(group, bar)| groups.entry(group).or_default().push(bar));
    groups.into_iter().map(|(name, bars)| Group { name, unit, bars }).collect()
}

fn of_parts(file: &File) -> Result<Vec<Group>> {
    let series: Vec<Series> = file.results(Some("series"))?;
    let bars = series.into_iter().map(|series| {
        let ns = series.median_ns();
        let label = format!("{ns:.1} ns ({:.1} to {:.1})", 1e3 / series.max_mops, 1e3 / series.min_mops);
        (series.group, Bar { name: series.contender.clone(), contender: series.contender, length: ns, label })
    });
    Ok(grouped("nanoseconds an operation", bars))
}

/// A picture's part of a series of `busy`.
#[derive(Deserialize)]
struct BusySeries {
    condition: String,
    work: String,
    contender: String,
    median_mops: f64,
    min_mops: f64,
    max_mops: f64,
}

fn of_busy(file: &File) -> Result<Vec<Group>> {
    let series: Vec<BusySeries> = file.results(Some("series"))?;
    let bars = series.into_iter().map(|series| {
        let BusySeries { condition, work, contender, median_mops, min_mops, max_mops } = series;
        let label = format!("{median_mops:.3} ({min_mops:.3} to {max_mops:.3})");
        (condition, Bar { name: format!("{work}, {contender}"), contender, length: median_mops, label })
    });
    Ok(grouped("million operations a second", bars))
}

fn draw(Group { name, unit, bars }: &Group, machine: &Machine, out: &Path) -> Result<()> {
    const ROW: i32 = 34;
    const NAMES: i32 = 230;
    const LONGEST: f64 = 540.0;
    const TOP: i32 = 56;
    let height = TOP + ROW * bars.len() as i32 + 40;
    let longest = bars.iter().map(|bar| bar.length).fold(0.0, f64::max);
    ensure!(longest > 0.0 && longest.is_finite(), "the medians are not positive numbers");
    let root = SVGBackend::new(out, (SIZE.0, height as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    root.draw(&Text::new(format!("{name}: {unit} (median)"), (14, 14), (FONT, 20).into_font()))?;
    for (index, bar) in bars.iter().enumerate() {
        let top = TOP + ROW * index as i32;
        let right = NAMES + (bar.length / longest * LONGEST).max(1.0) as i32;
        root.draw(&Text::new(bar.name.clone(), (14, top + 5), (FONT, 15).into_font()))?;
        root.draw(&Rectangle::new([(NAMES, top), (right, top + ROW - 10)], colour(&bar.contender).filled()))?;
        root.draw(&Text::new(bar.label.clone(), (right + 6, top + 5), (FONT, 13).into_font()))?;
    }
    let grey = RGBColor(90, 90, 90);
    root.draw(&Text::new(machine.to_string(), (14, height - 22), (FONT, 11).into_font().color(&grey)))?;
    root.present()?;
    Ok(())
}
