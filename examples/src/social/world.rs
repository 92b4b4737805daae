//! [`World`]: users and requests, generated, and the contents of a post.

use graph::random::{Random, mix};

/// Requests of a round. Those that read find the posts of the rounds before, so that answers do not depend on the order
/// of requests.
pub const ROUND: u64 = 512;
/// Posts of a timeline that are read.
pub const SHOWN: usize = 10;

/// See the file's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct World {
    /// Number of users.
    pub users: u32,
    /// Average number of followers of a user.
    pub followers: u32,
    /// Posts in a hundred requests; a third of the others read the posts of one user, the rest those of
    /// the users that one follows.
    pub posts: u32,
    /// Seed of all that.
    pub seed: u64,
}

/// The request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// This user posts something.
    Compose(u32),
    /// The posts of this user
    UserTimeline(u32),
    /// The posts of those whom this user follows, and those that mention the user
    HomeTimeline(u32),
}

impl World {
    fn random(self, about: u64, number: u64) -> Random {
        Random::new(self.seed ^ mix(about), number)
    }

    /// A request.
    pub fn request(self, number: u64) -> Request {
        let mut random = self.random(1, number);
        let user = (random.next_u64() % u64::from(self.users)) as u32;
        let kind = random.next_u64() % 300;
        match kind {
            _ if kind < u64::from(self.posts) * 3 => Request::Compose(user),
            _ if kind.is_multiple_of(3) => Request::UserTimeline(user),
            _ => Request::HomeTimeline(user),
        }
    }

    /// Text of the post of a request: words, some of them names or addresses.
    pub fn text(self, number: u64) -> String {
        let mut random = self.random(2, number);
        let words = 4 + random.next_u64() % 30;
        let word = |_| match random.next_u64() % 16 {
            0 => format!("@{}", name((random.next_u64() % u64::from(self.users)) as u32)),
            1 => format!("https://example.org/{:x}", random.next_u64()),
            _ => format!("{:x}", random.next_u64() % 0xffff_ffff),
        };
        (0..words).map(word).collect::<Vec<_>>().join(" ")
    }

    /// Pictures of a post, by number.
    pub fn media(self, number: u64) -> Vec<u64> {
        let mut random = self.random(3, number);
        (0..random.next_u64() % 4).map(|_| random.next_u64()).collect()
    }

    /// The followers of a user, in order.
    pub fn followers(self, user: u32) -> Vec<u32> {
        let mut random = self.random(4, u64::from(user));
        let count = random.next_u64() % (2 * u64::from(self.followers) + 1);
        let mut all: Vec<u32> = (0..count).map(|_| (random.next_u64() % u64::from(self.users)) as u32).collect();
        all.retain(|follower| *follower != user);
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// A user's.
pub fn name(user: u32) -> String {
    format!("user{user}")
}

/// Names and addresses in a text.
pub fn parse(text: &str) -> (Vec<&str>, Vec<&str>) {
    let names = text.split(' ').filter_map(|word| word.strip_prefix('@')).collect();
    (names, text.split(' ').filter(|word| is_address(word)).collect())
}

fn is_address(word: &str) -> bool {
    word.starts_with("https://")
}

/// The short form of an address.
pub fn shorten(address: &str) -> u64 {
    address.bytes().fold(0, |sum, byte| mix(sum ^ u64::from(byte)))
}

/// The text with these short forms in the place of its addresses.
pub fn shortened(text: &str, short: &[u64]) -> String {
    let mut short = short.iter();
    let word = |word: &str| match is_address(word).then(|| short.next()).flatten() {
        Some(short) => format!("s/{short:x}"),
        None => word.to_owned(),
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// The users with a post on their home timeline: followers of its author, and users that it mentions.
pub fn readers(followers: &[u32], mentioned: &[u32]) -> Vec<u32> {
    let mut all = [followers, mentioned].concat();
    all.sort_unstable();
    all.dedup();
    all
}

/// A post, as a reader has it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Its author.
    pub author: u32,
    /// The number of the request.
    pub time: u64,
    /// Text with short forms of addresses.
    pub text: &'a str,
    /// Users that it names.
    pub mentions: &'a [u32],
    /// Short forms of its addresses.
    pub addresses: &'a [u64],
    /// Its pictures.
    pub media: &'a [u64],
}

impl View<'_> {
    /// A number for all of it.
    pub fn digest(&self) -> u64 {
        let numbers = self.mentions.iter().map(|user| u64::from(*user)).chain(self.addresses.iter().copied());
        let start = mix(u64::from(self.author) ^ mix(self.time));
        let sum = numbers.chain(self.media.iter().copied()).fold(start, |sum, number| mix(sum ^ number));
        self.text.as_bytes().chunks(8).fold(sum, |sum, bytes| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            mix(sum ^ u64::from_le_bytes(word))
        })
    }
}

/// Sum of all replies, in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Posts that were made.
    pub posted: u64,
    /// Posts that were read.
    pub read: u64,
    /// Checksum over all posts that were read, by reader.
    pub checksum: u64,
}

impl Answer {
    /// Those of another one, too.
    pub fn and(self, other: Answer) -> Answer {
        Answer {
            posted: self.posted + other.posted,
            read: self.read + other.read,
            checksum: self.checksum.wrapping_add(other.checksum),
        }
    }

    /// A reply to this request has, as its next one, a post with this digest.
    pub fn note(&mut self, request: u64, digest: u64) {
        self.read += 1;
        self.checksum = self.checksum.wrapping_add(mix(digest ^ mix(request)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_found_in_a_text() {
        let text = "to @user7 see https://a.b/c or @nobody https://d";
        let (names, addresses) = parse(text);
        assert_eq!((names, addresses.as_slice()), (vec!["user7", "nobody"], &["https://a.b/c", "https://d"][..]));
        assert_eq!(shortened(text, &[10, 255]), "to @user7 see s/a or @nobody s/ff");
        assert_ne!(shorten(addresses[0]), shorten(addresses[1]));
    }

    #[test]
    fn requests_are_mixed_as_wished() {
        let world = World { users: 50, followers: 5, posts: 10, seed: 1 };
        let all: Vec<Request> = (0..3000).map(|number| world.request(number)).collect();
        let posts = all.iter().filter(|request| matches!(request, Request::Compose(_))).count();
        let user = all.iter().filter(|request| matches!(request, Request::UserTimeline(_))).count();
        assert!((200..400).contains(&posts) && (700..1100).contains(&user), "{posts} {user}");
        assert!((0..50).all(|user| !world.followers(user).contains(&user)));
        assert!((0..50).any(|user| world.followers(user).len() > 5));
    }
}
