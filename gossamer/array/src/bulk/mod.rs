//! Calls for many elements at once. They go in packets to the homes of the elements, several in flight at a time, and
//! are executed there. Nothing is cached here, and a chunk moves only to its home, if another place has the right to
//! it. A call is complete when it returns.
//!
//! A packet is a header of fixed size in the closure and bytes behind it: indices and values as they lie in memory. Its
//! answer is a separate message (`replies.rs`): the elements read, or nothing. A home processes the chunks of a packet
//! as they become available, and answers after the last.

#![allow(unsafe_code)]

mod deed;
mod flight;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use zerocopy::FromBytes;

use self::deed::{Combine, Deed, Read, Write};
use self::flight::Flight;
use crate::array::{Array, at_place, on_worker};
use crate::directory::Right;
use crate::element::Element;
use crate::name::Name;
use crate::operator::{Operator, bytes_of, bytes_of_all, copy_bytes};
use crate::part::{Lent, Part};
use crate::post;
use crate::waits;

/// Approximate bytes of a packet and of its answer; with its header a packet fits a slot.
const PACKET_BYTES: usize = 7 << 10;
/// A packet at the home of its elements.
struct Packet<T> {
    /// Number of remaining steps.
    left: Cell<usize>,
    /// The answer.
    answer: RefCell<Vec<T>>,
    name: Name,
    from: usize,
    number: u64,
}

impl<T: Element> Packet<T> {
    /// Starts with one step, for the packet's own construction.
    fn new(part: &Part, from: usize, number: u64, answers: usize) -> Rc<Self> {
        assert!(from < part.places(), "a packet of place {from}, which there is not");
        let answer = RefCell::new(vec![T::new_zeroed(); answers]);
        Rc::new(Packet { left: Cell::new(1), answer, name: part.name, from, number })
    }

    /// Counts a step as done; the last one sends the answer.
    fn done(&self, part: &Part) {
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0 {
            let (name, number) = (self.name, self.number);
            let answer = self.answer.take();
            part.counters.count(|stats| stats.bytes += size_of_val(&answer[..]) as u64);
            let told =
                move |bytes: &[u8]| post::at(name, |part| part.replies.answer::<Box<[u8]>>(number, bytes.into()));
            trust::link::post(part.place(self.from), told, bytes_of_all(&answer));
        }
    }
}

/// An element of a packet: its index, and a value if the operation takes one.
#[derive(Clone, Copy)]
struct Item<T> {
    index: usize,
    value: T,
}

/// Decodes the items of a packet, which this same program has sent.
fn items<T: Element, D: Deed<T>>(bytes: &[u8]) -> impl Iterator<Item = Item<T>> {
    let item_bytes = size_of::<usize>() + if D::BRINGS_VALUES { size_of::<T>() } else { 0 };
    bytes.chunks_exact(item_bytes).map(|item| {
        let (index, value) = item.split_at(size_of::<usize>());
        let index = usize::read_from_bytes(index).unwrap_or(usize::MAX);
        Item { index, value: T::read_from_bytes(value).unwrap_or_else(|_| T::new_zeroed()) }
    })
}

