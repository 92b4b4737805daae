//! Replies are in the order of the requests, also while a large value is fetched.

use gossamer_examples::kv::replies::{Form, Replies};
use gossamer_examples::kv::table::{Answer, Large};

struct Stored(&'static [u8]);

impl Large for Stored {
    fn bytes(&self) -> usize {
        self.0.len()
    }

    fn fetch(self) -> Vec<u8> {
        self.0.to_vec()
    }
}

#[test]
fn what_comes_while_a_value_is_fetched_stays_behind_it() {
    let replies = Replies::<Stored>::new();
    let [first, second, third] = ["a", "b", "c"].map(|key| replies.expect(Form::Item, key.as_bytes()));
    replies.say(&[b"END\r\n"]);
    let mut sent = Vec::new();
    let mut send = || {
        let output = replies.output();
        sent.extend_from_slice(&output);
        replies.sent(output);
    };
    first.answer(Answer::Large { flags: 1, unique: 7, value: Stored(b"large") });
    let value = replies.to_fetch().expect("a value to be fetched");
    send();
    // As it happens while the connection waits, to send or for the value.
    second.answer(Answer::Value { flags: 2, unique: 8, value: b"small" });
    send();
    third.answer(Answer::Large { flags: 3, unique: 9, value: Stored(b"another") });
    assert!(replies.to_fetch().is_none(), "one at a time");
    replies.fetched(&value.fetch());
    replies.wait();
    let value = replies.to_fetch().expect("the other value");
    replies.fetched(&value.fetch());
    replies.wait();
    assert!(replies.to_fetch().is_none());
    send();
    let expected = "VALUE a 1 5\r\nlarge\r\nVALUE b 2 5\r\nsmall\r\nVALUE c 3 7\r\nanother\r\nEND\r\n";
    assert_eq!(String::from_utf8_lossy(&sent), expected);
    assert_eq!(replies.under_way(), (0, 0));
}
