//! Expected output of the seven workloads, computed independently of how they divide their work.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::OnceLock;

pub const WORKLOADS: [&str; 7] =
    ["histogram", "kmeans", "linear_regression", "matrix_multiply", "pca", "string_match", "word_count"];

pub enum Input {
    Generated { size: usize, seed: u64 },
    File(Vec<u8>),
}

/// All inputs of a workload with their outputs, computed once.
pub fn cases(name: &str) -> &'static [(Input, String)] {
    static CASES: [OnceLock<Vec<(Input, String)>>; WORKLOADS.len()] = [const { OnceLock::new() }; WORKLOADS.len()];
    let number = WORKLOADS.iter().position(|workload| *workload == name).expect("a workload");
    let with_output = |input| {
        let output = output(name, &input);
        (input, output)
    };
    CASES[number].get_or_init(|| inputs(name).into_iter().map(with_output).collect())
}

/// Small inputs; some are smaller than the number of threads.
fn inputs(name: &str) -> Vec<Input> {
    let sizes: [usize; 3] = match name {
        "matrix_multiply" => [1, 7, 70],
        "pca" => [2, 7, 60],
        "kmeans" => [16, 100, 5000],
        _ => [1, 100, 20001],
    };
    let mut inputs: Vec<Input> =
        sizes.into_iter().zip([1, 0, 77]).map(|(size, seed)| Input::Generated { size, seed }).collect();
    inputs.extend(match name {
        "histogram" => {
            vec![Input::File(bitmap(1, 1, 1)), Input::File(bitmap(37, 53, 1)), Input::File(bitmap(8, 9, -1))]
        }
        "linear_regression" => {
            [&b"ab"[..], b"aaabaca", b"axaxax", b"11223344"].map(|bytes| Input::File(bytes.to_vec())).into()
        }
        "string_match" => ["gossamer", "\n\n", "x\ntrustee\n\ngossamer\nproperty1\ngossamer", "delegate\r\n"]
            .map(|text| Input::File(text.into()))
            .into(),
        "word_count" => ["a", "...", "The cat, the CAT; a dog's tail\nthe-end", "ab abc ab a ABC b"]
            .map(|text| Input::File(text.into()))
            .into(),
        _ => vec![],
    });
    inputs
}

fn output(name: &str, input: &Input) -> String {
    match (name, input) {
        ("histogram", _) => histogram(input),
        ("linear_regression", Input::File(bytes)) => linear_regression(bytes),
        ("linear_regression", Input::Generated { size, seed }) => linear_regression(&points(*size, *seed)),
        ("string_match", Input::File(bytes)) => string_match(bytes),
        ("string_match", Input::Generated { size, seed }) => string_match(&words(*size, *seed)),
        ("word_count", Input::File(bytes)) => word_count(bytes),
        ("word_count", Input::Generated { size, seed }) => word_count(&text(*size, *seed)),
        ("matrix_multiply", Input::Generated { size, seed }) => matrix_multiply(*size, *seed),
        ("pca", Input::Generated { size, seed }) => pca(*size, *seed),
        ("kmeans", Input::Generated { size, seed }) => kmeans(*size, *seed),
        _ => panic!("{name} has no such input"),
    }
}

fn draw(state: &mut u64) -> u32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as u32
}

const FNV_BEGIN: u64 = 14_695_981_039_346_656_037;

fn fnv(begin: u64, words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(begin, |sum, word| (sum ^ word).wrapping_mul(1_099_511_628_211))
}

fn checksum(words: impl IntoIterator<Item = u64>) -> String {
    format!("checksum {:016x}\n", fnv(FNV_BEGIN, words))
}

/// A bitmap with padded rows; `order` -1 puts the top row first.
pub fn bitmap(columns: usize, rows: usize, order: i32) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    bytes[..2].copy_from_slice(b"BM");
    bytes[10] = 60;
    bytes[18..22].copy_from_slice(&(columns as u32).to_le_bytes());
    bytes[22..26].copy_from_slice(&(rows as i32 * order).to_le_bytes());
    bytes[28] = 24;
    for row in 0..rows {
        bytes.extend((0..columns * 3).map(|at| (at * at + row * 7) as u8));
        bytes.resize(bytes.len().next_multiple_of(4), 0xEE);
    }
    bytes
}