impl<T: Element> Array<T> {
    /// Applies the operation to each of these elements: here if the right is at this place, else by packets to the
    /// homes. `answered` gets the position of each element in `elements` and its value, if the operation reads.
    #[track_caller]
    fn to_homes<D: Deed<T>>(
        &self,
        call: &str,
        elements: impl Iterator<Item = (usize, T)>,
        mut answered: impl FnMut(usize, T),
    ) {
        waits::may_wait(call);
        self.look();
        let part = self.part();
        let mut packets: Vec<(Vec<u8>, Vec<usize>)> = vec![Default::default(); part.places()];
        let answered = RefCell::new(&mut answered);
        let flight = Flight::new(Rc::clone(&part));
        let send = |home: usize, packet: &mut (Vec<u8>, Vec<usize>)| {
            let (bytes, numbers) = std::mem::take(packet);
            let answered = &answered;
            let reply = flight.begin(move |answer| {
                let values = answer.chunks_exact(size_of::<T>()).map(T::read_from_bytes);
                numbers.into_iter().zip(values.map_while(Result::ok)).for_each(|(number, value)| {
                    (answered.borrow_mut())(number, value);
                });
            });
            let (name, from) = (part.name, part.own);
            let arrived = move |bytes: &[u8]| post::at(name, |part| serve::<T, D>(part, from, reply, bytes));
            trust::link::post(part.place(home), arrived, &bytes);
            part.counters.count(|stats| stats.bytes += bytes.len() as u64);
        };
        for (number, (index, value)) in elements.enumerate() {
            assert!(index < self.len(), "index {index} is out of range of an array of {} elements", self.len());
            let here = D::here(self, index, value);
            if let Some(element) = here.or_else(|| if self.look() { D::here(self, index, value) } else { None }) {
                (answered.borrow_mut())(number, element);
                continue;
            }
            let home = part.shape.home((index >> self.shift()) as u32);
            let packet = &mut packets[home];
            packet.0.extend_from_slice(&index.to_ne_bytes());
            if D::BRINGS_VALUES {
                packet.0.extend_from_slice(bytes_of(&value));
            } else {
                packet.1.push(number);
            }
            if packet.0.len().max(packet.1.len() * size_of::<T>()) >= PACKET_BYTES {
                send(home, packet);
            }
        }
        for (home, packet) in packets.iter_mut().enumerate().filter(|(_, packet)| !packet.0.is_empty()) {
            send(home, packet);
        }
        flight.wait(0);
    }

    /// Reads the elements at these indices into `to`, in this order.
    ///
    /// # Panics
    /// If an index is out of range; if the slices differ in length; inside delegated closures and callbacks, where
    /// nothing may wait; if the array is poisoned.
    ///
    /// ```
    /// use gossamer_array::Array;
    /// gossamer::main(|| {
    ///     let array = Array::new(1000, 1u32).unwrap();
    ///     array.scatter(&[900, 3], &[7, 8]);
    ///     let mut got = [0; 3];
    ///     array.gather(&[3, 4, 900], &mut got);
    ///     assert_eq!(got, [8, 1, 7]);
    /// }, 2);
    /// ```
    #[track_caller]
    pub fn gather(&self, at: &[usize], to: &mut [T]) {
        assert_eq!(at.len(), to.len(), "as many indices as elements to read into");
        if !self.is_here() {
            let (array, at) = (self.clone(), at.to_vec());
            let got = on_worker(move || {
                let mut got = vec![T::new_zeroed(); at.len()];
                array.gather(&at, &mut got);
                got
            });
            return to.copy_from_slice(&got);
        }
        let items = at.iter().map(|index| (*index, T::new_zeroed()));
        self.to_homes::<Read>("gather", items, |number, value| to[number] = value);
    }

    /// Sets the elements at these indices to those of `from`. If an index occurs twice, which of its values remains is
    /// unspecified.
    ///
    /// # Panics
    /// Those of [`gather`](Self::gather).
    ///
    /// Example: at [`gather`](Self::gather).
    #[track_caller]
    pub fn scatter(&self, at: &[usize], from: &[T]) {
        assert_eq!(at.len(), from.len(), "as many indices as elements to write");
        if !self.is_here() {
            let (array, at, from) = (self.clone(), at.to_vec(), from.to_vec());
            return on_worker(move || array.scatter(&at, &from));
        }
        let items = at.iter().copied().zip(from.iter().copied());
        self.to_homes::<Write>("scatter", items, |_, _| ());
    }

