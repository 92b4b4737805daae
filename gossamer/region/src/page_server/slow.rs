//! Reports of slow faults on standard error: here, and by the home of the page, which knows the machine that is
//! awaited.

use std::time::Duration;

use gossamer::link;
use trust::link::post;

use super::with;
use crate::page::PAGE_BYTES;

/// Duration from which a fault is reported.
const SLOW: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Makes the page server look later. By a thread of its own: the end of the program waits for fibers, but not for
/// threads.
pub(super) fn look_later() {
    let server = link::page_server(gossamer::rack().machine());
    let thread = std::thread::Builder::new().name("gossamer-slow".to_owned());
    let started = thread.spawn(move || {
        std::thread::sleep(LOOK_EVERY);
        post(server, |_| look(), &[]);
    });
    if let Err(error) = started {
        say(format_args!("gossamer: faults that take long will not be reported: no thread can be started: {error}"));
    }
}

/// Reports slow faults, here and at the page's home, which knows why. Looks again later if threads wait.
fn look() {
    let (mut slow, own) = (vec![], gossamer::rack().machine());
    let waits = with(|server, _| {
        for (region, kept) in (0u32..).zip(&mut server.regions) {
            let Some(kept) = kept else { continue };
            for (page, waiting) in &mut kept.waiting {
                let time = waiting.since.elapsed();
                if time >= SLOW && !std::mem::replace(&mut waiting.is_reported, true) {
                    slow.push((region, *page, time, kept.holder.state(*page)));
                }
            }
        }
        server.looks = server.regions.iter().flatten().any(|kept| !kept.waiting.is_empty());
        server.looks
    });
    for (region, page, time, state) in slow {
        let offset = page as usize * PAGE_BYTES;
        say(format_args!(
            "gossamer: a thread of machine {own} has stood still for {} s at a page of region {region}, {offset} bytes \
             from its start, which is {state:?} here",
            time.as_secs()
        ));
        let home = with(|server, _| server.kept(region).holder.home(page));
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&region.to_ne_bytes());
        bytes[4..].copy_from_slice(&page.to_ne_bytes());
        post(link::page_server(home), tell, &bytes);
    }
    if waits {
        look_later();
    }
}

/// Describes a page, on its home, that a thread has waited for long.
fn tell(bytes: &[u8]) {
    let Some((region, page)) = bytes
        .split_first_chunk::<4>()
        .and_then(|(region, page)| Some((u32::from_ne_bytes(*region), u32::from_ne_bytes(page.try_into().ok()?))))
    else {
        return;
    };
    let text = with(|server, _| server.kept(region).home.describe(page));
    say(format_args!(
        "gossamer: the home of that page, {} bytes from the start of region {region}, says: {text}",
        page as usize * PAGE_BYTES
    ));
}

/// Writes to standard error without the stream's lock, which a thread may hold while it waits for a page in the middle
/// of a line that it prints.
pub(crate) fn say(line: std::fmt::Arguments<'_>) {
    let _ = rustix::io::write(rustix::stdio::stderr(), format!("{line}\n").as_bytes());
}
