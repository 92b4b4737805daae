//! A transaction whose error is a `String`: the cure keeps `attempt`, which undoes.

use trust_durable::*;

fn main_with(account: Durable<u64>) {
    let _ = account.attempt(|account, _| {
        *account = account.checked_sub(30).ok_or("too little is there".to_owned())?;
        Ok::<(), String>(())
    });
}

fn main() {}