fn histogram(input: &Input) -> String {
    let pixels: Vec<[u8; 3]> = match input {
        Input::Generated { size, seed } => {
            let mut state = *seed;
            (0..*size).map(|_| draw(&mut state).to_le_bytes()).map(|drawn| [drawn[0], drawn[1], drawn[2]]).collect()
        }
        Input::File(bytes) => {
            let columns = u32::from_le_bytes(bytes[18..22].try_into().unwrap()) as usize;
            let rows = bytes[60..].chunks((columns * 3).next_multiple_of(4));
            rows.flat_map(|row| row[..columns * 3].chunks(3)).map(|pixel| pixel.try_into().unwrap()).collect()
        }
    };
    let mut counts = [[0_u64; 256]; 3];
    for pixel in &pixels {
        for (colour, value) in pixel.iter().enumerate() {
            counts[colour][usize::from(*value)] += 1;
        }
    }
    let mut told = format!("pixels {}\n", pixels.len());
    for (name, counts) in ["blue", "green", "red"].iter().zip(&counts) {
        let most = *counts.iter().max().unwrap();
        let value = counts.iter().position(|count| *count == most).unwrap();
        writeln!(told, "{name} most often {value}, {most} times").unwrap();
    }
    told + &checksum(counts.into_iter().flatten())
}

fn points(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let point = |_| {
        let drawn = draw(&mut state);
        let x = drawn % 256;
        [x as u8, (x / 2 + drawn / 256 % 64) as u8]
    };
    (0..size).flat_map(point).collect()
}

fn linear_regression(bytes: &[u8]) -> String {
    let points: Vec<[u64; 2]> = bytes.chunks_exact(2).map(|point| [point[0].into(), point[1].into()]).collect();
    let sum = |of: fn(u64, u64) -> u64| points.iter().map(|[x, y]| of(*x, *y)).sum::<u64>();
    let sums = [sum(|x, _| x), sum(|_, y| y), sum(|x, _| x * x), sum(|_, y| y * y), sum(|x, y| x * y)];
    let n = points.len() as f64;
    let [mean_x, mean_y, xx, yy, xy] = sums.map(|sum| sum as f64 / n);
    let (spread_x, spread_y, both) = (xx - mean_x * mean_x, yy - mean_y * mean_y, xy - mean_x * mean_y);
    let mut told = format!("points {}\n", points.len());
    if spread_x > 0.0 {
        writeln!(told, "y = {:.4} x + {:.4}", both / spread_x, mean_y - both / spread_x * mean_x).unwrap();
    } else {
        told += "no line: all points have one x\n";
    }
    if spread_x > 0.0 && spread_y > 0.0 {
        writeln!(told, "r2 {:.4}", both * both / (spread_x * spread_y)).unwrap();
    }
    told + &checksum(sums)
}

const SECRETS: [&str; 4] = ["gossamer", "delegate", "trustee", "property"];

fn words(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut list = String::new();
    for _ in 0..size {
        let drawn = draw(&mut state);
        if drawn.is_multiple_of(1000) {
            list += SECRETS[drawn as usize / 1000 % 4];
        } else {
            let letters = 4 + drawn / 65536 % 8;
            list.extend((0..letters).map(|_| char::from(b'a' + (draw(&mut state) % 26) as u8)));
        }
        list.push('\n');
    }
    list.into()
}

/// Compares the words themselves, so hash collisions cannot mislead.
fn string_match(list: &[u8]) -> String {
    let mut places: BTreeMap<&[u8], Vec<u64>> = BTreeMap::new();
    let (mut at, mut count) = (0, 0);
    for word in list.split(|byte| *byte == b'\n') {
        count += u64::from(!word.is_empty());
        places.entry(word).or_default().push(at);
        at += word.len() as u64 + 1;
    }
    let mut told = format!("words {count}\n");
    let mut sums = vec![];
    for secret in SECRETS {
        let found = places.get(secret.as_bytes()).map_or(&[][..], Vec::as_slice);
        sums.extend([found.len() as u64, found.first().copied().unwrap_or(0)]);
        match found.first() {
            Some(first) => writeln!(told, "{secret} {} times, first at byte {first}", found.len()).unwrap(),
            None => writeln!(told, "{secret} not found").unwrap(),
        }
    }
    told + &checksum(sums)
}

fn text(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut text = vec![];
    while text.len() < size {
        let first = draw(&mut state);
        let rank = first % (1 + draw(&mut state) % 20000);
        let mut left = rank + 26;
        while left > 0 {
            let begin = if left % 2 == 1 { b'a' } else { b'A' };
            text.push(begin + (left % 26) as u8);
            left /= 26;
        }
        text.push(if rank.is_multiple_of(8) { b'\n' } else { b' ' });
    }
    text.truncate(size);
    text
}

fn word_count(text: &[u8]) -> String {
    let mut counts: HashMap<Vec<u8>, u64> = HashMap::new();
    for word in text.split(|byte| !byte.is_ascii_alphabetic()).filter(|word| !word.is_empty()) {
        *counts.entry(word.to_ascii_lowercase()).or_default() += 1;
    }
    let hash = |word: &[u8]| {
        let sum = fnv(FNV_BEGIN, word.iter().map(|letter| u64::from(*letter)));
        sum ^ sum >> 29
    };
    let sum = counts.iter().fold(0_u64, |sum, (word, count)| sum.wrapping_add(hash(word).wrapping_mul(*count)));
    let mut told = format!("words {}, different {}\n", counts.values().sum::<u64>(), counts.len());
    let mut counts: Vec<(Vec<u8>, u64)> = counts.into_iter().collect();
    counts.sort_by(|(a, many), (b, more)| more.cmp(many).then_with(|| a.cmp(b)));
    for (word, count) in counts.iter().take(10) {
        writeln!(told, "{} {count}", String::from_utf8_lossy(word)).unwrap();
    }
    told + &format!("checksum {sum:016x}\n")
}

