//! Inputs of the programs: text, sequences, pictures, scripts, made from one seed.
//!
//! Here: their contents. Not here: inputs that a program makes from others (`list`).
//!
//! Invariant: two calls make the same bytes.

use anyhow::Context as _;
use fastrand::Rng;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const SEED: u64 = 1;
/// Bytes of the text.
const TEXT_BYTES: usize = 2 << 20;
/// Size of the picture and of the video's frames.
const WIDTH: usize = 320;
const HEIGHT: usize = 240;
const FRAMES: usize = 8;
const READ_BASES: usize = 100;

/// Writes all inputs to a folder.
///
/// # Errors
/// If a file cannot be written.
pub fn write(folder: &Path) -> anyhow::Result<()> {
    let mut rng = Rng::with_seed(SEED);
    let tree = folder.join("tree");
    fs::create_dir_all(&tree).with_context(|| format!("cannot make {}", tree.display()))?;
    let put = |name: &str, bytes: &[u8]| {
        let file = folder.join(name);
        fs::write(&file, bytes).with_context(|| format!("cannot write {}", file.display()))
    };
    put("text", text(&mut rng, TEXT_BYTES).as_bytes())?;
    for number in 0..40 {
        let bytes = 2000 + 50 * number;
        put(&format!("tree/{number}.txt"), text(&mut rng, bytes).as_bytes())?;
    }
    let genome = bases(&mut rng, 50_000);
    put("genome.fa", format!(">genome\n{}\n", lines_of(&genome)).as_bytes())?;
    let (fastq, sam, vcf) = reads(&mut rng, &genome);
    let transcripts: Vec<String> = (0..20).map(|at| genome[at * 2400..at * 2400 + 2000].to_owned()).collect();
    put("transcripts.fa", fasta(&transcripts).as_bytes())?;
    put("reads.fq", fastq.as_bytes())?;
    put("reads.sam", sam.as_bytes())?;
    put("calls.vcf", vcf.as_bytes())?;
    let genes = family(&mut rng, "ACGT", 24, 300);
    put("genes.fa", fasta(&genes).as_bytes())?;
    put("genes.phy", phylip(&genes).as_bytes())?;
    let proteins = family(&mut rng, "ACDEFGHIKLMNPQRSTVWY", 40, 150);
    put("proteins.fa", fasta(&proteins).as_bytes())?;
    put("query.fa", fasta(&proteins[..4]).as_bytes())?;
    put("image.ppm", &[format!("P6\n{WIDTH} {HEIGHT}\n255\n").as_bytes(), &pixels(&mut rng)].concat())?;
    put("video.y4m", &video(&mut rng, FRAMES))?;
    put("frame.y4m", &video(&mut rng, 1))?;
    put("sound.wav", &sound())?;
    put("formula.cnf", formula(&mut rng, 18, 50).as_bytes())?;
    for (name, script) in SCRIPTS {
        put(name, script.as_bytes())?;
    }
    for file in ["one", "two"] {
        let functions: String =
            (0..200).map(|at| format!("int {file}_{at}(int x) {{ return x * {at} + {at}; }}\n")).collect();
        put(&format!("{file}.c"), functions.as_bytes())?;
    }
    Ok(())
}

/// Programs of interpreters.
const SCRIPTS: [(&str, &str); 5] = [
    ("threads.py", include_str!("threads.py")),
    ("matrix.py", include_str!("matrix.py")),
    ("threads.pl", include_str!("threads.pl")),
    ("threads.rb", include_str!("threads.rb")),
    ("sort.sql", include_str!("sort.sql")),
];

fn text(rng: &mut Rng, bytes: usize) -> String {
    const WORDS: [&str; 16] = [
        "thread", "the", "page", "machine", "of", "lock", "with", "that", "waits", "memory", "and", "two", "fault",
        "other", "reads", "then",
    ];
    let mut text = String::with_capacity(bytes + 32);
    while text.len() < bytes {
        for _ in 0..rng.usize(4..12) {
            text += WORDS[rng.usize(..WORDS.len())];
            text.push(' ');
        }
        let _ = writeln!(text, "{}", rng.u32(..100_000));
    }
    text
}

fn bases(rng: &mut Rng, count: usize) -> String {
    (0..count).map(|_| char::from(b"ACGT"[rng.usize(..4)])).collect()
}

fn lines_of(sequence: &str) -> String {
    let lines: Vec<&str> =
        (0..sequence.len()).step_by(60).map(|at| &sequence[at..sequence.len().min(at + 60)]).collect();
    lines.join("\n")
}

