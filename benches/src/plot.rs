//! `plot`: the pictures of a JSON file of results, as SVG.
//!
//! Here: which pictures each command has, as places in the file, and how lines and bars are drawn, with plotters' SVG
//! backend alone: no fonts of the system are needed. Not here: measuring.

use crate::prelude::*;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::*;
use std::collections::BTreeSet;
use std::fs;

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
    results: Value,
}

/// Pictures of a list of series: one for each name, of lines over an x axis.
struct Lines {
    command: &'static str,
    list: &'static str,
    only: &'static [(&'static str, &'static str)],
    /// Name and title, with names of fields in braces.
    name: &'static str,
    title: &'static str,
    axes: (&'static str, &'static str),
    /// The field with the name of a line.
    line: &'static str,
    x: fn(&Value) -> Option<f64>,
    y: fn(&Value) -> Option<f64>,
    /// The figure of a sample, where the spread is drawn.
    sample: fn(&Value) -> Option<f64>,
    /// Whether the x axis is linear; else it is logarithmic. The y axis always is.
    has_linear_x: bool,
}

fn number(value: &Value, at: &str) -> Option<f64> {
    value.pointer(at)?.as_f64()
}

const fn lines(command: &'static str, name: &'static str, title: &'static str) -> Lines {
    Lines {
        command,
        list: "/series",
        only: &[],
        name,
        title,
        axes: ("", ""),
        line: "/contender",
        x: |_| None,
        y: |one| number(one, "/median_mops"),
        sample: |_| None,
        has_linear_x: false,
    }
}

const MOPS: &str = "million operations a second (median, min to max)";
const KOPS: &str = "thousand operations a second (median, min to max)";
const REQUESTS: &str = "million requests a second (median, min to max)";

/// Searches of a run, and the mean of their times.
fn mean_time_s(searches: &Value) -> Option<f64> {
    let searches = searches.as_array()?;
    Some(searches.iter().filter_map(|search| number(search, "/time_s")).sum::<f64>() / searches.len() as f64)
}

fn mops_of_point(point: &Value) -> Option<f64> {
    Some(number(point, "/requests")? * 1e3 / number(point, "/elapsed_ns")?)
}

/// All of them, as the document links them.
const LINES: [Lines; 10] = [
    Lines {
        list: "",
        axes: ("objects", MOPS),
        x: |one| number(one, "/objects"),
        sample: |sample| number(sample, "/mops"),
        ..lines("fetch-add", "{dist}-{threads}-threads", "Fetch-and-add, {threads} threads, {dist}")
    },
    Lines {
        list: "",
        axes: ("offered load, million operations a second", "microseconds (median of runs)"),
        x: |one| number(one, "/offered_mops"),
        y: |one| Some(number(one, "/latency/mean_ns")? / 1e3),
        ..lines("latency", "{objects}-{dist}-mean", "Latency (mean), {objects} objects, {dist}, {threads} threads")
    },
    Lines {
        axes: ("bytes each way", REQUESTS),
        x: |one| number(one, "/bytes"),
        sample: mops_of_point,
        ..lines("echo", "{processes}-processes-over-bytes", "Echo between random peers, {processes} processes")
    },
    Lines {
        only: &[("/bytes", "32")],
        axes: (REQUESTS, "99.9th percentile, microseconds (median of runs)"),
        x: |one| number(one, "/median_mops"),
        y: |one| Some(number(one, "/p999_ns")? / 1e3),
        ..lines(
            "echo",
            "{processes}-processes-{bytes}-bytes-p999-over-rate",
            "Echo between random peers, {processes} processes, {bytes} bytes",
        )
    },
    Lines {
        list: "/servers/series",
        axes: ("keys", KOPS),
        line: "/server",
        x: |one| number(one, "/keys"),
        y: |one| number(one, "/median_kops"),
        sample: |sample| number(sample, "/kops"),
        ..lines("kv", "{dist}-{mix}", "Servers, {dist}, {mix}% writes")
    },
    Lines {
        list: "/servers/series",
        axes: ("writes, %", KOPS),
        line: "/server",
        x: |one| number(one, "/mix/Writes"),
        y: |one| number(one, "/median_kops"),
        sample: |sample| number(sample, "/kops"),
        has_linear_x: true,
        ..lines("kv", "{dist}-{keys}-keys", "Servers, {dist}, {keys} keys")
    },
    Lines {
        list: "/tables",
        axes: ("writes, %", MOPS),
        x: |one| number(one, "/writes"),
        sample: |sample| number(sample, "/mops"),
        has_linear_x: true,
        ..lines("kv", "{dist}-{objects}-keys", "Tables alone, {threads} threads, {dist}, {objects} keys")
    },
    Lines {
        only: &[("/work", "dense")],
        axes: ("increments of a chunk of 4 KiB", "million increments a second (median, min to max)"),
        x: |one| number(one, "/per_chunk"),
        sample: |sample| Some(number(sample, "/ops")? / number(sample, "/seconds")? / 1e6),
        ..lines("array", "dense", "Increments of another process' chunks, two processes")
    },
    Lines {
        axes: ("vertices", "million traversed edges a second (median)"),
        x: |one| Some(number(one, "/scale")?.exp2()),
        y: |one| number(one, "/median_mteps"),
        ..lines("sssp", "teps", "Shortest paths in a Kronecker graph, the best number of workers")
    },
    Lines {
        only: &[("/scale", "20")],
        axes: ("workers", "seconds a search (median of means, min to max)"),
        x: |one| number(one, "/workers"),
        y: |one| number(one, "/median_time_s"),
        sample: mean_time_s,
        has_linear_x: true,
        ..lines("sssp", "workers", "Shortest paths in a Kronecker graph of 2^20 vertices")
    },
];

