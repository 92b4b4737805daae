//! Output of a program that its hosts have kept, and its further output: `logs --output`.

use comm::secure::Keys;

use super::ask::of_all;
use crate::config::{Host, RackConfig};
use crate::wire::link;
use crate::wire::{ProgramId, Receiver, Reply, Request, Sender, Written};

/// Answer of a host about a program.
pub enum Answer {
    /// The program is unknown there.
    Unknown,
    /// All of its kept output was sent; exit statuses of its machines there, as `wait` gives them.
    All(Vec<(u16, i32)>),
    /// The receiver of the output wants no more.
    Left,
}

/// Asks all hosts at once. `take` gets the output of each host (by its place in `hosts`) as it comes, and whether
/// pieces before it were dropped; when it returns false, that host is left. With `follow` it continues until the
/// program has ended.
pub fn read(
    rack: &RackConfig,
    hosts: &[Host],
    keys: &Keys,
    program: ProgramId,
    follow: bool,
    take: &(dyn Fn(usize, Vec<Written>, bool) -> bool + Sync),
) -> Vec<Result<Answer, String>> {
    let one = |number: usize, host: &Host| -> Result<Answer, String> {
        let mut link = link::connect(rack, host, keys).map_err(|error| error.to_string())?;
        link.set_timeout(rack.timeouts.silence()).map_err(|error| error.to_string())?;
        let request = Request::Output { program, follow };
        link.sender.send_message(&request).map_err(|error| error.to_string())?;
        loop {
            match link.receiver.receive_message().map_err(|error| error.to_string())? {
                Reply::Output { pieces, is_cut } => {
                    if !take(number, pieces, is_cut) {
                        return Ok(Answer::Left);
                    }
                }
                Reply::OutputEnd(exits) => return Ok(Answer::All(exits)),
                Reply::Unknown => return Ok(Answer::Unknown),
                Reply::Beat => {}
                Reply::Refused(reason) => return Err(reason),
                _ => return Err("it answers what was not asked".into()),
            }
        }
    };
    of_all(hosts, one).into_iter().map(|told| told.unwrap_or_else(|| Err("this side has failed".into()))).collect()
}
