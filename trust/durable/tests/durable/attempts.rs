//! Closures that return `Err`: undone by each form of `attempt`, committed by each form of `apply`.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use trust::Threadpool;
use trust_durable::{Durable, Error, PMap, PString, Tx};

type Accounts = Durable<PMap<'static, PString<'static>, u64>>;

fn open(pool: &Threadpool, folder: &Path) -> Accounts {
    Durable::<PMap<PString, u64>>::open(pool.trustees()[0], folder, |tx| {
        let mut accounts = PMap::new();
        accounts.insert(PString::of("Ada", tx), 100, tx);
        accounts.insert(PString::of("Bob", tx), 0, tx);
        accounts
    })
    .unwrap()
}

/// Finds that the account does not exist after the money was taken and another account opened.
fn transfer<'p>(accounts: &mut PMap<'p, PString<'p>, u64>, tx: &Tx<'p>, to: &str, amount: u64) -> Result<u64, String> {
    accounts.insert(PString::of("spent", tx), amount, tx);
    let from = accounts.get_mut("Ada").ok_or("Ada has no account")?;
    *from = from.checked_sub(amount).ok_or("Ada has too little")?;
    let left = *from;
    *accounts.get_mut(to).ok_or_else(|| format!("{to} has no account"))? += amount;
    accounts.remove("spent");
    Ok(left)
}

/// Same as `transfer`, for closures that capture nothing with a pointer.
fn transfer_plainly<'p>(
    accounts: &mut PMap<'p, PString<'p>, u64>,
    tx: &Tx<'p>,
    is_to_bob: bool,
    amount: u64,
) -> Result<u64, u8> {
    transfer(accounts, tx, if is_to_bob { "Bob" } else { "Eve" }, amount).map_err(|why| why.as_bytes()[0])
}

fn balances(accounts: &Accounts) -> (Option<u64>, Option<u64>, Option<u64>) {
    let names = ["Ada", "Bob", "spent"].map(str::to_owned);
    let get =
        |accounts: &mut PMap<PString, u64>, _: &Tx, names: [String; 3]| names.map(|name| accounts.get(&*name).copied());
    accounts.apply_with(get, names).into()
}

#[test]
fn each_form_of_attempt_undoes_what_returns_an_error_and_commits_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let accounts = open(&pool, folder.path());
    let seen = Rc::new(RefCell::new(Vec::new()));
    let see = |what: &'static str| {
        let seen = Rc::clone(&seen);
        move |outcome: String| seen.borrow_mut().push((what, outcome))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (mut left, mut forms) = (100, 0);
    let mut each = |form: &str, run: &dyn Fn(bool)| {
        run(false);
        accounts.sync().unwrap();
        assert_eq!(balances(&accounts), (Some(left), Some(100 - left), None), "`{form}` undoes it");
        run(true);
        accounts.sync().unwrap();
        left -= 5;
        assert_eq!(balances(&accounts), (Some(left), Some(100 - left), None), "`{form}` commits it");
        forms += 1;
    };
    each("attempt", &|is_to_bob| {
        let outcome = accounts.attempt(move |accounts, tx| transfer_plainly(accounts, tx, is_to_bob, 5));
        assert_eq!(outcome, if is_to_bob { Ok(95) } else { Err(b'E') });
    });
    each("call, attempt", &|is_to_bob| {
        let outcome = accounts.call().attempt(move |accounts, tx| transfer_plainly(accounts, tx, is_to_bob, 5)).wait();
        assert_eq!(outcome.unwrap().is_ok(), is_to_bob);
    });
    each("attempt_then", &|is_to_bob| {
        let then = see("attempt_then");
        accounts.attempt_then(
            move |accounts, tx| transfer_plainly(accounts, tx, is_to_bob, 5),
            move |outcome| then(format!("{outcome:?}")),
        );
    });
    each("call, attempt, then", &|is_to_bob| {
        let then = see("call, attempt, then");
        accounts
            .call()
            .attempt(move |accounts, tx| transfer_plainly(accounts, tx, is_to_bob, 5))
            .then(move |outcome| then(format!("{:?}", outcome.unwrap())));
    });
    each("call, with, attempt", &|is_to_bob| {
        let outcome = accounts
            .call()
            .with(if is_to_bob { "Bob" } else { "Eve" }.to_owned())
            .attempt(|accounts, tx, to: String| transfer(accounts, tx, &to, 5))
            .wait()
            .unwrap();
        assert_eq!(outcome.err(), (!is_to_bob).then(|| "Eve has no account".to_owned()));
    });
    each("call, with, attempt, then", &|is_to_bob| {
        let then = see("call, with, attempt, then");
        accounts
            .call()
            .with(if is_to_bob { "Bob" } else { "Eve" }.to_owned())
            .attempt(|accounts, tx, to: String| transfer(accounts, tx, &to, 5))
            .then(move |outcome| then(format!("{:?}", outcome.unwrap())));
    });
    each("call, attempt, async", &|is_to_bob| {
        let call =
            accounts.call().attempt(move |accounts, tx| transfer_plainly(accounts, tx, is_to_bob, 5)).into_future();
        assert_eq!(runtime.block_on(call).unwrap().is_ok(), is_to_bob);
    });
    assert_eq!(forms, 7);
    let expected = [
        ("attempt_then", "Err(69)"),
        ("attempt_then", "Ok(85)"),
        ("call, attempt, then", "Err(69)"),
        ("call, attempt, then", "Ok(80)"),
        ("call, with, attempt, then", "Err(\"Eve has no account\")"),
        ("call, with, attempt, then", "Ok(70)"),
    ];
    assert!(seen.borrow().iter().map(|(form, outcome)| (*form, &**outcome)).eq(expected), "{seen:?}");
    assert_eq!(accounts.stats().unwrap().undone, 7);
    accounts.close().unwrap();
    assert_eq!(balances(&open(&pool, folder.path())), (Some(65), Some(35), None), "so it is on disk");
}

