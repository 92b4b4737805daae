//! Regions: made at one address on all machines, and divided into spans.

use std::ops::Range;
use std::sync::Mutex;

use comm::SHARE_UNIT_BYTES;
use gossamer::{Trust, link};
use trust::link::{call, post};

use crate::error::{Error, Failure};
use crate::home::MACHINES_MAX;
use crate::page::{Homes, PAGE_BYTES};
use crate::page_server::{self, BYTES_MAX, HOTTEST_MAX};
use crate::plain::Plain;
use crate::span::Span;
use crate::stats::Stats;
use crate::view::{Place, Reserved};

/// Start addresses of the windows in which regions lie: neither the system nor sanitizers give away addresses there by
/// themselves.
const WINDOWS: Range<usize> = 0x2000_0000_0000..0x5000_0000_0000;
const WINDOW_BYTES: usize = 0x0200_0000_0000;

/// Memory at one address on all machines of the program.
///
/// Loads, stores and atomics on its bytes do what they do in one process, in the same order; pages of 4 KiB travel when
/// they are touched. So it suits existing code that computes much for each page that it touches. Small objects that
/// many threads change are better delegated to.
///
/// Its bytes are reached by [`Span`]s. A region stays until the program ends, as the memory of its spans does.
///
/// ```
/// use gossamer_region::{Region, Span};
///
/// fn gsm_main() {
///     let rack = gossamer::rack();
///     let region = Region::new(2 << 20).unwrap();
///     let mut numbers = region.span::<u64>(1 << 10);
///     numbers.iter_mut().zip(0..).for_each(|(number, i)| *number = i);
///     let numbers = numbers.share(); // read by all from here on
///     let squares = region.span::<u64>(1 << 10).split(rack.workers());
///     let mut first = 0;
///     let fibers: Vec<_> = rack.places().zip(squares).map(|(place, mut squares)| {
///         let (numbers, start) = (numbers.clone(), first);
///         first += squares.len();
///         gossamer::spawn_on(place, move || {
///             for (square, number) in squares.iter_mut().zip(&numbers[start..]) {
///                 *square = number * number;
///             }
///             squares
///         })
///     }).collect();
///     let squares = Span::join(fibers.into_iter().map(|fiber| fiber.join().unwrap())).unwrap();
///     assert_eq!(squares[1000], 1_000_000);
///     println!("{}", region.stats());
/// }
///
/// gossamer_region::main(gsm_main, 2);
/// ```
///
/// Source: STRETCH, 3.2.
#[derive(Debug, Clone)]
pub struct Region {
    number: u32,
    address: usize,
    bytes: usize,
    /// Bytes of its spans, from its start.
    used: Trust<usize>,
}

/// Number and bytes of the regions of a program that is one process.
static ALONE: Mutex<(u32, usize)> = Mutex::new((0, 0));

impl Region {
    /// Makes a region of at least this many bytes, rounded up to 64 KiB. It takes memory only where it is touched.
    ///
    /// # Errors
    /// [`Error`]: no bytes or too many, more than 64 machines, no free address, or a system that lacks userfaultfd or
    /// does not allow it.
    ///
    /// # Panics
    /// Outside of [`main`](crate::main); in delegated closures and callbacks, where nothing may wait.
    ///
    /// Example: at the [type](Self).
    pub fn new(bytes: usize) -> Result<Region, Error> {
        Region::with_homes(bytes, Homes::default())
    }

    /// Same as [`new`](Self::new), with a chosen placement of homes.
    ///
    /// # Errors
    /// Those of [`new`](Self::new), and [`Error::Machines`] where the home does not exist.
    ///
    /// # Panics
    /// Same as [`new`](Self::new).
    ///
    /// Example: at [`Homes`].
    pub fn with_homes(bytes: usize, homes: Homes) -> Result<Region, Error> {
        let machines = gossamer::rack().machines().len();
        let is_home = |machine: u16| usize::from(machine) < machines;
        if machines > usize::from(MACHINES_MAX) || matches!(homes, Homes::At(machine) if !is_home(machine)) {
            return Err(Error::Machines { machines, homes: format!("{homes:?}") });
        }
        let too_many = |taken| Error::Bytes { bytes, taken, most: BYTES_MAX };
        if bytes == 0 || bytes > BYTES_MAX {
            return Err(too_many(0));
        }
        let bytes_given = bytes.next_multiple_of(SHARE_UNIT_BYTES);
        let (number, address) = match machines {
            1 => Region::make_alone(bytes_given),
            _ if !link::has_page_servers() => return Err(Error::NoPageServers),
            _ => Region::make(bytes_given, homes, machines as u16),
        }
        .map_err(|error| match error {
            Error::Bytes { taken, .. } => too_many(taken),
            other => other,
        })?;
        Ok(Region { number, address, bytes: bytes_given, used: gossamer::entrust(0) })
    }

