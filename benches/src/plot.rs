//! `plot`: a JSON file of results as SVG, one file a series.
//!
//! Drawn with plotters' SVG backend alone: no fonts of the system are needed. Not here: measuring.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use plotters::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use crate::{fetch_add::FetchAddSeries, latency::Point, machine::Machine, report::Series};

/// Options of `plot`.
#[derive(Debug, Args)]
pub struct Plot {
    /// A file that `echo`, `fetch-add`, `kv`, `latency`, `parts`, `sssp` or `targets` wrote.
    #[arg(long)]
    json: PathBuf,
    /// Folder for the SVG files; made if it is not there.
    #[arg(long)]
    out: PathBuf,
}

#[derive(Deserialize)]
struct File {
    command: String,
    machine: Machine,
    results: Value,
}

/// One picture: lines over a logarithmic x axis.
pub struct Picture {
    pub name: String,
    pub title: String,
    pub x: &'static str,
    pub y: &'static str,
    pub lines: BTreeMap<String, Vec<Dot>>,
}

/// A median with its spread.
#[derive(Clone, Copy)]
pub struct Dot {
    pub x: f64,
    pub y: f64,
    pub low: f64,
    pub high: f64,
}

/// Reads the file and draws.
///
/// # Errors
/// A file that cannot be read, is not a file of results, or holds nothing to draw; a folder that
/// cannot be written.
pub fn command(options: Plot) -> Result<()> {
    let path = options.json.display();
    let text = fs::read_to_string(&options.json).with_context(|| format!("{path} cannot be read"))?;
    let file: File = serde_json::from_str(&text).with_context(|| format!("{path} is not a file of results"))?;
    let shape = || format!("{path} does not hold results of {}", file.command);
    let pictures = match file.command.as_str() {
        "fetch-add" => fetch_add(serde_json::from_value(file.results).with_context(shape)?),
        "latency" => latency(&serde_json::from_value::<Vec<Point>>(file.results).with_context(shape)?),
        #[cfg(feature = "trust")]
        "echo" => {
            let series = file.results.get("series").cloned().ok_or_else(|| anyhow!(shape()))?;
            crate::echo::pictures(&serde_json::from_value::<Vec<crate::echo::Series>>(series).with_context(shape)?)
        }
        "kv" => crate::kv::pictures(&file.results).with_context(shape)?,
        "memcached" => crate::memcached::pictures(&file.results).with_context(shape)?,
        #[cfg(feature = "trust")]
        "sssp" => {
            let series = file.results.get("series").cloned().ok_or_else(|| anyhow!(shape()))?;
            crate::sssp::pictures(&serde_json::from_value::<Vec<crate::sssp::Series>>(series).with_context(shape)?)
        }
        "parts" | "targets" => {
            let series = file.results.get("series").cloned().ok_or_else(|| anyhow!(shape()))?;
            bars(&serde_json::from_value::<Vec<Series>>(series).with_context(shape)?, &file, &options.out)?;
            return Ok(());
        }
        other => bail!("{path} holds results of {other:?}, which has no picture"),
    };
    ensure!(!pictures.is_empty(), "{path} holds no samples");
    fs::create_dir_all(&options.out).with_context(|| format!("{} cannot be made", options.out.display()))?;
    for picture in &pictures {
        let out = options.out.join(format!("{}.svg", picture.name));
        draw(picture, &file.machine, &out).with_context(|| format!("{} cannot be drawn", out.display()))?;
        println!("{}", out.display());
    }
    Ok(())
}

fn fetch_add(results: Vec<FetchAddSeries>) -> Vec<Picture> {
    let mut pictures: BTreeMap<(usize, String), Picture> = BTreeMap::new();
    for FetchAddSeries { dist, series } in results {
        let (threads, dist) = (series.threads, dist.to_string());
        let picture = pictures.entry((threads, dist.clone())).or_insert_with(|| Picture {
            name: format!("fetch-add-{dist}-{threads}-threads"),
            title: format!("Fetch-and-add, {threads} threads, {dist}"),
            x: "objects",
            y: "million operations a second (median, min to max)",
            lines: BTreeMap::new(),
        });
        picture.lines.entry(series.contender).or_default().push(Dot {
            x: series.objects as f64,
            y: series.median_mops,
            low: series.min_mops,
            high: series.max_mops,
        });
    }
    pictures.into_values().collect()
}