/// A median with its spread.
#[derive(Clone, Copy)]
struct Dot {
    x: f64,
    y: f64,
    low: f64,
    high: f64,
}

/// One picture of lines by their names. Its own name follows that of the file of results.
struct Picture {
    title: String,
    lines: BTreeMap<String, Vec<Dot>>,
}

/// A value as a reader wants it: `{"Writes": 5}` is 5.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(fields) if fields.len() == 1 => fields.values().next().map_or(String::new(), text),
        other => other.to_string(),
    }
}

fn filled(pattern: &str, series: &Value) -> String {
    let mut filled = pattern.to_owned();
    for (field, value) in series.as_object().into_iter().flatten() {
        filled = filled.replace(&format!("{{{field}}}"), &text(value));
    }
    filled
}

impl Lines {
    /// Its pictures, by name; of several series of a line at one place the best counts. A picture of one place compares
    /// nothing.
    fn pictures(&self, results: &Value) -> BTreeMap<String, Picture> {
        let is_asked_for = |series: &&Value| {
            self.only.iter().all(|(at, wanted)| series.pointer(at).is_some_and(|value| text(value) == *wanted))
        };
        let mut pictures: BTreeMap<String, Picture> = BTreeMap::new();
        let list = results.pointer(self.list).and_then(Value::as_array).into_iter().flatten();
        for series in list.filter(is_asked_for) {
            // A run without operations has no place on a logarithmic axis.
            let (Some(x), Some(y)) = ((self.x)(series), (self.y)(series).filter(|y| *y > 0.0)) else { continue };
            let samples =
                series["samples"].as_array().into_iter().flatten().filter_map(self.sample).filter(|y| *y > 0.0);
            let (low, high) = samples.fold((y, y), |(low, high), sample| (low.min(sample), high.max(sample)));
            let picture = pictures.entry(filled(self.name, series));
            let picture =
                picture.or_insert_with(|| Picture { title: filled(self.title, series), lines: BTreeMap::new() });
            let line = picture.lines.entry(series.pointer(self.line).map_or(String::new(), text)).or_default();
            let dot = Dot { x, y, low, high };
            match line.iter_mut().find(|known| known.x == x) {
                Some(known) if known.y < y => *known = dot,
                Some(_) => {}
                None => line.push(dot),
            }
        }
        let places = |picture: &Picture| picture.lines.values().flatten().map(|dot| dot.x.to_bits()).collect();
        pictures.retain(|_, picture| BTreeSet::len(&places(picture)) > 1);
        pictures
    }
}

