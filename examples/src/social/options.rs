//! The command line of `social`: arguments and help. Nothing is done here.

use clap::Parser;

use super::world::World;
use crate::heaps::options::{Common, STATUS_HELP};

/// Serves posts and timelines of a social network by twelve services, which pass owners of objects of the heap, at the
/// workers of several processes.
#[derive(Clone, Debug, Parser)]
#[command(name = "social", version, after_long_help = format!("{HELP}\n\n{STATUS_HELP}"))]
pub struct Options {
    /// Number of users
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub users: u32,

    /// Average number of followers of a user
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1 << 16))]
    pub followers: u32,

    /// Number of requests
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(0..=1 << 40))]
    pub requests: u64,

    /// Posts in a hundred requests; a third of the others read a user's timeline, the rest a home timeline
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub posts: u32,

    /// Connections of users at each worker
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub connections: u16,

    /// Seed of users and requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Options of all programs on the heap.
    #[command(flatten)]
    pub common: Common,
}

const HELP: &str = "\
Examples:
  social --verify
      in one process, beside its twin
  social --local 2 --fabric tcp --posts 50
      over two processes joined by TCP; half of the requests are posts
  gossamer-launch run --rack rack.yaml social --users 100000 --requests 10000000
      on the hosts of a rack

What --verify checks:
  That as many posts were made and read as in the twin, and each reply has the same posts, with the same text, \
  mentions, addresses and pictures. Who reads finds what was
  posted in the rounds of 512 requests before, so that this does not depend on who comes first.";

impl Options {
    /// Users and requests.
    pub fn world(&self) -> World {
        World { users: self.users, followers: self.followers, posts: self.posts, seed: self.seed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Options::command().debug_assert();
        for line in ["--users 0", "--posts 101", "--connections 0", "--requests x"] {
            let line = format!("social {line}");
            assert_eq!(Options::try_parse_from(line.split(' ')).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
