//! Inputs of the programs of public suites: parameters, scenes, a volume, a matrix, particles, records.
//!
//! Here: their contents. Not here: the programs (`suites`), the inputs of Debian's programs (`inputs`).
//!
//! Invariant: two calls make the same bytes.

use anyhow::Context as _;
use fastrand::Rng;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const SEED: u64 = 2;
/// Molecules of the water programs, a cube.
const MOLECULES: usize = 512;
/// Sides of the volume.
const VOLUME: [i16; 3] = [64, 64, 28];
/// Side of the grid behind the sparse matrix.
const GRID: usize = 40;

/// Side of the dense matrices.
const MATRIX: usize = 300;

/// Writes all inputs to a folder.
///
/// # Errors
/// If a file cannot be written.
pub fn write(folder: &Path) -> anyhow::Result<()> {
    let mut rng = Rng::with_seed(SEED);
    let put = |name: &str, bytes: &[u8]| {
        let file = folder.join(name);
        fs::write(&file, bytes).with_context(|| format!("cannot write {}", file.display()))
    };
    for threads in [1, 2] {
        put(&format!("barnes-{threads}"), barnes(threads).as_bytes())?;
        put(&format!("fmm-{threads}"), fmm(threads).as_bytes())?;
        put(&format!("water-{threads}"), water(threads).as_bytes())?;
    }
    put("random.in", normals(&mut rng, 9 * MOLECULES + 1).as_bytes())?;
    put("scene.env", SCENE.as_bytes())?;
    put("scene.geo", spheres(&mut rng, 60).as_bytes())?;
    put("ball.den", &volume())?;
    put("grid.O", sparse_matrix().as_bytes())?;
    put("picture.bmp", &bitmap(&mut rng, 640, 480))?;
    for name in ["matrix_file_A.txt", "matrix_file_B.txt"] {
        put(name, &matrix(&mut rng))?;
    }
    put("keys", keys(&mut rng, 200_000).as_bytes())?;
    put("options", options(&mut rng, 10_000).as_bytes())?;
    put("drop.fluid", &fluid(&mut rng))?;
    put("baskets", baskets(&mut rng, 10_000).as_bytes())
}

/// Parameters of Barnes: bodies, seed, step, error, tolerance, room for cells, end, processors.
fn barnes(threads: usize) -> String {
    format!("\n16384\n123\n\n0.025\n0.05\n1.0\n2.0\n5.0\n0.075\n0.25\n{threads}\n")
}

/// Parameters of FMM: two clusters of particles.
fn fmm(threads: usize) -> String {
    format!("two cluster\nplummer\n8192\n1e-6\n{threads}\n5\n.025\n0.0\ncost zones\n")
}

/// Parameters of the water programs: time step, molecules, steps, order; processors and the cutoff.
fn water(threads: usize) -> String {
    format!("1.5e-16 {MOLECULES} 3 6\n-1 3000 3 0\n{threads} 6.212752\n")
}

/// Numbers around 0 with a deviation of about 1.4.
fn normals(rng: &mut Rng, count: usize) -> String {
    (0..count).fold(String::new(), |mut text, _| {
        let sum: f64 = (0..6).map(|_| rng.f64() - 0.5).sum();
        let _ = writeln!(text, "{:.9}", 2.0 * sum);
        text
    })
}

const SCENE: &str = "geometry scene.geo
rlfile scene.rl
resolution 512 512
block 8 8
bundle 4 4
eye 0.5 0.5 -1.5
center 0.5 0.5 0.5
background 0.1 0.3 0.7
ambient 0.2 0.2 0.2
light 2.0 3.0 -2.0 0.9 0.9 0.9 1
light -1.0 2.0 -3.0 0.5 0.5 0.5 1
modelxform
1.0 0.0 0.0 0.0
0.0 1.0 0.0 0.0
0.0 0.0 1.0 0.0
0.0 0.0 0.0 1.0
traversal huniform
";