/// Reads the file and draws.
pub fn command(options: Plot) -> Result<()> {
    let path = options.json.display();
    let text = fs::read_to_string(&options.json).with_context(|| format!("{path} cannot be read"))?;
    let file: File = serde_json::from_str(&text).with_context(|| format!("{path} is not a file of results"))?;
    fs::create_dir_all(&options.out).with_context(|| format!("{} cannot be made", options.out.display()))?;
    // Named after their file: two files of one command have pictures of their own.
    let stem = options.json.file_stem().unwrap_or_default().to_string_lossy();
    let draw_as = |name: &str, draw: &dyn Fn(&Path) -> Result<()>| {
        let out = options.out.join(format!("{stem}-{name}.svg"));
        draw(&out).with_context(|| format!("{} cannot be drawn", out.display()))?;
        println!("{}", out.display());
        anyhow::Ok(())
    };
    for lines in LINES.iter().filter(|lines| lines.command == file.command) {
        for (name, picture) in lines.pictures(&file.results) {
            draw_as(&name, &|out| draw(lines, &picture, &file.machine, out))?;
        }
    }
    for (name, (unit, bars)) in bars(&file) {
        let file_name = name.replace([' ', ','], "-").replace("--", "-");
        draw_as(&file_name, &|out| draw_bars(&format!("{name}: {unit} (median)"), &bars, &file.machine, out))?;
    }
    Ok(())
}

/// Name, length and label.
type Bar = (String, f64, String);

