//! A job by threads of this process, or over a region by a worker of each machine. Parts fill their input, as programs
//! read their files, and work on it; both is timed.

use super::jobs::{HOT_WORDS, Job};
use crate::prelude::*;
use gossamer::Place;
use gossamer_region::{Region, Span};
use std::iter::repeat_with;
use std::ops::Range;
use std::sync::atomic::AtomicU64;

/// Nanoseconds, and the digest of the answer.
pub type Done = (f64, u64);

fn parts(job: Job, size: usize, count: usize) -> Vec<Range<usize>> {
    (0..count).map(|part| job.part(size, part, count)).collect()
}

pub fn by_threads(job: Job, size: usize, threads: usize) -> Done {
    let (parts, words) = (parts(job, size, threads), job.item_words(size));
    let mut input = vec![0u32; job.items(size) * words];
    let hot: Vec<AtomicU64> = repeat_with(AtomicU64::default).take(HOT_WORDS).collect();
    let mut outs: Vec<Vec<u64>> = parts.iter().map(|part| vec![0; job.out_words(size, part)]).collect();
    let began = Instant::now();
    thread::scope(|scope| {
        let mut left = &mut input[..];
        for part in &parts {
            let own;
            (own, left) = left.split_at_mut(part.len() * words);
            scope.spawn(|| job.fill(size, part.clone(), own));
        }
    });
    job.begin(&hot);
    for _ in 0..job.rounds() {
        thread::scope(|scope| {
            for (part, out) in parts.iter().zip(&mut outs) {
                scope.spawn(|| job.run(size, &input, &hot, part.clone(), out));
            }
        });
        job.between(&hot);
    }
    let outs: Vec<&[u64]> = outs.iter().map(Vec::as_slice).collect();
    let digest = job.digest(&outs, &hot);
    (began.elapsed().as_nanos() as f64, digest)
}

/// Over a region, by the first worker of each machine. Prints the region's counters on standard error.
pub fn by_rack(job: Job, size: usize) -> Result<Done> {
    let machines = gossamer::rack().machines().len();
    let (parts, words) = (parts(job, size, machines), job.item_words(size));
    let out_bytes = |part| job.out_words(size, part) * size_of::<u64>() + PAGE;
    let bytes = job.items(size) * words * size_of::<u32>() + parts.iter().map(out_bytes).sum::<usize>() + 3 * PAGE;
    let region = Region::new(bytes)?;
    let mut input = region.span::<u32>(job.items(size) * words);
    let hot = region.span::<AtomicU64>(HOT_WORDS).share();
    let mut outs: Vec<Span<u64>> = parts.iter().map(|part| region.span(job.out_words(size, part))).collect();
    let began = Instant::now();
    let mut filling = vec![];
    for (place, part) in places().zip(parts.iter().cloned()) {
        let mut own;
        (own, input) = input.split_at(part.len() * words);
        filling.push(gossamer::spawn_on(place, move || {
            job.fill(size, part, &mut own);
            own
        }));
    }
    let filled = filling.into_iter().map(|fiber| fiber.join().map_err(|_| anyhow!("a part was not filled")));
    let input = Span::join(filled.collect::<Result<Vec<_>>>()?).map_err(|error| anyhow!("{error}"))?.share();
    job.begin(&hot);
    for _ in 0..job.rounds() {
        let mut working = vec![];
        for ((place, part), mut out) in places().zip(parts.iter().cloned()).zip(outs) {
            let (input, hot) = (input.clone(), hot.clone());
            working.push(gossamer::spawn_on(place, move || {
                job.run(size, &input, &hot, part, &mut out);
                out
            }));
        }
        let done = working.into_iter().map(|fiber| fiber.join().map_err(|_| anyhow!("a part was not done")));
        outs = done.collect::<Result<_>>()?;
        job.between(&hot);
    }
    let digest = job.digest(&outs.iter().map(|out| &out[..]).collect::<Vec<_>>(), &hot);
    let ns = began.elapsed().as_nanos() as f64;
    eprintln!("region: {job:?}: {}; hottest: {:?}", region.stats(), region.hottest(1));
    if job == Job::Kmeans && machines > 1 {
        let means = (job.items(size) * words * size_of::<u32>()).next_multiple_of(PAGE);
        let hottest = region.hottest(1);
        let is_hottest = hottest.first().is_some_and(|(at, _)| *at == means);
        ensure!(is_hottest, "the hottest page is {hottest:?}, not {means}");
    }
    Ok((ns, digest))
}

const PAGE: usize = 4096;

fn places() -> impl Iterator<Item = Place> {
    (0..gossamer::rack().machines().len() as u16).map(|machine| Place::of(machine, 0))
}
