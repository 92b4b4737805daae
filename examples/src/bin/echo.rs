//! Fourth step of the tutorial: a server with one fiber for each connection, written as if it had a thread for each.
//!
//! A call on a socket of `trust::net` that would block lets the worker's other fibers run. State shared by the
//! connections is entrusted, here a counter of lines.
//!
//! ```sh
//! cargo run -p gossamer-examples --bin echo                      # server and a hundred clients in one program
//! cargo run -p gossamer-examples --bin echo -- 127.0.0.1:7007    # serves until stopped: try `nc 127.0.0.1 7007`
//! ```

use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use trust::net::{TcpListener, TcpStream};
use trust::{Threadpool, Trust};

const CLIENTS: usize = 100;
const LINES: usize = 10;

fn main() -> io::Result<()> {
    let pool = Threadpool::new(2);
    let lines = pool.entrust(0u64);
    let address = std::env::args().nth(1);
    let listener = Arc::new(TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0"))?);
    let (accepting, counter) = (Arc::clone(&listener), lines.clone());
    let trustees = pool.trustees().to_vec();
    let server = pool.spawn(move || {
        // Connections go to the workers in turn.
        for (connection, trustee) in accepting.incoming().zip(trustees.iter().cycle()) {
            let (connection, counter) = (connection?, counter.clone());
            trust::spawn_on(trustee, move || {
                if let Err(error) = serve(&connection, &counter) {
                    eprintln!("a connection has ended: {error}");
                }
            });
        }
        io::Result::Ok(())
    });
    if address.is_none() {
        let address = listener.local_addr()?;
        let clients: Vec<_> = (0..CLIENTS).map(|client| pool.spawn(move || talk(address, client))).collect();
        for client in clients {
            client.join().expect("a client's fiber does not panic")?;
        }
        println!("{CLIENTS} connections had {} lines sent back", lines.apply(|lines| *lines));
        listener.close()?;
    }
    server.join().expect("the server's fiber does not panic")
}

/// Sends back each line, numbered over all connections.
fn serve(mut connection: &TcpStream, counter: &Trust<u64>) -> io::Result<()> {
    for line in BufReader::new(connection).lines() {
        let number = counter.apply(|lines| {
            *lines += 1;
            *lines
        });
        connection.write_all(format!("{number}: {}\n", line?).as_bytes())?;
    }
    Ok(())
}

/// A client: each line comes back, with a number greater than that before.
fn talk(address: SocketAddr, client: usize) -> io::Result<()> {
    let connection = TcpStream::connect(address)?;
    let mut answers = BufReader::new(&connection).lines();
    let mut last = 0;
    for line in 0..LINES {
        (&connection).write_all(format!("line {line} of client {client}\n").as_bytes())?;
        let answer = answers.next().ok_or(io::ErrorKind::UnexpectedEof)??;
        let (number, text) = answer.split_once(": ").ok_or(io::ErrorKind::InvalidData)?;
        let number: u64 = number.parse().map_err(|_| io::ErrorKind::InvalidData)?;
        assert!(number > last && text == format!("line {line} of client {client}"), "{answer}");
        last = number;
    }
    Ok(())
}