#[test]
fn each_form_of_apply_commits_what_returns_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let accounts = open(&pool, folder.path());
    let told = Rc::new(RefCell::new(0));
    let tell = || {
        let told = Rc::clone(&told);
        move |is_err: bool| *told.borrow_mut() += u32::from(is_err)
    };
    let f = |accounts: &mut PMap<'_, PString<'_>, u64>| {
        *accounts.get_mut("Ada").unwrap() -= 5;
        Err::<(), u8>(1)
    };
    assert!(accounts.apply(move |accounts, _| f(accounts)).is_err());
    assert!(accounts.call().apply(move |accounts, _| f(accounts)).wait().unwrap().is_err());
    assert!(accounts.apply_with(move |accounts, _, ()| f(accounts), ()).is_err());
    let then = tell();
    accounts.apply_then(move |accounts, _| f(accounts), move |outcome| then(outcome.is_err()));
    let then = tell();
    accounts.call().apply(move |accounts, _| f(accounts)).then(move |outcome| then(outcome.unwrap().is_err()));
    let then = tell();
    accounts
        .call()
        .with(())
        .apply(move |accounts, _, ()| f(accounts))
        .then(move |outcome| then(outcome.unwrap().is_err()));
    accounts.sync().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(runtime.block_on(accounts.call().apply(move |accounts, _| f(accounts)).into_future()).unwrap().is_err());
    assert_eq!(*told.borrow(), 3);
    accounts.close().unwrap();
    assert_eq!(balances(&open(&pool, folder.path())).0, Some(100 - 7 * 5));
}

#[test]
fn attempts_that_panic_or_find_no_pool_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Threadpool::new(1);
    let accounts = open(&pool, folder.path());
    let outcome = accounts.call().attempt(|accounts, _| -> Result<(), u8> {
        *accounts.get_mut("Ada").unwrap() = 7;
        panic!("no transfers today")
    });
    assert!(matches!(outcome.wait(), Err(Error::Panicked { panic, .. }) if panic == "no transfers today"));
    assert_eq!(balances(&accounts).0, Some(100));
    accounts.clone().close().unwrap();
    assert!(matches!(accounts.call().attempt(|_, _| Err::<(), u8>(1)).wait(), Err(Error::Closed)));
    let told = Rc::new(RefCell::new(None));
    let tell = Rc::clone(&told);
    accounts.call().attempt(|_, _| Err::<(), u8>(1)).then(move |outcome| *tell.borrow_mut() = Some(outcome));
    accounts.sync().unwrap_err();
    assert!(matches!(told.borrow_mut().take(), Some(Err(Error::Closed))));
}