/// Shiny spheres in a cube.
fn spheres(rng: &mut Rng, count: usize) -> String {
    let mut text = String::new();
    for _ in 0..count {
        let [x, y, z] = [rng.f64(), rng.f64(), rng.f64()];
        let radius = 0.04 + 0.05 * rng.f64();
        let [red, green, blue] = [rng.f64(), rng.f64(), rng.f64()];
        let _ = writeln!(
            text,
            "object sphere\n{red:.3} {green:.3} {blue:.3} {red:.3} {green:.3} {blue:.3}\n0.6 0.4 0.0 0.0 3\n0 0 0 0\n\
             s 1\n{x:.6} {y:.6} {z:.6} {radius:.6}"
        );
    }
    text
}

/// A ball of growing density: its version, three descriptions of its sides, its length, a byte for each point.
fn volume() -> Vec<u8> {
    let [x, y, z] = VOLUME;
    let sides = [0, 0, 0, x - 1, y - 1, z - 1, x, y, z];
    let header = [&[1][..], &sides, &sides, &sides, &[0]].concat();
    let mut bytes: Vec<u8> = header.into_iter().flat_map(i16::to_le_bytes).collect();
    bytes.extend((i32::from(x) * i32::from(y) * i32::from(z)).to_le_bytes());
    let from_middle = |at: i16, side: i16| (2 * i32::from(at) - i32::from(side)) * 64 / i32::from(side);
    for plane in 0..z {
        for row in 0..y {
            for column in 0..x {
                let [a, b, c] = [from_middle(column, x), from_middle(row, y), from_middle(plane, z)];
                bytes.push((220 - (a * a + b * b + c * c) * 220 / 4096).max(0) as u8);
            }
        }
    }
    bytes
}

/// The lower half of a grid's matrix, in the Harwell-Boeing format.
fn sparse_matrix() -> String {
    let nodes = GRID * GRID;
    let (mut starts, mut rows) = (vec![1], Vec::new());
    for node in 0..nodes {
        rows.push(node + 1);
        if node % GRID + 1 < GRID {
            rows.push(node + 2);
        }
        if node + GRID < nodes {
            rows.push(node + GRID + 1);
        }
        starts.push(rows.len() + 1);
    }
    let lines = |numbers: &[usize]| {
        let line = |numbers: &[usize]| numbers.iter().map(|number| format!("{number:8}")).collect::<String>() + "\n";
        numbers.chunks(9).map(line).collect::<String>()
    };
    let (starts_lines, rows_lines) = (starts.len().div_ceil(9), rows.len().div_ceil(9));
    format!(
        "{:72}{:8}\n{:14}{starts_lines:14}{rows_lines:14}{:14}{:14}\n{:14}{nodes:14}{nodes:14}{:14}{:14}\n\
         {:16}{:16}{:40}\n{}{}",
        "A grid",
        "GRID",
        starts_lines + rows_lines,
        0,
        0,
        "PSA",
        rows.len(),
        0,
        "(9I8)",
        "(9I8)",
        "",
        lines(&starts),
        lines(&rows),
    )
}

/// A picture of 24 bits a pixel.
fn bitmap(rng: &mut Rng, width: u32, height: u32) -> Vec<u8> {
    const HEADER: u32 = 54;
    let bytes = 3 * width * height;
    let mut file = Vec::from(*b"BM");
    for field in [HEADER + bytes, 0, HEADER, 40, width, height, 1 | 24 << 16, 0, bytes, 2835, 2835, 0, 0] {
        file.extend(field.to_le_bytes());
    }
    file.extend((0..bytes).map(|at| (at % 251 / 2) as u8 + rng.u8(..64)));
    file
}

/// A square matrix of small numbers.
fn matrix(rng: &mut Rng) -> Vec<u8> {
    (0..MATRIX * MATRIX).flat_map(|_| rng.i32(0..10).to_le_bytes()).collect()
}