    /// Makes a region that replaces these pages.
    pub(crate) fn over(pages: Range<usize>) -> Result<Region, Error> {
        let (bytes, address) = (pages.len(), pages.start);
        let machines = gossamer::rack().machines().len() as u16;
        let (number, offset) = match machines {
            1 => {
                let place = Place::Instead(pages);
                place.reserve().and_then(Reserved::map_alone).map_err(|failure| failure.of(0, bytes, address, 1))?;
                return Ok(Region { number: 0, address, bytes, used: gossamer::entrust(bytes) });
            }
            _ if !link::has_page_servers() => return Err(Error::NoPageServers),
            _ => Region::give(bytes)?,
        };
        Region::map(number, offset, machines, &Place::Instead(pages), Homes::default())
            .map_err(|(machine, failure)| failure.of(machine, bytes, address, 1))?;
        Ok(Region { number, address, bytes, used: gossamer::entrust(bytes) })
    }

    pub(crate) fn address(&self) -> usize {
        self.address
    }

    fn make_alone(bytes: usize) -> Result<(u32, usize), Error> {
        let mut given = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if bytes > BYTES_MAX - given.1 {
            return Err(Error::Bytes { bytes, taken: given.1, most: BYTES_MAX });
        }
        let (mut tried, mut last) = (0, 0);
        for address in WINDOWS.step_by(WINDOW_BYTES).map(|window| window + given.1) {
            (tried, last) = (tried + 1, address);
            match Reserved::at(address..address + bytes).and_then(Reserved::map_alone) {
                Ok(()) => {
                    let number = given.0;
                    *given = (number + 1, given.1 + bytes);
                    return Ok((number, address));
                }
                Err(Failure::Taken) => {}
                Err(failure) => return Err(failure.of(0, bytes, address, tried)),
            }
        }
        Err(Failure::Taken.of(0, bytes, last, tried))
    }

    fn make(bytes: usize, homes: Homes, machines: u16) -> Result<(u32, usize), Error> {
        let (number, offset) = Region::give(bytes)?;
        let mut failed = None;
        for (tried, window) in WINDOWS.step_by(WINDOW_BYTES).enumerate() {
            let address = window + offset;
            let place = Place::Free(address..address + bytes);
            match Region::map(number, offset, machines, &place, homes) {
                Ok(()) => return Ok((number, address)),
                Err((machine, failure)) => failed = Some((failure, failure.of(machine, bytes, address, tried + 1))),
            }
            if failed.as_ref().is_some_and(|(failure, _)| *failure != Failure::Taken) {
                break;
            }
        }
        Err(failed.map_or(Error::NoPageServers, |(_, error)| error))
    }

    /// Returns a number for a region, and its offset in the shares.
    fn give(bytes: usize) -> Result<(u32, usize), Error> {
        let given = on(0, move || page_server::give(bytes.next_multiple_of(SHARE_UNIT_BYTES)));
        given.map_err(|taken| Error::Bytes { bytes, taken, most: BYTES_MAX })
    }

    /// Maps it on all machines, or on none; the error names the machine that failed.
    fn map(number: u32, offset: usize, machines: u16, place: &Place, homes: Homes) -> Result<(), (u16, Failure)> {
        let bytes = place.range().len();
        for machine in 0..machines {
            let place = place.clone();
            if let Err(failure) = on(machine, move || page_server::reserve(number, &place)) {
                (0..machine).for_each(|machine| on(machine, move || page_server::unreserve(number)));
                return Err((machine, failure));
            }
        }
        (0..machines).try_for_each(|machine| {
            on(machine, move || page_server::map(number, bytes, offset, homes)).map_err(|failure| (machine, failure))
        })
    }

