//! Machine 0's port: a connection shows the key and joins, then it goes to the hub. Strangers come and go: the number
//! of unauthenticated connections is limited, and the oldest is evicted.

use std::collections::HashMap;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use comm::descriptors::cure;
use comm::secure::{Key, SecureStream, Unauthenticated};

use super::event::{HubEvent, Newcomer};
use super::wire::{MESSAGE_BYTES_MAX, PURPOSE, Up, decode};
use super::{RendezvousError, spawn};
use crate::bootstrap::HostAddress;
use crate::complain::complain;

/// Time in which a connection must show the key and join.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause where no connection, or no thread for one, can be had.
const PAUSE: Duration = Duration::from_millis(50);
/// Most connections without the key.
const UNAUTHENTICATED_MAX: usize = 256;

#[derive(Default)]
struct Waiting {
    all: Unauthenticated,
    streams: HashMap<u64, TcpStream>,
}

/// Accepts connections for the life of the process: a machine that comes late, or again, gets the reason why it cannot
/// take part.
pub(super) fn listen(listener: TcpListener, key: Key, events: Sender<HubEvent>) -> Result<(), RendezvousError> {
    let waiting: Arc<Mutex<Waiting>> = Arc::default();
    let mut is_told = false;
    let accept = move || {
        for number in 0.. {
            let come = listener.accept().and_then(|(tcp, from)| Ok((tcp.try_clone()?, tcp, from)));
            let (clone, tcp, from) = match come {
                Ok(come) => come,
                Err(error) => {
                    if !std::mem::replace(&mut is_told, true) {
                        complain(format_args!("machine 0 cannot take a connection: {error}{}", cure(&error)));
                    }
                    std::thread::sleep(PAUSE);
                    continue;
                }
            };
            let mut all = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            all.streams.insert(number, clone);
            all.all.insert(number, from.ip());
            if let Some(evicted) = all.all.evict_beyond(UNAUTHENTICATED_MAX)
                && let Some(stream) = all.streams.remove(&evicted.number)
            {
                let _ = stream.shutdown(Shutdown::Both); // it may have gone
            }
            drop(all);
            let (key, events, shared) = (key.clone(), events.clone(), Arc::clone(&waiting));
            let receive_greeting = move || {
                let greeted = greet(tcp, &key);
                forget(&shared, number);
                let _ = events.send(match greeted {
                    Ok(newcomer) => HubEvent::Came(Box::new(newcomer)),
                    Err(error) => HubEvent::Stranger(error),
                }); // the hub goes with the process
            };
            let thread = std::thread::Builder::new().name("gossamer-hello".to_owned()).stack_size(128 * 1024);
            if thread.spawn(receive_greeting).is_err() {
                forget(&waiting, number); // the other side sees the end, and comes again
                std::thread::sleep(PAUSE);
            }
        }
    };
    spawn("gossamer-port", accept)
}

fn forget(waiting: &Mutex<Waiting>, number: u64) {
    let mut all = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    all.all.remove(number);
    all.streams.remove(&number);
}

fn greet(tcp: TcpStream, key: &Key) -> Result<Newcomer, comm::Error> {
    let reached_at = tcp.local_addr().ok().map(HostAddress::from);
    let from = tcp.peer_addr().map_or_else(|_| "somebody".to_owned(), |address| address.to_string());
    let mut stream = SecureStream::accept(tcp, key, PURPOSE, HELLO_TIMEOUT)?;
    stream.set_timeout(Some(HELLO_TIMEOUT))?;
    let first = stream.receive(MESSAGE_BYTES_MAX)?;
    match first.as_deref().and_then(decode) {
        Some(Up::Join(join)) => Ok(Newcomer { join: *join, stream, reached_at }),
        _ => Err(comm::Error::Closed { peer: from, doing: "before it had said who it is" }),
    }
}