fn latency(points: &[Point]) -> Vec<Picture> {
    type Pick = fn(&Point) -> f64;
    let quantiles: [(&str, &str, Pick); 2] =
        [("mean", "mean", |point| point.latency.mean_ns), ("p999", "99.9th percentile", |point| point.latency.p999_ns)];
    let mut pictures = BTreeMap::new();
    for (short, long, pick) in quantiles {
        for point in points {
            let (objects, dist) = (point.objects, point.dist);
            let name = format!("latency-{objects}-{dist}-{short}");
            let picture = pictures.entry(name.clone()).or_insert_with(|| Picture {
                name,
                title: format!("Latency ({long}), {objects} objects, {dist}, {} threads", point.threads),
                x: "offered load, million operations a second",
                y: "microseconds (median of runs)",
                lines: BTreeMap::new(),
            });
            let us = pick(point) / 1e3;
            picture.lines.entry(point.contender.clone()).or_default().push(Dot {
                x: point.offered_mops,
                y: us,
                low: us,
                high: us,
            });
        }
    }
    pictures.into_values().collect()
}

const SIZE: (u32, u32) = (960, 600);
const LEGEND_WIDTH: u32 = 210;
const FONT: &str = "sans-serif";

/// One colour a contender, the same in all pictures: delegation warm, the rest cool.
fn colour(contender: &str) -> RGBColor {
    match contender {
        "std-mutex" => RGBColor(31, 119, 180),
        "parking_lot" => RGBColor(23, 190, 207),
        "spin" => RGBColor(44, 160, 44),
        "mcs" => RGBColor(120, 94, 160),
        "atomic" => RGBColor(90, 90, 90),
        "channel" => RGBColor(188, 189, 34),
        "channel-pipelined" => RGBColor(140, 140, 0),
        "apply" => RGBColor(255, 127, 14),
        "apply-dedicated" => RGBColor(255, 187, 120),
        "apply_then" => RGBColor(214, 39, 40),
        "apply_then-dedicated" => RGBColor(255, 152, 150),
        "bare-slots" => RGBColor(0, 0, 0),
        "dashmap" => RGBColor(23, 190, 207),
        "papaya" => RGBColor(44, 160, 44),
        "mutex-std" => RGBColor(31, 119, 180),
        "mutex-parking_lot" => RGBColor(120, 94, 160),
        "rwlock-std" => RGBColor(90, 90, 90),
        "rwlock-parking_lot" => RGBColor(188, 189, 34),
        "threads" => RGBColor(255, 187, 120),
        "shm" => RGBColor(214, 39, 40),
        "tcp" => RGBColor(255, 127, 14),
        "mpi" => RGBColor(23, 190, 207),
        "mpi-aggregated" => RGBColor(31, 119, 180),
        "mpi-tcp-aggregated" => RGBColor(120, 94, 160),
        "tonic" => RGBColor(44, 160, 44),
        _ => RGBColor(170, 170, 170),
    }
}

