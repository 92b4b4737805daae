//! `apply_with`: arguments and results that travel serialised.

use std::collections::{BTreeMap, HashMap};

use gossamer::Trust;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ground::{is_rack, panic_of, panics_with, remote, spots};

pub fn strings_travel() {
    for place in spots() {
        let names = gossamer::entrust_on(place, Vec::<String>::new());
        for name in ["Ada", "", "Grace, with a longer name", "Barbara"] {
            names.apply_with(|names, name| names.push(name), name.to_owned());
        }
        assert_eq!(names.apply_with(|names, ()| names.join("/"), ()), "Ada//Grace, with a longer name/Barbara");
    }
}

pub fn collections_travel() {
    type Deep = BTreeMap<String, Vec<Option<(u8, String)>>>;
    let deep: Deep = (0..20u8)
        .map(|n| (n.to_string(), (0..n).map(|m| (m % 3 > 0).then(|| (m, "x".repeat(m.into())))).collect()))
        .collect();
    for place in spots() {
        let kept = gossamer::entrust_on(place, HashMap::<u32, Deep>::new());
        let len = kept.apply_with(
            |kept, (key, deep)| {
                kept.insert(key, deep);
                kept.len()
            },
            (7, deep.clone()),
        );
        assert_eq!(len, 1);
        assert_eq!(kept.apply_with(|kept, key: u32| kept.remove(&key), 7), Some(deep.clone()));
        assert_eq!(kept.apply_with(|kept, key: u32| kept.remove(&key), 7), None);
    }
}

pub fn serialised_requests_keep_their_order() {
    for place in spots() {
        let log = gossamer::entrust_on(place, String::new());
        let mut expected = String::new();
        for round in 0..500u32 {
            let word = format!("{round} ").repeat(round as usize % 40);
            expected.push_str(&word);
            expected.push('.');
            log.call().with(word).apply(|log, word: String| log.push_str(&word)).then(|result| {
                result.unwrap();
            });
            log.apply_then(|log| log.push('.'), |()| {});
        }
        assert!(log.apply_with(|log, ()| log.clone(), ()) == expected, "{place}");
    }
}

fn reverse(kept: &Trust<String>, text: String) -> String {
    let reverse = |kept: &mut String, text: String| {
        let mut bytes = text.into_bytes();
        bytes.reverse();
        *kept = String::from_utf8(bytes).expect("it was plain ASCII");
        kept.clone()
    };
    kept.apply_with(reverse, text)
}

fn text_of(bytes: usize) -> String {
    // Of a length that is no multiple of any piece's.
    let mut text = "The quick brown fox jumps over the lazy dog, and so on. ".repeat(bytes / 56 + 1);
    text.truncate(bytes);
    text
}

pub fn ten_mebibytes_travel() {
    for place in spots() {
        let kept = gossamer::entrust_on(place, String::new());
        let text = text_of(10 << 20);
        let back = reverse(&kept, text.clone());
        assert!(reverse(&kept, back) == text, "{place}");
    }
}

pub fn arguments_of_every_size() {
    let around = |size: usize| [size - 1, size, size + 1];
    let mut sizes = vec![0, 1, 2, 3];
    sizes.extend([23, 64, 128, 191, 250, 1024, 4030, 4096, 8192, 16_384, 65_536].into_iter().flat_map(around));
    sizes.extend([100_000, 262_144, 1 << 20]);
    for place in spots() {
        let kept = gossamer::entrust_on(place, String::new());
        for &size in &sizes {
            let text = text_of(size);
            let back = reverse(&kept, text.clone());
            assert!(reverse(&kept, back) == text, "{size} bytes at {place}");
            assert_eq!(kept.apply(|kept| kept.len()), size);
        }
    }
}

pub fn what_is_too_large_is_refused_with_the_limit() {
    const BYTES: usize = (64 << 20) + 1;
    let there = gossamer::entrust_on(remote(), String::new());
    if is_rack() {
        let text = " ".repeat(BYTES);
        let other = there.clone();
        let refused = panic_of(move || other.apply_with(|kept, text: String| *kept = text, text));
        assert!(refused.contains("over the limit of 67108864 bytes; send it in pieces"), "{refused}");
        // A result likewise; its closure has run.
        let other = there.clone();
        let make = |kept: &mut String, bytes: usize| {
            *kept = "made".to_owned();
            " ".repeat(bytes)
        };
        let refused = panic_of(move || other.apply_with(make, BYTES));
        assert!(refused.contains("over the limit of 67108864 bytes; send it in pieces"), "{refused}");
        assert_eq!(there.apply_with(|kept, ()| kept.clone(), ()), "made");
    } else {
        let len = there.apply_with(|_, text: String| text.len(), " ".repeat(BYTES));
        assert_eq!(len, BYTES);
    }
    assert_eq!(there.apply(|_| 5), 5, "and all goes on");
}

/// Serialises, but does not deserialise.
struct OneWay;

impl Serialize for OneWay {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

impl<'de> Deserialize<'de> for OneWay {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom("it goes one way only"))
    }
}

pub fn what_does_not_serialise_is_an_error() {
    for place in spots().into_iter().filter(|place| *place != gossamer::here()) {
        let number = gossamer::entrust_on(place, 1u64);
        let other = number.clone();
        let failed = panic_of(move || other.apply_with(|n, _: OneWay| *n = 99, OneWay));
        assert!(failed.contains("it goes one way only"), "{failed}");
        let other = number.clone();
        panics_with("it goes one way only", move || other.apply_with(|_, ()| OneWay, ()));
        assert_eq!(number.apply(|n| *n), 1, "it is not poisoned, and was not changed");
    }
}