    /// Combines each of these elements with its value, as [`apply`](Self::apply) does, but at its home: 8 bytes and the
    /// value are sent for each. That moves less data than `apply` if each chunk gets few operands, and leaves nothing
    /// to merge.
    ///
    /// # Panics
    /// Those of [`gather`](Self::gather).
    ///
    /// ```
    /// use gossamer_array::{Add, Array};
    /// gossamer::main(|| {
    ///     let array = Array::new(1000, 1u32).unwrap();
    ///     array.apply_all(Add, (0..1000).step_by(10).map(|i| (i, 5)));
    ///     assert_eq!((array.get(10), array.get(11)), (6, 1));
    /// }, 2);
    /// ```
    #[track_caller]
    pub fn apply_all<O: Operator<T>>(&self, op: O, operands: impl IntoIterator<Item = (usize, T)>) {
        let _ = op;
        if self.is_here() {
            return self.to_homes::<Combine<O>>("apply_all", operands.into_iter(), |_, _| ());
        }
        let operands: Vec<(usize, T)> = operands.into_iter().collect();
        let array = self.clone();
        on_worker(move || array.to_homes::<Combine<O>>("apply_all", operands.into_iter(), |_, _| ()));
    }

    /// Copies the elements from `start` on into `to`. Chunks at this place are not fetched again; none is cached.
    ///
    /// # Panics
    /// Those of [`gather`](Self::gather).
    ///
    /// ```
    /// use gossamer_array::Array;
    /// gossamer::main(|| {
    ///     let array = Array::new(1000, 0u16).unwrap();
    ///     array.copy_from(100, &[1, 2, 3]);
    ///     let mut some = [9; 5];
    ///     array.copy_to(99, &mut some);
    ///     assert_eq!(some, [0, 1, 2, 3, 0]);
    /// }, 2);
    /// ```
    #[track_caller]
    pub fn copy_to(&self, start: usize, to: &mut [T]) {
        self.check_range(&(start..start.saturating_add(to.len())));
        if !self.is_here() {
            let range = start..start + to.len();
            return to.copy_from_slice(&at_place!(self, copied(range)));
        }
        self.copy_pieces("copy_to", start, to);
    }

    /// Copies elements from `start` on, within the array; `call` is the name of the call for panics.
    #[track_caller]
    pub(crate) fn copy_pieces(&self, call: &str, start: usize, to: &mut [T]) {
        let part = self.part();
        let flight = Flight::new(Rc::clone(&part));
        let mut rest = to;
        for piece in self.pieces(start..start + rest.len()) {
            let (to, behind) = std::mem::take(&mut rest).split_at_mut(piece.len());
            rest = behind;
            self.look();
            let chunk = (piece.start >> self.shift()) as u32;
            if let Some(frame) = part.ready(call, chunk, Right::Read) {
                to.copy_from_slice(self.slice(frame, &piece));
                continue;
            }
            waits::may_wait(call);
            let number = flight.begin(move |answer| copy_bytes(to, answer));
            self.send_piece(&part, number, chunk, &piece, None);
        }
        flight.wait(0);
    }

    /// Sets the elements from `start` on to those of `from`. Fetches no chunk.
    ///
    /// # Panics
    /// Those of [`gather`](Self::gather).
    ///
    /// Example: at [`copy_to`](Self::copy_to).
    #[track_caller]
    pub fn copy_from(&self, start: usize, from: &[T]) {
        self.check_range(&(start..start.saturating_add(from.len())));
        if !self.is_here() {
            let (array, from) = (self.clone(), from.to_vec());
            return on_worker(move || array.copy_from(start, &from));
        }
        let part = self.part();
        let flight = Flight::new(Rc::clone(&part));
        for piece in self.pieces(start..start + from.len()) {
            let from = &from[piece.start - start..piece.end - start];
            self.look();
            let chunk = (piece.start >> self.shift()) as u32;
            if let Some(frame) = part.ready("copy_from", chunk, Right::Write) {
                self.slice_mut(frame, &piece).copy_from_slice(from);
                continue;
            }
            waits::may_wait("copy_from");
            let number = flight.begin(|_| ());
            self.send_piece(&part, number, chunk, &piece, Some(from));
        }
        flight.wait(0);
    }