/// Results without an x axis: groups of bars, with their unit. Nanoseconds an operation of `targets`, operations a
/// second of `busy` and `tune`.
fn bars(file: &File) -> BTreeMap<String, (&'static str, Vec<Bar>)> {
    let mut groups: BTreeMap<String, (&'static str, Vec<Bar>)> = BTreeMap::new();
    for series in file.results["series"].as_array().into_iter().flatten() {
        let mops = ["/median_mops", "/min_mops", "/max_mops"].map(|at| number(series, at).unwrap_or(f64::NAN));
        let (group, unit, bar) = match file.command.as_str() {
            "targets" => {
                let [ns, most, least] = mops.map(|mops| 1e3 / mops);
                let label = format!("{ns:.1} ns ({least:.1} to {most:.1})");
                ("{group}", "nanoseconds an operation", (filled("{contender}", series), ns, label))
            }
            "tune" => {
                let [mops, least, most] = mops;
                let label = format!("{mops:.3} ({least:.3} to {most:.3})");
                ("{group}", "million operations a second", (filled("{contender}", series), mops, label))
            }
            "busy" => {
                let [mops, least, most] = mops;
                let label = format!("{mops:.3} ({least:.3} to {most:.3})");
                ("{condition}", "million operations a second", (filled("{work}, {contender}", series), mops, label))
            }
            _ => continue,
        };
        groups.entry(filled(group, series)).or_insert_with(|| (unit, Vec::new())).1.push(bar);
    }
    groups
}

const SIZE: (u32, u32) = (960, 600);
const LEGEND_WIDTH: u32 = 210;
const FONT: &str = "sans-serif";
const GREY: RGBColor = RGBColor(90, 90, 90);

/// The colour of a line by its place among those of its picture.
fn colour(place: usize) -> RGBAColor {
    Palette99::pick(place).to_rgba()
}

fn draw(lines: &Lines, picture: &Picture, machine: &Machine, out: &Path) -> Result<()> {
    let dots = || picture.lines.values().flatten();
    let has_place = |dot: &Dot| (lines.has_linear_x || dot.x > 0.0) && dot.low > 0.0 && dot.high.is_finite();
    ensure!(dots().all(has_place), "a logarithmic axis needs values over zero");
    let ends = |pick: fn(&Dot) -> f64| spread(dots().map(pick));
    let ((left, right), (bottom, _), (_, top)) = (ends(|dot| dot.x), ends(|dot| dot.low), ends(|dot| dot.high));
    let root = SVGBackend::new(out, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(&picture.title, (FONT, 22))?;
    let (body, foot) = root.split_vertically(SIZE.1 - 60);
    let (plot, legend) = body.split_horizontally(SIZE.0 - LEGEND_WIDTH);
    let mut chart = ChartBuilder::on(&plot);
    chart.margin(12).x_label_area_size(46).y_label_area_size(70);
    let y = (bottom / 1.3..top * 1.3).log_scale();
    if lines.has_linear_x {
        let edge = (right - left) / 20.0;
        draw_lines(lines, picture, chart.build_cartesian_2d(left - edge..right + edge, y)?)?;
    } else {
        draw_lines(lines, picture, chart.build_cartesian_2d((left / 1.3..right * 1.3).log_scale(), y)?)?;
    }
    // By their last medians, so that names stand in the order of the lines' right ends.
    let last = |(place, (name, dots)): (usize, (&String, &Vec<Dot>))| Some((dots.last()?.y, place, name.clone()));
    let mut names: Vec<_> = picture.lines.iter().enumerate().filter_map(last).collect();
    names.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (row, (_, place, name)) in names.into_iter().enumerate() {
        let y = 24 + 26 * row as i32;
        legend.draw(&PathElement::new(vec![(4, y), (34, y)], colour(place).stroke_width(3)))?;
        legend.draw(&Text::new(name, (42, y - 7), (FONT, 15).into_font()))?;
    }
    foot.draw(&Text::new(machine.to_string(), (14, 8), (FONT, 11).into_font().color(&GREY)))?;
    root.present()?;
    Ok(())
}

type Chart<'a, X, Y> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>;

fn draw_lines<'a, X, Y>(lines: &Lines, picture: &Picture, mut chart: Chart<'a, X, Y>) -> Result<()>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let label = |value: &f64| match *value {
        large if large >= 1e6 => format!("{}M", large / 1e6),
        large if large >= 1e3 => format!("{}k", large / 1e3),
        small => format!("{small}"),
    };
    chart
        .configure_mesh()
        .x_desc(lines.axes.0)
        .y_desc(lines.axes.1)
        .x_label_formatter(&label)
        .y_label_formatter(&label)
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15))
        .light_line_style(RGBColor(240, 240, 240))
        .bold_line_style(RGBColor(215, 215, 215))
        .draw()?;
    for (place, (name, dots)) in picture.lines.iter().enumerate() {
        let style = colour(place).stroke_width(if name.starts_with("apply") { 3 } else { 2 });
        chart.draw_series(LineSeries::new(dots.iter().map(|dot| (dot.x, dot.y)), style))?;
        let spread = |dot: &Dot| PathElement::new(vec![(dot.x, dot.low), (dot.x, dot.high)], style.stroke_width(1));
        chart.draw_series(dots.iter().map(spread))?;
        chart.draw_series(dots.iter().map(|dot| Circle::new((dot.x, dot.y), 4, colour(place).filled())))?;
    }
    Ok(())
}

fn draw_bars(title: &str, bars: &[Bar], machine: &Machine, out: &Path) -> Result<()> {
    const ROW: i32 = 34;
    const NAMES: i32 = 230;
    const LONGEST: f64 = 540.0;
    const TOP: i32 = 56;
    let height = TOP + ROW * bars.len() as i32 + 40;
    let (_, longest) = spread(bars.iter().map(|bar| bar.1));
    ensure!(longest > 0.0 && longest.is_finite(), "the medians are not positive numbers");
    let root = SVGBackend::new(out, (SIZE.0, height as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    root.draw(&Text::new(title.to_owned(), (14, 14), (FONT, 20).into_font()))?;
    for ((name, length, label), row) in bars.iter().zip(0..) {
        let top = TOP + ROW * row;
        let right = NAMES + (length / longest * LONGEST).max(1.0) as i32;
        root.draw(&Text::new(name.clone(), (14, top + 5), (FONT, 15).into_font()))?;
        root.draw(&Rectangle::new([(NAMES, top), (right, top + ROW - 10)], colour(row as usize).filled()))?;
        root.draw(&Text::new(label.clone(), (right + 6, top + 5), (FONT, 13).into_font()))?;
    }
    root.draw(&Text::new(machine.to_string(), (14, height - 22), (FONT, 11).into_font().color(&GREY)))?;
    root.present()?;
    Ok(())
}
