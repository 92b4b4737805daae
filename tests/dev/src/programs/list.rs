//! The programs of the table: packages of Debian, each with one small job whose answer does not depend on times.
//!
//! Here: the jobs. Not here: the programs of suites (`suites`), their inputs (`inputs`), how they run and are compared
//! (`mod`).
//!
//! Invariant: a job's answer is the same in each plain run, with any number of threads that it names.

/// The part of a job's answer that is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Standard output.
    Stdout,
    /// Lines of standard output, in any order.
    Lines,
    /// Lines of standard output that contain this.
    LinesWith(&'static str),
    /// Lines of standard output that contain none of these, in any order.
    LinesWithout(&'static [&'static str]),
    /// Lines of standard error that contain this.
    ErrorLinesWith(&'static str),
    /// A file in the working folder.
    File(&'static str),
    /// Lines of such a file, in any order.
    LinesOf(&'static str),
}

/// Origin of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A package of Debian.
    Package(&'static str),
    /// The folder of `--built`, in which the file has the program's name.
    Built,
}

/// A program with its job.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name in the table.
    pub name: &'static str,
    /// Its origin.
    pub source: Source,
    /// The command; `{in}` is the folder of the inputs, `{n}` the number of threads.
    pub command: &'static str,
    /// Commands of a shell that make its inputs, in the folder of the inputs; empty: there are none.
    pub prepare: &'static str,
    /// File of the folder of the inputs that is its standard input; `{n}` as in the command.
    pub stdin: Option<&'static str>,
    /// Inputs that it looks for in its working folder.
    pub beside: &'static [&'static str],
    /// The compared part of its answer.
    pub answer: Answer,
}

const fn of(package: &'static str, name: &'static str, command: &'static str, answer: Answer) -> Program {
    Program { name, source: Source::Package(package), command, prepare: "", stdin: None, beside: &[], answer }
}

impl Program {
    const fn after(self, prepare: &'static str) -> Program {
        Program { prepare, ..self }
    }

    /// The same with this standard input.
    pub const fn reading(self, file: &'static str) -> Program {
        Program { stdin: Some(file), ..self }
    }

    /// The same with these inputs in its working folder.
    pub const fn beside(self, files: &'static [&'static str]) -> Program {
        Program { beside: files, ..self }
    }

    /// The words of its command.
    pub fn words(&self, inputs: &str, threads: usize) -> Vec<String> {
        let threads = threads.to_string();
        self.command.split_whitespace().map(|word| word.replace("{in}", inputs).replace("{n}", &threads)).collect()
    }
}

use Answer::{File, Lines, LinesOf, LinesWith, LinesWithout, Stdout};

