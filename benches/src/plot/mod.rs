//! `plot`: a JSON file of results as SVG, one file a series.
//!
//! Lines over an x axis here, bars in bars.rs. Drawn with plotters' SVG backend alone: no fonts of the system are
//! needed. Not here: measuring.

mod bars;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use plotters::{
    coord::ranged1d::{Ranged, ValueFormatter},
    prelude::*,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{machine::Machine, report::spread};

/// Options of `plot`.
#[derive(Debug, Args)]
pub struct Plot {
    /// A file that a measuring command wrote with --json.
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
    options: Value,
    results: Value,
}

impl File {
    /// The results, or the part of them that has this name.
    fn results<T: DeserializeOwned>(&self, part: Option<&str>) -> Result<T> {
        let shape = || format!("these are no results of {}", self.command);
        let results = match part {
            Some(part) => self.results.get(part).ok_or_else(|| anyhow!("there are no {part}")).with_context(shape)?,
            None => &self.results,
        };
        serde_json::from_value(results.clone()).with_context(shape)
    }
}

/// One picture: lines over an x axis. Its name follows that of the file of results.
pub struct Picture {
    name: String,
    title: String,
    axes: (&'static str, &'static str),
    /// Whether the x axis is linear; else it is logarithmic. The y axis always is.
    has_linear_x: bool,
    lines: BTreeMap<String, Vec<Dot>>,
}

/// A median with its spread.
#[derive(Clone, Copy)]
pub struct Dot {
    pub x: f64,
    pub y: f64,
    pub low: f64,
    pub high: f64,
}

impl Dot {
    /// A median among its samples.
    pub fn among(x: f64, y: f64, samples: impl Iterator<Item = f64>) -> Dot {
        let (low, high) = samples.fold((y, y), |(low, high), sample| (low.min(sample), high.max(sample)));
        Dot { x, y, low, high }
    }

    /// A value without a spread.
    pub fn alone(x: f64, y: f64) -> Dot {
        Dot { x, y, low: y, high: y }
    }
}

impl Picture {
    /// Adds a dot to the line of a contender.
    pub fn add(&mut self, contender: &str, dot: Dot) {
        self.lines.entry(contender.to_owned()).or_default().push(dot);
    }

    /// With a linear x axis, which may begin at zero.
    pub fn linear(&mut self) -> &mut Picture {
        self.has_linear_x = true;
        self
    }

    /// How many places of the x axis have dots.
    fn places(&self) -> usize {
        self.lines.values().flatten().map(|dot| dot.x.to_bits()).collect::<BTreeSet<_>>().len()
    }
}

/// Pictures in the making, by name.
#[derive(Default)]
pub struct Album(BTreeMap<String, Picture>);

impl Album {
    /// The picture of this name, with the labels of its x and y axes.
    pub fn picture(
        &mut self,
        name: String,
        title: impl FnOnce() -> String,
        axes: (&'static str, &'static str),
    ) -> &mut Picture {
        let new = |name| Picture { name, title: title(), axes, has_linear_x: false, lines: BTreeMap::new() };
        self.0.entry(name.clone()).or_insert_with(|| new(name))
    }

    /// All of them.
    pub fn pictures(self) -> Vec<Picture> {
        self.0.into_values().collect()
    }