/// Words, a line each, among them some that the string matcher looks for.
fn keys(rng: &mut Rng, count: usize) -> String {
    const SOUGHT: [&str; 4] = ["Helloworld", "howareyou", "ferrari", "whotheman"];
    let mut text = String::new();
    for at in 0..count {
        if at % 10_007 == 0 {
            text += SOUGHT[rng.usize(..SOUGHT.len())];
        } else {
            text.extend((0..rng.usize(4..14)).map(|_| rng.lowercase()));
        }
        text.push('\n');
    }
    text
}

/// Options to price: spot, strike, rate, dividend, volatility, time, kind, dividends, a reference price.
fn options(rng: &mut Rng, count: usize) -> String {
    let mut text = format!("{count}\n");
    for at in 0..count {
        let [spot, strike] = [rng.u32(40..120), rng.u32(40..120)];
        let (rate, volatility, years) = (rng.u32(20..100), rng.u32(10..65), rng.u32(10..100));
        let kind = if at % 2 == 0 { 'C' } else { 'P' };
        let _ = writeln!(text, "{spot}.00 {strike}.00 0.{rate:04} 0.00 0.{volatility} 0.{years} {kind} 0.00 1.0");
    }
    text
}

/// Particles at rest on a lattice in the lower half of the box: particles a metre, their number, nine values of each.
fn fluid(rng: &mut Rng) -> Vec<u8> {
    const PER_METRE: f32 = 150.0;
    let places = |from: f32, to: f32| ((to - from) * PER_METRE) as usize;
    let (columns, rows) = (places(-0.06, 0.06), places(-0.075, 0.01));
    let mut particles = Vec::new();
    for at in 0..columns * rows * columns {
        let [x, y, z] = [at % columns, at / columns % rows, at / columns / rows].map(|at| at as f32 / PER_METRE);
        let moved = |value: f32, rng: &mut Rng| value + 0.001 * rng.f32();
        particles.push([moved(x - 0.06, rng), moved(y - 0.075, rng), moved(z - 0.06, rng)]);
    }
    let mut file = Vec::from(PER_METRE.to_le_bytes());
    file.extend((particles.len() as i32).to_le_bytes());
    for place in particles {
        let at_rest = [0.0f32; 6];
        file.extend(place.iter().chain(&at_rest).flat_map(|value| value.to_le_bytes()));
    }
    file
}

/// Baskets of goods, a line each; low numbers are in more of them.
fn baskets(rng: &mut Rng, count: usize) -> String {
    let mut text = String::new();
    for _ in 0..count {
        let mut goods: Vec<u32> = (0..rng.usize(5..20)).map(|_| rng.u32(1..15) * rng.u32(1..15)).collect();
        goods.sort_unstable();
        goods.dedup();
        let words: Vec<String> = goods.iter().map(u32::to_string).collect();
        let _ = writeln!(text, "{} ", words.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_the_same_each_time() {
        let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
        folders.iter().for_each(|folder| write(folder.path()).expect("inputs"));
        for name in ["random.in", "scene.geo", "ball.den", "grid.O", "picture.bmp", "drop.fluid", "baskets"] {
            let [one, other] = [0, 1].map(|at| fs::read(folders[at].path().join(name)).expect("an input"));
            assert!(!one.is_empty() && one == other, "{name}");
        }
    }

    #[test]
    fn a_grid_has_a_diagonal_and_its_lower_neighbours() {
        let matrix = sparse_matrix();
        let header: Vec<&str> = matrix.lines().take(4).collect();
        let entries = GRID * GRID + 2 * GRID * (GRID - 1);
        assert!(header[2].starts_with("PSA") && header[2].contains(&entries.to_string()), "{}", header[2]);
        assert_eq!(header.iter().map(|line| line.len()).collect::<Vec<_>>(), [80, 70, 70, 72]);
    }
}