/// All programs.
pub const PROGRAMS: &[Program] = &[
    of("pigz", "pigz", "pigz -n -p {n} -c {in}/text", Stdout),
    of("pigz", "pigz -d", "pigz -d -p {n} -c {in}/text.gz", Stdout).after("gzip -n -c text > text.gz"),
    of("pbzip2", "pbzip2", "pbzip2 -p{n} -b1 -c {in}/text", Stdout),
    of("pbzip2", "pbzip2 -d", "pbzip2 -d -p{n} -c {in}/text.bz2", Stdout).after("pbzip2 -b1 -p1 -c text > text.bz2"),
    of("lbzip2", "lbzip2", "lbzip2 -n {n} -c {in}/text", Stdout),
    of("lbzip2", "lbzip2 -d", "lbzip2 -d -n {n} -c {in}/text.lbz2", Stdout).after("lbzip2 -n 1 -c text > text.lbz2"),
    of("plzip", "plzip", "plzip -n {n} -B 256KiB -c {in}/text", Stdout),
    of("plzip", "plzip -d", "plzip -d -n {n} -c {in}/text.lz", Stdout).after("plzip -n 1 -B 256KiB -c text > text.lz"),
    of("xz-utils", "xz", "xz -3 -T {n} --block-size=262144 -c {in}/text", Stdout),
    of("xz-utils", "xz -d", "xz -d -T {n} -c {in}/text.xz", Stdout)
        .after("xz -3 -T 2 --block-size=262144 -c text > text.xz"),
    of("zstd", "zstd", "zstd -q -5 -T{n} -B524288 -c {in}/text", Stdout),
    of("7zip", "7zz -txz", "7zz a -txz -mx=3 -mmt{n} -si -so archive", Stdout).reading("text"),
    of("7zip", "7zz t", "7zz t -mmt{n} {in}/text.7z", LinesWith("Everything is Ok"))
        .after("rm -f text.7z; 7zz a -mx=3 text.7z text > /dev/null"),
    of("pixz", "pixz", "pixz -p {n} -3 -i {in}/text -o out", File("out")),
    of("lrzip", "lrzip -d", "lrzip -d -q -p {n} -o out {in}/text.lrz", File("out"))
        .after("rm -f text.lrz; lrzip -q -L 3 -o text.lrz text"),
    of("tarlz", "tarlz", "tarlz -n {n} -cf out -C {in} tree", File("out")),
    of(
        "squashfs-tools",
        "mksquashfs",
        "mksquashfs {in}/tree out -processors {n} -quiet -no-progress -reproducible -mkfs-time 0",
        File("out"),
    ),
    of("par2", "par2", "par2 create -q -q -t{n} -B {in} -r10 -s65536 out.par2 {in}/text", File("out.par2")),
    of("coreutils", "sort", "sort --parallel={n} -S 8M {in}/text", Stdout),
    of("ripgrep", "rg", "rg -j {n} -c th {in}/tree", Lines),
    of("fd-find", "fdfind", "fdfind -j {n} --color never . {in}/tree", Lines),
    of("silversearcher-ag", "ag", "ag --workers {n} --nocolor thread {in}/tree", Lines),
    of("b3sum", "b3sum", "b3sum --num-threads {n} {in}/text", Stdout),
    of("hashdeep", "md5deep", "md5deep -j{n} -r {in}/tree", Lines),
    of("mbuffer", "mbuffer", "mbuffer -q -m 1M -s 64k -i {in}/text -o out", File("out")),
    of("tabix", "bgzip", "bgzip -@ {n} -c {in}/text", Stdout),
    of("samtools", "samtools sort", "samtools sort -@ {n} -m 1M --no-PG -O sam {in}/reads.sam", Stdout),
    of("samtools", "samtools view", "samtools view -@ {n} --no-PG -b -o out {in}/reads.sam", File("out")),
    of("bcftools", "bcftools view", "bcftools view --threads {n} --no-version -O z -o out {in}/calls.vcf", File("out")),
    of("bwa", "bwa mem", "bwa mem -t {n} {in}/genome.fa {in}/reads.fq", LinesWithout(&["@PG"]))
        .after("bwa index genome.fa 2> /dev/null"),
    of("minimap2", "minimap2", "minimap2 -t {n} -a {in}/genome.fa {in}/reads.fq", LinesWithout(&["@PG"])),
    of("bowtie2", "bowtie2", "bowtie2-align-s -p {n} --no-hd -x {in}/bowtie -U {in}/reads.fq", Lines)
        .after("bowtie2-build-s -q genome.fa bowtie"),
    of("hisat2", "hisat2", "hisat2-align-s -p {n} --no-hd -x {in}/hisat -U {in}/reads.fq", Lines)
        .after("hisat2-build-s -q genome.fa hisat"),
    of(
        "vsearch",
        "vsearch",
        "vsearch --quiet --threads {n} --allpairs_global {in}/genes.fa --id 0.5 --blast6out out",
        LinesOf("out"),
    ),
    of("hmmer", "phmmer", "phmmer --cpu {n} --noali {in}/query.fa {in}/proteins.fa", LinesWithout(&["#"])),
    of("kalign", "kalign", "kalign --nthreads {n} -i {in}/proteins.fa -o out", File("out")),
    of("clustalo", "clustalo", "clustalo --threads={n} -i {in}/proteins.fa", Stdout),
    of(
        "raxml",
        "raxmlHPC-PTHREADS",
        "raxmlHPC-PTHREADS -T {n} -s {in}/genes.phy -m GTRGAMMA -p 12345 -n x --silent",
        File("RAxML_bestTree.x"),
    ),
    of("fasttree", "fasttreeMP", "fasttreeMP -quiet -nosupport -nt {in}/genes.phy", Stdout),
    of("iqtree", "iqtree2", "iqtree2 -nt {n} -s {in}/genes.phy -m JC -seed 1 -pre out -quiet", File("out.treefile")),
    of("cd-hit", "cd-hit", "cd-hit -T {n} -i {in}/proteins.fa -o out", File("out")),
    of("diamond-aligner", "diamond", "diamond blastp --threads {n} --quiet -d {in}/proteins -q {in}/query.fa", Lines)
        .after("diamond makedb --quiet --in proteins.fa -d proteins"),
    of("jellyfish", "jellyfish", "jellyfish histo -t {n} {in}/mers.jf", Stdout)
        .after("jellyfish count -t 1 -m 11 -s 200k -o mers.jf genome.fa"),
    of("mash", "mash", "mash dist -p {n} -i {in}/genes.fa {in}/genes.fa", Lines),
    of("swarm", "swarm", "swarm -t {n} -a 1 {in}/genes.fa", Stdout),
    of("last-align", "lastal", "lastal -P{n} {in}/lastdb {in}/genes.fa", LinesWithout(&["#"]))
        .after("lastdb lastdb genes.fa"),
    of("velvet", "velveth", "velveth out 21 -fastq {in}/reads.fq", File("out/Roadmaps")),
    of("fastp", "fastp", "fastp -w {n} -i {in}/reads.fq -o out", File("out")),
    of(
        "kallisto",
        "kallisto",
        "kallisto quant -t {n} --plaintext -i {in}/genes.idx -o out --single -l 100 -s 10 \
        {in}/reads.fq",
        File("out/abundance.tsv"),
    )
    .after("kallisto index -i genes.idx transcripts.fa 2> /dev/null"),
    of("x264", "x264", "x264 --quiet --threads {n} -o out.264 {in}/video.y4m", File("out.264")),
    of("x265", "x265", "x265 --log-level none -p ultrafast --pools {n} -o out {in}/video.y4m", File("out")),
    of("webp", "cwebp", "cwebp -quiet -mt {in}/image.ppm -o out", File("out")),
    of("libavif-bin", "avifenc", "avifenc -j {n} -s 8 {in}/frame.y4m out.avif", File("out.avif")),
    of("libjxl-tools", "cjxl", "cjxl --quiet --num_threads={n} {in}/image.ppm out.jxl", File("out.jxl")),
    of(
        "aom-tools",
        "aomenc",
        "aomenc -q --threads={n} --row-mt=1 --cpu-used=8 --limit=3 --ivf -o out {in}/video.y4m",
        File("out"),
    ),
    of("svt-av1", "SvtAv1EncApp", "SvtAv1EncApp -i {in}/video.y4m -b out --preset 12 --lp {n} -n 4", File("out")),
    of(
        "vpx-tools",
        "vpxenc",
        "vpxenc -q --threads={n} --cpu-used=8 --limit=6 --ivf -o out {in}/video.y4m",
        File("out"),
    ),
    of("dav1d", "dav1d", "dav1d -q --threads {n} -i {in}/video.ivf -o out.yuv", File("out.yuv"))
        .after("aomenc -q --cpu-used=8 --limit=4 --ivf -o video.ivf video.y4m"),
    of("graphicsmagick", "gm convert", "gm convert {in}/image.ppm -blur 0x4 ppm:out", File("out")),
    of("imagemagick", "convert", "convert {in}/image.ppm -blur 0x4 ppm:out", File("out")),
    of("libvips-tools", "vips", "vips gaussblur {in}/image.ppm out.png 3 --vips-concurrency={n}", File("out.png")),
    of("gifsicle", "gifsicle", "gifsicle -j{n} --resize 50%x50% {in}/image.gif -o out", File("out"))
        .after("gm convert image.ppm image.gif"),
    of("sox", "sox", "sox -R --multi-threaded {in}/sound.wav -t raw out reverb", File("out")),
    of("primesieve-bin", "primesieve", "primesieve 10000000 -q -t{n}", Stdout),
    of("primecount-bin", "primecount", "primecount 10000000000 -t{n}", Stdout),
    of("clasp", "clasp", "clasp -t {n} -n 0 -q {in}/formula.cnf", LinesWith("Models")),
    of("cryptominisat", "cryptominisat5", "cryptominisat5 -t {n} --verb 0 {in}/formula.cnf", LinesWith("s ")),
    of("sqlite3", "sqlite3", "sqlite3 :memory:", Stdout).reading("sort.sql"),
    of("python3", "python3", "/usr/bin/python3 {in}/threads.py {n}", Stdout),
    of("python3-numpy", "numpy", "/usr/bin/python3 {in}/matrix.py", Stdout),
    of("perl", "perl", "/usr/bin/perl {in}/threads.pl {n}", Stdout),
    of("ruby", "ruby", "/usr/bin/ruby {in}/threads.rb {n}", Stdout),
    of("stockfish", "stockfish", "/usr/games/stockfish bench 16 1 6", LinesWith("bestmove")),
    of(
        "sysbench",
        "sysbench cpu",
        "sysbench cpu --threads={n} --events=100 --time=0 run",
        LinesWith("total number of events"),
    ),
    of(
        "sysbench",
        "sysbench threads",
        "sysbench threads --threads={n} --events=20 --time=0 --thread-locks=2 --thread-yields=10 run",
        LinesWith("total number of events"),
    ),
    of(
        "sysbench",
        "sysbench mutex",
        "sysbench mutex --threads={n} --mutex-locks=200 --mutex-loops=100 run",
        LinesWith("total number of events"),
    ),
    of("git", "git index-pack", "git index-pack --threads={n} -o out.idx {in}/objects.pack", Stdout).after(
        "rm -rf repo objects.pack && mkdir repo && cp -r tree repo && cd repo && git init -q && git add . && \
         git ls-files -s | cut -c8-47 | git pack-objects -q --stdout > ../objects.pack",
    ),
    of("lld", "ld.lld", "ld.lld -shared --threads={n} -o out {in}/one.o {in}/two.o", File("out"))
        .after("cc -c -fPIC one.c two.c"),
    of("mold", "mold", "mold -shared --thread-count={n} -o out {in}/one.o {in}/two.o", File("out"))
        .after("cc -c -fPIC one.c two.c"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn programs_have_different_names() {
        let names: BTreeSet<&str> = PROGRAMS.iter().map(|program| program.name).collect();
        assert_eq!(names.len(), PROGRAMS.len());
        assert!(names.len() >= 40);
    }

    #[test]
    fn words_have_their_places_filled() {
        let program = of("p", "p", "p -t {n} {in}/text", Stdout);
        assert_eq!(program.words("/i", 3), ["p", "-t", "3", "/i/text"]);
    }
}