    /// Those that compare at least two places of their x axes.
    pub fn pictures_with_lines(self) -> Vec<Picture> {
        self.0.into_values().filter(|picture| picture.places() > 1).collect()
    }
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
    fs::create_dir_all(&options.out).with_context(|| format!("{} cannot be made", options.out.display()))?;
    // Named after their file: two files of one command have pictures of their own.
    let stem = options.json.file_stem().unwrap_or_default().to_string_lossy();
    if matches!(file.command.as_str(), "busy" | "parts" | "targets") {
        return bars::draw_all(&file, &stem, &options.out).with_context(|| format!("{path} cannot be drawn"));
    }
    let pictures = pictures(&file).with_context(|| format!("{path} cannot be drawn"))?;
    ensure!(!pictures.is_empty(), "{path} holds no samples");
    for picture in &pictures {
        let out = options.out.join(format!("{stem}-{}.svg", picture.name));
        draw(picture, &file.machine, &out).with_context(|| format!("{} cannot be drawn", out.display()))?;
        println!("{}", out.display());
    }
    Ok(())
}

fn pictures(file: &File) -> Result<Vec<Picture>> {
    Ok(match file.command.as_str() {
        "fetch-add" => {
            let has_pause = file.options.pointer("/common/pause") == Some(&Value::Bool(true));
            crate::fetch_add::pictures(&file.results::<Vec<_>>(None)?, has_pause)
        }
        "latency" => crate::latency::pictures(&file.results::<Vec<_>>(None)?),
        "echo" => crate::echo::pictures(&file.results::<Vec<_>>(Some("series"))?),
        "kv" => crate::kv::pictures(file.results(Some("tables"))?, file.results(Some("servers"))?),
        "memcached" => crate::memcached::pictures(&file.results::<Vec<_>>(Some("series"))?),
        "array" => crate::array::pictures(&file.results::<Vec<_>>(Some("series"))?),
        "sssp" => crate::sssp::pictures(&file.results::<Vec<_>>(Some("series"))?),
        other => bail!("there is no picture of results of {other:?}"),
    })
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
        "dijkstra" => RGBColor(90, 90, 90),
        "kv" => RGBColor(214, 39, 40),
        "kv-dedicated" => RGBColor(255, 152, 150),
        "mutex" => RGBColor(31, 119, 180),
        "rwlock" => RGBColor(188, 189, 34),
        "memcached" => RGBColor(0, 0, 0),
        "stock" => RGBColor(31, 119, 180),
        "together" => RGBColor(23, 190, 207),
        "delegated" => RGBColor(214, 39, 40),
        "default" => RGBColor(214, 39, 40),
        "spin-0" | "spin-20us" | "spin-500us" | "spin-2ms" => RGBColor(255, 187, 120),
        "std-mpsc" => RGBColor(188, 189, 34),
        _ => RGBColor(170, 170, 170),
    }
}

fn draw(picture: &Picture, machine: &Machine, out: &Path) -> Result<()> {
    let dots = || picture.lines.values().flatten();
    let has_place = |dot: &Dot| (picture.has_linear_x || dot.x > 0.0) && dot.low > 0.0 && dot.high.is_finite();
    ensure!(dots().all(has_place), "a logarithmic axis needs values over zero");
    let ends = |pick: fn(&Dot) -> f64| spread(dots().map(pick));
    let (left, right) = ends(|dot| dot.x);
    let bottom = ends(|dot| dot.low).0;
    let top = ends(|dot| dot.high).1;
    let root = SVGBackend::new(out, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(&picture.title, (FONT, 22))?;
    let (body, foot) = root.split_vertically(SIZE.1 - 60);
    let (plot, legend) = body.split_horizontally(SIZE.0 - LEGEND_WIDTH);
    let mut chart = ChartBuilder::on(&plot);
    chart.margin(12).x_label_area_size(46).y_label_area_size(70);
    let y = (bottom / 1.3..top * 1.3).log_scale();
    if picture.has_linear_x {
        let edge = (right - left) / 20.0;
        draw_lines(picture, chart.build_cartesian_2d(left - edge..right + edge, y)?)?;
    } else {
        draw_lines(picture, chart.build_cartesian_2d((left / 1.3..right * 1.3).log_scale(), y)?)?;
    }
    draw_legend(picture, &legend)?;
    foot.draw(&Text::new(machine.to_string(), (14, 8), (FONT, 11).into_font().color(&RGBColor(90, 90, 90))))?;
    root.present()?;
    Ok(())
}

type Chart<'a, X, Y> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>;

fn draw_lines<'a, X, Y>(picture: &Picture, mut chart: Chart<'a, X, Y>) -> Result<()>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .x_desc(picture.axes.0)
        .y_desc(picture.axes.1)
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