fn draw(picture: &Picture, machine: &Machine, out: &Path) -> Result<()> {
    let dots = || picture.lines.values().flatten();
    ensure!(
        dots().all(|dot| dot.x > 0.0 && dot.low > 0.0 && dot.high.is_finite()),
        "a logarithmic axis needs values over zero"
    );
    let ends = |pick: fn(&Dot) -> f64| {
        dots().map(pick).fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)))
    };
    let (left, right) = ends(|dot| dot.x);
    let bottom = ends(|dot| dot.low).0;
    let top = ends(|dot| dot.high).1;
    let root = SVGBackend::new(out, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(&picture.title, (FONT, 22))?;
    let (body, foot) = root.split_vertically(SIZE.1 - 60);
    let (plot, legend) = body.split_horizontally(SIZE.0 - LEGEND_WIDTH);
    let mut chart = ChartBuilder::on(&plot)
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(70)
        .build_cartesian_2d((left / 1.3..right * 1.3).log_scale(), (bottom / 1.3..top * 1.3).log_scale())?;
    chart
        .configure_mesh()
        .x_desc(picture.x)
        .y_desc(picture.y)
        .x_label_formatter(&|value| number(*value))
        .y_label_formatter(&|value| number(*value))
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15))
        .light_line_style(RGBColor(240, 240, 240))
        .bold_line_style(RGBColor(215, 215, 215))
        .draw()?;
    for (contender, dots) in &picture.lines {
        let style = colour(contender).stroke_width(if contender.starts_with("apply") { 3 } else { 2 });
        chart.draw_series(LineSeries::new(dots.iter().map(|dot| (dot.x, dot.y)), style))?;
        chart.draw_series(
            dots.iter().map(|dot| PathElement::new(vec![(dot.x, dot.low), (dot.x, dot.high)], style.stroke_width(1))),
        )?;
        chart.draw_series(dots.iter().map(|dot| Circle::new((dot.x, dot.y), 4, colour(contender).filled())))?;
    }
    draw_legend(picture, &legend)?;
    foot.draw(&Text::new(machine.to_string(), (14, 8), (FONT, 11).into_font().color(&RGBColor(90, 90, 90))))?;
    root.present()?;
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Contenders by their last median, so that names stand in the order of the lines' right ends.
fn draw_legend(picture: &Picture, area: &Area<'_>) -> Result<()> {
    let mut lines: Vec<_> = picture.lines.iter().filter_map(|(name, dots)| Some((name, dots.last()?.y))).collect();
    lines.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (row, (contender, _)) in lines.into_iter().enumerate() {
        let y = 24 + 26 * row as i32;
        area.draw(&PathElement::new(vec![(4, y), (34, y)], colour(contender).stroke_width(3)))?;
        area.draw(&Circle::new((19, y), 4, colour(contender).filled()))?;
        area.draw(&Text::new(contender.clone(), (42, y - 7), (FONT, 15).into_font()))?;
    }
    Ok(())
}

fn number(value: f64) -> String {
    match value {
        large if large >= 1e6 => format!("{}M", large / 1e6),
        large if large >= 1e3 => format!("{}k", large / 1e3),
        small => format!("{small}"),
    }
}

/// `parts` and `targets`: horizontal bars of nanoseconds an operation, a picture a group.
fn bars(series: &[Series], file: &File, out: &Path) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("{} cannot be made", out.display()))?;
    let groups: BTreeSet<&str> = series.iter().map(|series| series.group.as_str()).collect();
    ensure!(!groups.is_empty(), "there are no samples");
    for group in groups {
        let rows: Vec<&Series> = series.iter().filter(|series| series.group == group).collect();
        let path = out.join(format!("{}-{}.svg", file.command, group.replace([' ', ','], "-").replace("--", "-")));
        draw_bars(group, &rows, &file.machine, &path).with_context(|| format!("{} cannot be drawn", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

fn draw_bars(group: &str, rows: &[&Series], machine: &Machine, out: &Path) -> Result<()> {
    const ROW: i32 = 34;
    const NAMES: i32 = 230;
    const LONGEST: f64 = 540.0;
    const TOP: i32 = 56;
    let height = TOP + ROW * rows.len() as i32 + 40;
    let slowest = rows.iter().map(|row| row.median_ns()).fold(0.0, f64::max);
    ensure!(slowest > 0.0 && slowest.is_finite(), "the medians are not positive numbers");
    let root = SVGBackend::new(out, (SIZE.0, height as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    root.draw(&Text::new(format!("{group}: nanoseconds an operation (median)"), (14, 14), (FONT, 20).into_font()))?;
    for (index, row) in rows.iter().enumerate() {
        let top = TOP + ROW * index as i32;
        let right = NAMES + (row.median_ns() / slowest * LONGEST).max(1.0) as i32;
        root.draw(&Text::new(row.contender.clone(), (14, top + 5), (FONT, 15).into_font()))?;
        root.draw(&Rectangle::new([(NAMES, top), (right, top + ROW - 10)], colour(&row.contender).filled()))?;
        let label = format!("{:.1} ns ({:.1} to {:.1})", row.median_ns(), 1e3 / row.max_mops, 1e3 / row.min_mops);
        root.draw(&Text::new(label, (right + 6, top + 5), (FONT, 13).into_font()))?;
    }
    let grey = RGBColor(90, 90, 90);
    root.draw(&Text::new(machine.to_string(), (14, height - 22), (FONT, 11).into_font().color(&grey)))?;
    root.present()?;
    Ok(())
}
