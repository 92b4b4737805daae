//! Small process manager, with the answers of Slurm's and hydra.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use super::*;

fn limit(timeout: Duration) -> Limit {
    Limit { start: Instant::now(), timeout }
}

/// Answers one process until it goes; its values are in `store`.
fn serve(stream: UnixStream, store: &Mutex<HashMap<String, String>>, barrier: &Barrier, value_bytes_max: usize) {
    let mut write = stream.try_clone().unwrap();
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let pairs = line.split(' ').filter_map(|pair| pair.split_once('='));
        let said: Answer = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let answer = match said["cmd"].as_str() {
            "init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".to_owned(),
            "get_maxes" => format!("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max={value_bytes_max}"),
            "get_my_kvsname" => "cmd=my_kvsname kvsname=kvs_1_0".to_owned(),
            "put" => {
                store.lock().unwrap().insert(said["key"].clone(), said["value"].clone());
                "cmd=put_result rc=0 msg=success".to_owned()
            }
            "barrier_in" => {
                barrier.wait();
                "cmd=barrier_out".to_owned()
            }
            "get" => match store.lock().unwrap().get(&said["key"]) {
                Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                None => "cmd=get_result rc=-1 msg=key_not_found value=unknown".to_owned(),
            },
            "finalize" => "cmd=finalize_ack".to_owned(),
            _ => return,
        };
        if writeln!(write, "{answer}").is_err() {
            return;
        }
    }
}

fn pmi(socket: UnixStream, rank: u16) -> Result<Pmi, RendezvousError> {
    Pmi::over(OwnedFd::from(socket).into(), rank, &limit(limits::HANG))
}

#[test]
fn machine_0s_value_reaches_all() {
    let store = Arc::new(Mutex::new(HashMap::new()));
    let barrier = Arc::new(Barrier::new(3));
    let wait = limit(limits::HANG);
    thread::scope(|scope| {
        let mut got = Vec::new();
        for rank in 0..3u16 {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let (store, barrier) = (Arc::clone(&store), Arc::clone(&barrier));
            scope.spawn(move || serve(theirs, &store, &barrier, 1024));
            let wait = &wait;
            got.push(scope.spawn(move || {
                let mut pmi = pmi(ours, rank).unwrap();
                let found = pmi.exchange((rank == 0).then_some(&b"here"[..]), wait).unwrap();
                pmi.finalize();
                found
            }));
        }
        let got: Vec<_> = got.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(got, [None, Some(b"here".to_vec()), Some(b"here".to_vec())]);
    });
}

#[test]
fn a_program_that_follows_in_the_same_place_meets_anew() {
    let store = Arc::new(Mutex::new(HashMap::new()));
    for said in ["first", "second", "third"] {
        let barrier = Arc::new(Barrier::new(2));
        let wait = limit(Duration::from_secs(60));
        let mut all = [0, 1].map(|rank| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let (store, barrier) = (Arc::clone(&store), Arc::clone(&barrier));
            thread::spawn(move || serve(theirs, &store, &barrier, 1024));
            pmi(ours, rank).unwrap()
        });
        let [zero, one] = &mut all;
        thread::scope(|scope| {
            let got = scope.spawn(|| one.exchange(None, &wait).unwrap());
            zero.exchange(Some(said.as_bytes()), &wait).unwrap();
            assert_eq!(got.join().unwrap(), Some(said.as_bytes().to_vec()));
        });
    }
}

#[test]
fn a_barrier_that_nobody_else_comes_to_ends() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (store, barrier) = (Mutex::default(), Arc::new(Barrier::new(2)));
    let other = Arc::clone(&barrier);
    let server = thread::spawn(move || serve(theirs, &store, &barrier, 1024));
    let mut pmi = pmi(ours, 1).unwrap();
    let error = pmi.exchange(None, &limit(Duration::from_millis(50))).unwrap_err().to_string();
    assert!(error.contains("barrier within 50ms") && error.contains("GOSSAMER_START_TIMEOUT"), "{error}");
    drop(pmi);
    other.wait();
    server.join().unwrap();
}

#[test]
fn what_is_not_pmi_is_refused_and_a_manager_that_has_gone_is_told() {
    for (said, words) in [
        (&b"hello\n"[..], "a line that is not PMI-1"),
        (b"cmd=response_to_init rc=-1\n", "rc=Some(\"-1\")"),
        (b"cmd=maxes\n", "not \"response_to_init\""),
        (b"", "PMI_FD"),
    ] {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(said).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let error = pmi(ours, 0).err().expect("no process manager").to_string();
        assert!(error.contains(words), "{error}");
    }
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || serve(theirs, &Mutex::default(), &Barrier::new(1), 8));
    let mut short = pmi(ours, 0).unwrap();
    let error = short.exchange(Some(b"too long"), &limit(limits::HANG)).unwrap_err().to_string();
    assert!(error.contains("16 bytes is too long"), "{error}");
    drop(short);
    server.join().unwrap();
}