fn matrix(n: usize, state: &mut u64) -> Vec<Vec<i64>> {
    (0..n).map(|_| (0..n).map(|_| i64::from(draw(state) % 19) - 9).collect()).collect()
}

fn matrix_multiply(n: usize, seed: u64) -> String {
    let mut state = seed;
    let (a, b) = (matrix(n, &mut state), matrix(n, &mut state));
    let cell = |i: usize, j: usize| (0..n).map(|k| a[i][k] * b[k][j]).sum::<i64>();
    let (last, trace) = (n - 1, (0..n).map(|i| cell(i, i)).sum::<i64>());
    let corners = format!("{} {} {} {}", cell(0, 0), cell(0, last), cell(last, 0), cell(last, last));
    let cells = (0..n * n).map(|at| cell(at / n, at % n) as u64);
    format!("rows {n}\ncorners {corners}\ntrace {trace}\n{}", checksum(cells))
}

fn pca(n: usize, seed: u64) -> String {
    let mut state = seed;
    let rows: Vec<Vec<i64>> = (0..n).map(|_| (0..n).map(|_| i64::from(draw(&mut state) % 100)).collect()).collect();
    let sums: Vec<i64> = rows.iter().map(|row| row.iter().sum()).collect();
    // By definition: from the differences to the mean, each times n to be a whole number, so the sum is n times too
    // large.
    let apart = |i: usize, k: usize| n as i64 * rows[i][k] - sums[i];
    let scaled = |i: usize, j: usize| (0..n).map(|k| apart(i, k) * apart(j, k)).sum::<i64>() / n as i64;
    let scale = n as f64 * (n - 1) as f64;
    let variance = |i: usize| scaled(i, i) as f64 / scale;
    let total: f64 = (0..n).map(variance).sum();
    let (mean, covariance) = (sums[0] as f64 / n as f64, scaled(0, 1) as f64 / scale);
    let all = (0..n).flat_map(|i| [sums[i]].into_iter().chain((i..n).map(move |j| (i, j)).map(|(i, j)| scaled(i, j))));
    let checksum = checksum(all.map(|value| value as u64).collect::<Vec<u64>>());
    let first = format!("mean {mean:.4}, variance {:.4}, covariance with row 1 {covariance:.4}", variance(0));
    format!("rows {n}\nrow 0: {first}\ntotal variance {total:.2}\n{checksum}")
}

fn kmeans(size: usize, seed: u64) -> String {
    let mut state = seed;
    let mut space = |limit: u32| [0; 3].map(|_: i64| i64::from(draw(&mut state) % limit));
    let centres: Vec<[i64; 3]> = (0..16).map(|_| space(1000)).collect();
    let mut points: Vec<[i64; 3]> = vec![];
    for _ in 0..size {
        let centre = centres[draw(&mut state) as usize % 16];
        points.push(centre.map(|at| at + i64::from(draw(&mut state) % 200)));
    }
    let mut means = points[..16].to_vec();
    let (mut owners, mut rounds, mut changed) = (vec![usize::MAX; size], 0, size);
    while changed > 0 && rounds < 50 {
        let distance = |a: &[i64; 3], b: &[i64; 3]| a.iter().zip(b).map(|(a, b)| (a - b).pow(2)).sum::<i64>();
        let nearest = |point: &[i64; 3]| (0..16).min_by_key(|mean| distance(&means[*mean], point)).unwrap();
        let next: Vec<usize> = points.iter().map(nearest).collect();
        changed = next.iter().zip(&owners).filter(|(next, owner)| next != owner).count();
        owners = next;
        rounds += 1;
        for (cluster, mean) in means.iter_mut().enumerate() {
            let own: Vec<&[i64; 3]> =
                points.iter().zip(&owners).filter(|(_, of)| **of == cluster).map(|(p, _)| p).collect();
            if !own.is_empty() {
                *mean = [0, 1, 2].map(|d| own.iter().map(|point| point[d]).sum::<i64>() / own.len() as i64);
            }
        }
    }
    let mut told = format!("points {size}, rounds {rounds}, changed in the last {changed}\n");
    for (cluster, [x, y, z]) in means.iter().enumerate() {
        let count = owners.iter().filter(|of| **of == cluster).count();
        writeln!(told, "cluster {cluster}: {count} points around {x} {y} {z}").unwrap();
    }
    told + &checksum(owners.iter().map(|owner| *owner as u64 + 1))
}