    /// Sends a request to read or (with elements) write a piece of a chunk at its home.
    fn send_piece(&self, part: &Part, number: u64, chunk: u32, piece: &Range<usize>, write: Option<&[T]>) {
        let (name, from, is_written) = (part.name, part.own, write.is_some());
        let (first, count) = (piece.start & (self.chunk() - 1), piece.len());
        let arrived = move |bytes: &[u8]| {
            post::at(name, |part| {
                let packet = Packet::<T>::new(part, from, number, if is_written { 0 } else { count });
                let fits = part.holds(chunk, first, count) && (!is_written || bytes.len() == count * size_of::<T>());
                assert!(fits, "a packet for {count} elements of chunk {chunk}, which are not here");
                let right = if is_written { Right::Write } else { Right::Read };
                let bytes: Box<[u8]> = bytes.into();
                let job = move |part: &Part, lent: Lent| {
                    let at = lent.frame().elements().wrapping_add(first * size_of::<T>());
                    let mut answer = packet.answer.borrow_mut();
                    // SAFETY: the chunk has those elements, any bytes are elements, and the frame is busy; the lengths
                    // were compared.
                    unsafe {
                        if is_written {
                            at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                        } else {
                            answer.as_mut_ptr().copy_from_nonoverlapping(at.cast::<T>(), count);
                        }
                    }
                    drop(answer);
                    packet.done(part);
                };
                part.access(chunk, right, Box::new(job));
            });
        };
        let bytes = write.map_or(&[][..], bytes_of_all);
        part.counters.count(|stats| stats.bytes += bytes.len() as u64);
        trust::link::post(part.place(part.shape.home(chunk)), arrived, bytes);
    }
}

/// Handles a packet. Operations allowed now are applied at once; the others chunk by chunk, as each becomes available.
fn serve<T: Element, D: Deed<T>>(part: &Part, from: usize, number: u64, bytes: &[u8]) {
    let shift = part.shape.shift;
    let within = move |index: usize| index & ((1 << shift) - 1);
    let answers = if D::BRINGS_VALUES { 0 } else { bytes.len() / size_of::<usize>() };
    let packet = Packet::<T>::new(part, from, number, answers);
    let mut later: Vec<(usize, Item<T>)> = Vec::new();
    {
        let mut answer = packet.answer.borrow_mut();
        for (at, item) in items::<T, D>(bytes).enumerate() {
            let (chunk, first) = ((item.index >> shift) as u32, within(item.index));
            assert!(item.index < part.shape.elements, "a packet for element {}, which there is not", item.index);
            match part.own_frame(chunk, D::right()).filter(|_| D::IS_PLAIN) {
                // SAFETY: the chunk has this element, any bytes are one, and the right to do this is here.
                Some(frame) => unsafe {
                    D::take(frame.elements().cast::<T>().add(first), item.value, answer.get_mut(at))
                },
                None => later.push((at, item)),
            }
        }
    }
    // By chunk, and in the order of the packet within each.
    later.sort_by_key(|(_, item)| item.index >> shift);
    for run in later.chunk_by(|(_, a), (_, b)| a.index >> shift == b.index >> shift) {
        let (run, packet) = (run.to_vec(), Rc::clone(&packet));
        let chunk = (run[0].1.index >> shift) as u32;
        assert!(part.holds(chunk, 0, 0), "a packet for elements of chunk {chunk}, which are not here");
        packet.left.set(packet.left.get() + 1);
        let job = move |part: &Part, lent: Lent| {
            let elements = lent.frame().elements().cast::<T>();
            let mut answer = packet.answer.borrow_mut();
            let each = || {
                for (at, item) in run {
                    // SAFETY: as above; the frame is busy, so the operator's code cannot reach it.
                    unsafe { D::take(elements.add(within(item.index)), item.value, answer.get_mut(at)) }
                }
            };
            if D::IS_PLAIN {
                each()
            } else {
                post::guarded(part, "an operator", each)
            }
            drop(answer);
            packet.done(part);
        };
        part.access(chunk, D::right(), Box::new(job));
    }
    packet.done(part);
}