/// Reads with a few errors, as FASTQ and as aligned in SAM; and variants, as VCF.
fn reads(rng: &mut Rng, genome: &str) -> (String, String, String) {
    let header = format!("@HD\tVN:1.6\tSO:unsorted\n@SQ\tSN:genome\tLN:{}\n", genome.len());
    let (mut fastq, mut sam) = (String::new(), header);
    let quality = "I".repeat(READ_BASES);
    for number in 0..2000 {
        let start = rng.usize(..genome.len() - READ_BASES);
        let mut read = genome[start..start + READ_BASES].to_owned();
        for _ in 0..rng.usize(..3) {
            let at = rng.usize(..READ_BASES);
            read.replace_range(at..=at, &bases(rng, 1));
        }
        let _ = writeln!(fastq, "@read{number}\n{read}\n+\n{quality}");
        let place = start + 1;
        let _ = writeln!(sam, "read{number}\t0\tgenome\t{place}\t60\t{READ_BASES}M\t*\t0\t0\t{read}\t{quality}");
    }
    let mut vcf = format!(
        "##fileformat=VCFv4.2\n##contig=<ID=genome,length={}>\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n",
        genome.len()
    );
    for at in (10..genome.len()).step_by(25) {
        let base = &genome[at..=at];
        let other = if base == "A" { "C" } else { "A" };
        let _ = writeln!(vcf, "genome\t{}\t.\t{base}\t{other}\t{}\t.\t.", at + 1, rng.u32(10..99));
    }
    (fastq, sam, vcf)
}

/// Sequences of one length, each a changed copy of an earlier one.
fn family(rng: &mut Rng, letters: &str, count: usize, length: usize) -> Vec<String> {
    let letters = letters.as_bytes();
    let mut all: Vec<Vec<u8>> = vec![(0..length).map(|_| letters[rng.usize(..letters.len())]).collect()];
    while all.len() < count {
        let mut next = all[rng.usize(..all.len())].clone();
        for _ in 0..length / 12 {
            next[rng.usize(..length)] = letters[rng.usize(..letters.len())];
        }
        all.push(next);
    }
    all.into_iter().map(|sequence| String::from_utf8_lossy(&sequence).into_owned()).collect()
}

fn fasta(sequences: &[String]) -> String {
    sequences.iter().enumerate().map(|(at, sequence)| format!(">s{at}\n{}\n", lines_of(sequence))).collect()
}

fn phylip(sequences: &[String]) -> String {
    let rows: String = sequences.iter().enumerate().map(|(at, sequence)| format!("s{at} {sequence}\n")).collect();
    format!("{} {}\n{rows}", sequences.len(), sequences[0].len())
}

fn pixels(rng: &mut Rng) -> Vec<u8> {
    let pixel = |at: usize| [(at % WIDTH) as u8, (at / WIDTH) as u8, ((at % WIDTH) * (at / WIDTH) / 64) as u8];
    (0..WIDTH * HEIGHT).flat_map(pixel).map(|value| value.wrapping_add(rng.u8(..8))).collect()
}

fn video(rng: &mut Rng, frames: usize) -> Vec<u8> {
    let mut bytes = format!("YUV4MPEG2 W{WIDTH} H{HEIGHT} F25:1 Ip A1:1 C420jpeg\n").into_bytes();
    for frame in 0..frames {
        bytes.extend_from_slice(b"FRAME\n");
        let luma = |at: usize| ((at % WIDTH + 3 * frame) ^ (at / WIDTH)) as u8;
        bytes.extend((0..WIDTH * HEIGHT).map(luma).map(|value| value.wrapping_add(rng.u8(..4))));
        bytes.extend((0..WIDTH * HEIGHT / 2).map(|at| (at / 97) as u8));
    }
    bytes
}

/// A second of two tones, 16 bits, 44,100 Hz, stereo.
fn sound() -> Vec<u8> {
    const RATE: u32 = 44_100;
    let wave = |at: u32, period: u32| ((at % period * 20_000 / period) as i16 - 10_000).to_le_bytes();
    let samples: Vec<u8> = (0..RATE).flat_map(|at| [wave(at, 100), wave(at, 150)].concat()).collect();
    let bytes = samples.len() as u32;
    let mut file = Vec::from(*b"RIFF");
    file.extend((36 + bytes).to_le_bytes());
    file.extend_from_slice(b"WAVEfmt ");
    for field in [16u32, 1 | 2 << 16, RATE, RATE * 4, 4 | 16 << 16] {
        file.extend(field.to_le_bytes());
    }
    file.extend_from_slice(b"data");
    file.extend(bytes.to_le_bytes());
    file.extend(samples);
    file
}

/// Clauses of three literals.
fn formula(rng: &mut Rng, variables: i32, clauses: usize) -> String {
    let mut text = format!("p cnf {variables} {clauses}\n");
    for _ in 0..clauses {
        for _ in 0..3 {
            let variable = rng.i32(1..=variables);
            let _ = write!(text, "{} ", if rng.bool() { variable } else { -variable });
        }
        text += "0\n";
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
        for name in ["text", "reads.sam", "genes.phy", "video.y4m", "formula.cnf", "tree/39.txt"] {
            let [one, other] = [0, 1].map(|at| fs::read(folders[at].path().join(name)).expect("an input"));
            assert!(!one.is_empty() && one == other, "{name}");
        }
    }
}