    /// Returns its length in bytes.
    ///
    /// ```
    /// let bytes = || gossamer_region::Region::new(100).unwrap().bytes();
    /// gossamer_region::main(move || assert_eq!(bytes(), 64 << 10), 1);
    /// ```
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the next `len` elements of the region, all zero, for one owner. A span begins on a page, so spans do not
    /// share pages. Waits for the worker that holds the count of used bytes.
    ///
    /// Where the region has no room for it, with the text of [`try_span`](Self::try_span)'s error; in delegated
    /// closures and callbacks.
    ///
    /// Example: at the [type](Self).
    pub fn span<T: Plain>(&self, len: usize) -> Span<T> {
        self.try_span(len).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Same as [`span`](Self::span), with an error where there is no room.
    ///
    /// # Errors
    /// [`Error::Room`].
    ///
    /// # Panics
    /// In delegated closures and callbacks.
    ///
    /// ```
    /// gossamer_region::main(
    ///     || {
    ///         let region = gossamer_region::Region::new(64 << 10).unwrap();
    ///         let bytes = region.try_span::<u8>(60 << 10).unwrap();
    ///         assert!(region.try_span::<u64>(1 << 10).is_err());
    ///         assert_eq!(bytes[7], 0);
    ///     },
    ///     1,
    /// );
    /// ```
    pub fn try_span<T: Plain>(&self, len: usize) -> Result<Span<T>, Error> {
        const { T::FITS };
        let bytes = self.bytes;
        let wanted = len.checked_mul(size_of::<T>()).and_then(|wanted| wanted.checked_next_multiple_of(PAGE_BYTES));
        let room = |left| Error::Room { left, bytes, wanted: len.saturating_mul(size_of::<T>()) };
        let Some(wanted) = wanted else { return Err(room(bytes)) };
        let taken = self.used.apply(move |used| match bytes - *used {
            left if left < wanted => Err(left),
            _ => Ok(std::mem::replace(used, *used + wanted)),
        });
        let start = taken.map_err(room)?;
        Ok(Span::new(self.address + start, len))
    }

    /// Requests, to read, those pages of these bytes of the region that are not on the calling machine. Does not wait;
    /// a thread that touches them does. Bytes outside of the region are ignored.
    ///
    /// ```
    /// gossamer_region::main(
    ///     || {
    ///         let region = gossamer_region::Region::new(1 << 20).unwrap();
    ///         region.prefetch(0..1 << 20);
    ///     },
    ///     1,
    /// );
    /// ```
    pub fn prefetch(&self, bytes: Range<usize>) {
        let end = bytes.end.min(self.bytes).div_ceil(PAGE_BYTES) as u32;
        let (number, first) = (self.number, (bytes.start / PAGE_BYTES).min(end as usize) as u32);
        if gossamer::rack().machines().len() > 1 && first < end {
            post(
                link::page_server(gossamer::rack().machine()),
                move |_| page_server::prefetch(number, first, end),
                &[],
            );
        }
    }

    /// Returns the counters of all regions of the program, over all machines. Waits for their page servers.
    ///
    /// # Panics
    /// In delegated closures and callbacks.
    ///
    /// Example: at [`Stats`].
    pub fn stats(&self) -> Stats {
        match gossamer::rack().machines().len() {
            1 => Stats::default(),
            machines => (0..machines as u16)
                .map(|machine| on(machine, Stats::here))
                .fold(Stats::default(), |sum, one| sum + one),
        }
    }

    /// Returns the most requested pages, hottest first: the offset of each in the region, and its number of requests.
    /// At most 32. Waits for the page servers. Shows the pages that several machines write in turns.
    ///
    /// # Panics
    /// In delegated closures and callbacks.
    ///
    /// ```
    /// gossamer_region::main(
    ///     || {
    ///         let region = gossamer_region::Region::new(1 << 20).unwrap();
    ///         for (offset, asks) in region.hottest(10) {
    ///             println!("{asks} times the page at {offset}");
    ///         }
    ///     },
    ///     1,
    /// );
    /// ```
    pub fn hottest(&self, count: usize) -> Vec<(usize, u64)> {
        let (number, machines) = (self.number, gossamer::rack().machines().len());
        let mut all = vec![];
        if machines > 1 {
            for machine in 0..machines as u16 {
                let (pages, count) = on(machine, move || page_server::hottest(number));
                all.extend(pages[..count].iter().map(|(page, asks)| (*page as usize * PAGE_BYTES, *asks)));
            }
        }
        all.sort_unstable_by_key(|(offset, asks)| (std::cmp::Reverse(*asks), *offset));
        all.truncate(count.min(HOTTEST_MAX));
        all
    }
}

/// Runs a function on a machine's page server.
fn on<R, F>(machine: u16, f: F) -> R
where
    R: gossamer::NoRef + Send + 'static,
    F: FnOnce() -> R + gossamer::NoRef + Send + 'static,
{
    call(link::page_server(machine), f)
        .unwrap_or_else(|error| panic!("the page server of machine {machine} does not answer: {error}"))
}
