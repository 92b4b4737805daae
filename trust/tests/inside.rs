//! Trusts inside serialised arguments and results: they work, count, and cannot be made from bytes.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::serve_until;
use serde::ser::SerializeTuple;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use trust::{Error, Latch, Shared, Threadpool, Trust};

fn pool() -> Threadpool {
    Threadpool::builder().workers(2).pin(false).build()
}

/// Counts its drops.
struct Witness(Arc<AtomicUsize>);

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[derive(Serialize, Deserialize)]
struct Named {
    name: String,
    trusts: Vec<Trust<u64>>,
}

#[test]
fn trusts_travel_inside_arguments_and_results() {
    let _watch = watchdog!();
    let pool = pool();
    let numbers: Vec<Trust<u64>> = (0..600).map(|n| pool.entrust(n)).collect();
    let there = pool.entrust(Vec::<Trust<u64>>::new());
    for count in [0, 1, 3, 254, 255, 256, 600] {
        let argument = Named { name: "n".repeat(count), trusts: numbers[..count].to_vec() };
        let back = there.apply_with(
            |kept, named: Named| {
                assert_eq!(named.name.len(), named.trusts.len());
                kept.clone_from(&named.trusts);
                named
            },
            argument,
        );
        assert_eq!(back.trusts.iter().map(|trust| trust.apply(|n| *n)).sum::<u64>(), (0..count as u64).sum());
        assert_eq!(there.apply(|kept| kept.len()), count);
    }
    let latch = pool.entrust(Latch::new(0u64));
    let (sum, again) = latch
        .call()
        .with(numbers.clone())
        .launch(|sum, trusts: Vec<Trust<u64>>| {
            *sum = trusts.iter().map(|trust| trust.apply(|n| *n)).sum();
            (*sum, trusts)
        })
        .wait()
        .unwrap();
    assert_eq!((sum, again.len()), ((0..600).sum(), 600));
}

#[test]
fn a_property_ends_after_the_last_trust_inside_a_message_too() {
    let _watch = watchdog!();
    let drops = Arc::new(AtomicUsize::new(0));
    let ended = |count| serve_until(|| drops.load(Ordering::SeqCst) == count);
    let pool = pool();
    let witness = || pool.entrust(Witness(Arc::clone(&drops)));
    let there = pool.entrust(None::<Trust<Witness>>);

    there.apply_with(|kept, given: Trust<Witness>| *kept = Some(given), witness());
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    there.apply(|kept| *kept = None);
    ended(1);

    // The argument is refused, the property being poisoned; or it is not read to the end.
    let poisoned = pool.entrust(());
    assert!(poisoned.call().apply(|()| panic!("meant")).wait().is_err());
    poisoned.call().with(witness()).apply(|(), _: Trust<Witness>| ()).then(|result| assert!(result.is_err()));
    ended(2);
    let reader = pool.entrust(());
    reader.call().with(Greedy(witness())).apply(|(), _: Greedy| ()).then(|result| assert!(result.is_err()));
    ended(3);

    // The trustee is gone, or goes with the message unread.
    let gone = {
        let other = Threadpool::builder().workers(1).pin(false).build();
        other.entrust(())
    };
    gone.call().with(witness()).apply(|(), _: Trust<Witness>| ()).then(|result| assert!(result.is_err()));
    ended(4);

    // The value panics in its own serialisation.
    there.call().with(Fails(witness())).apply(|_, _: Fails| ()).then(|result| assert!(result.is_err()));
    ended(5);
}

/// Reads its trust and then more than there is.
struct Greedy(Trust<Witness>);

impl Serialize for Greedy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Greedy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <(Trust<Witness>, u64)>::deserialize(deserializer).map(|(trust, _)| Greedy(trust))
    }
}

/// Fails behind its trust.
struct Fails(Trust<Witness>);

impl Serialize for Fails {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)?;
        Err(serde::ser::Error::custom("this never serialises"))
    }
}

impl<'de> Deserialize<'de> for Fails {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom("nor is it read"))
    }
}

/// Reads a trust of another type, or the same trust twice, from the bytes of one.
struct Forged<T: 'static>(Trust<T>);

impl<T: 'static> Serialize for Forged<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.0, 0u32, 1u32, u32::MAX).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Forged<u64> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let numbers = <(u32, u32, u32, u32)>::deserialize(deserializer)?;
        let read = |number: u32| serde::de::value::U32Deserializer::<D::Error>::new(number);
        for number in [numbers.0, numbers.1, numbers.2, numbers.3] {
            assert!(Trust::<Vec<u8>>::deserialize(read(number)).is_err(), "of another type");
            assert!(Trust::<i64>::deserialize(read(number)).is_err(), "of another type");
        }
        let trust = Trust::<u64>::deserialize(read(numbers.0))?;
        for number in [numbers.0, numbers.1, numbers.2, numbers.3] {
            assert!(Trust::<u64>::deserialize(read(number)).is_err(), "a second time");
        }
        Ok(Forged(trust))
    }
}

#[test]
fn bytes_do_not_become_trusts() {
    let _watch = watchdog!();
    let pool = pool();
    let there = pool.entrust(0u64);
    let number = pool.entrust(7u64);
    let back = there.apply_with(|_, forged: Forged<u64>| forged, Forged(number.clone()));
    assert_eq!(back.0.apply(|n| *n), 7);
    drop(back);
    assert_eq!(number.apply(|n| *n), 7);

    // Outside of requests they neither leave nor come.
    let format = bincode::config::standard();
    let refused = bincode::serde::encode_to_vec(&number, format).unwrap_err().to_string();
    assert!(refused.contains("inside an argument or result of a request only"), "{refused}");
    for bytes in [vec![0], vec![1], vec![0; 64]] {
        let read = bincode::serde::decode_from_slice::<Trust<u64>, _>(&bytes, format);
        assert!(read.unwrap_err().to_string().contains("of a request only"));
    }
}

/// Delegates while it is written and read.
struct Busy(Trust<u64>);

impl Serialize for Busy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Does not wait, and has arguments with trusts of its own: lists are closed in the reverse order.
        self.0
            .call()
            .with(self.0.clone())
            .apply(|n, other: Trust<u64>| drop((*n += 1, other)))
            .then(|result| assert!(result.is_err()));
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Busy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Trust::deserialize(deserializer).map(Busy)
    }
}

/// While it is written, it reads back the trust that it has just put into the message.
#[derive(Deserialize)]
struct Regretful(Trust<u64>, [u64; 4]);

impl Serialize for Regretful {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(2)?;
        tuple.serialize_element(&self.0)?;
        let taken = bincode::serde::decode_from_slice::<Trust<u64>, _>(&[0], bincode::config::standard());
        assert!(taken.is_err(), "a trust was taken out of a message that is being written");
        tuple.serialize_element(&self.1)?;
        tuple.end()
    }
}

#[test]
fn trusts_are_not_taken_out_of_a_message_that_is_written() {
    let _watch = watchdog!();
    let pool = pool();
    let (number, there) = (pool.entrust(7u64), pool.entrust(0u64));
    let seen = there.apply_with(|_, Regretful(number, _)| number, Regretful(number, [u64::MAX / 3; 4]));
    assert_eq!(seen.apply(|n| *n), 7);
}

#[test]
fn messages_may_be_written_inside_messages() {
    let _watch = watchdog!();
    let pool = pool();
    let (there, number) = (pool.trustees()[0].entrust(()), pool.trustees()[1].entrust(0u64));
    let here = trust::local_trustee().entrust(0u64);
    for target in [&number, &here] {
        let back = there.apply_with(|(), busy: Busy| busy, Busy(target.clone()));
        // Once as an argument, by this thread, and once as a result, by the trustee's.
        serve_until(|| back.0.apply(|n| *n) == 2);
    }
}

/// Waits while it is written.
struct Waits(Trust<u64>);

impl Serialize for Waits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.apply(|n| *n).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Waits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Trust::deserialize(deserializer).map(Waits)
    }
}

#[test]
fn nothing_waits_while_a_value_is_written() {
    let _watch = watchdog!();
    let pool = pool();
    let (there, number) = (pool.trustees()[1].entrust(()), pool.entrust(0u64));
    let fiber = pool.spawn_on(0, move || there.apply_with(|(), _: Waits| (), Waits(number)));
    let panic = fiber.join().unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("nothing may wait inside the serialisation of an argument or result"), "{text}");
    // The worker goes on as before.
    let (other, held) = (pool.entrust(1), Shared::new(5));
    assert_eq!(other.call().apply(move |n| *n + *held).wait(), Ok(6));
    let outcome: Result<i32, Error> = other.call().apply(|n| *n).wait();
    assert_eq!(outcome, Ok(1));
}
