//! The twelve services as calls in one process of plain Rust.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::state::{Addresses, Graph, Names, Posts, Timelines, Users};
use super::world::{Answer, ROUND, Request, View, World, parse, readers, shorten, shortened};
use crate::heaps::twin;

struct Post {
    author: u32,
    time: u64,
    text: String,
    mentions: Vec<u32>,
    addresses: Vec<u64>,
    media: Vec<u64>,
}

struct Services {
    world: World,
    unique_id: AtomicU64,
    user_mention: Names,
    url_shorten: Mutex<Addresses>,
    user: Mutex<Users>,
    social_graph: Graph<Arc<[u32]>>,
    post_storage: Mutex<Posts<Arc<Post>>>,
    user_timeline: Mutex<Timelines>,
    home_timeline: Mutex<Timelines>,
}

/// A panic under a lock ends the twin.
fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Services {
    fn new(world: World) -> Services {
        Services {
            world,
            unique_id: AtomicU64::new(0),
            user_mention: Names::new(world),
            url_shorten: Mutex::default(),
            user: Mutex::new(Users::new(world)),
            social_graph: Graph::new(world, Arc::from),
            post_storage: Mutex::default(),
            user_timeline: Mutex::new(Timelines::new(world)),
            home_timeline: Mutex::new(Timelines::new(world)),
        }
    }

    fn front(&self, number: u64, round: u64) -> Answer {
        let mut answer = Answer::default();
        let ids = match self.world.request(number) {
            Request::Compose(author) => {
                answer.posted = u64::from(self.compose_post(author, number, round, &self.world.text(number)));
                return answer;
            }
            Request::UserTimeline(user) => lock(&self.user_timeline).last(user, round),
            Request::HomeTimeline(user) => lock(&self.home_timeline).last(user, round),
        };
        let posts: Vec<Arc<Post>> = ids.into_iter().filter_map(|id| lock(&self.post_storage).find(id)).collect();
        for post in posts {
            let Post { author, time, text, mentions, addresses, media } = &*post;
            answer.note(number, View { author: *author, time: *time, text, mentions, addresses, media }.digest());
        }
        answer
    }

    fn compose_post(&self, author: u32, time: u64, round: u64, text: &str) -> bool {
        if !lock(&self.user).posted(author) {
            return false;
        }
        let (names, found) = parse(text);
        let mentions: Vec<u32> = names.into_iter().filter_map(|name| self.user_mention.find(name)).collect();
        let short = |address: &str| {
            let short = shorten(address);
            lock(&self.url_shorten).store(short, address);
            short
        };
        let addresses: Vec<u64> = found.into_iter().map(short).collect();
        let (text, media) = (shortened(text, &addresses), self.world.media(time));
        let id = self.unique_id.fetch_add(1, Ordering::Relaxed) + 1; // a number that nobody else has, no more
        let followers = self.social_graph.followers(author).unwrap_or_default();
        let readers = readers(&followers, &mentions);
        lock(&self.post_storage).store(id, Arc::new(Post { author, time, text, mentions, addresses, media }));
        lock(&self.user_timeline).add(author, time, id, round);
        readers.into_iter().for_each(|user| lock(&self.home_timeline).add(user, time, id, round));
        true
    }
}

/// All requests on so many threads, and how long they took.
pub fn run(world: World, requests: u64, threads: usize) -> (Answer, Duration) {
    let services = Services::new(world);
    let (mut answer, mut time) = (Answer::default(), Duration::ZERO);
    for round in (0..requests).step_by(ROUND as usize) {
        let count = ROUND.min(requests - round) as usize;
        let (answers, of_round) = twin::each(threads, count, |i| services.front(round + i as u64, round));
        answer = answers.into_iter().fold(answer, Answer::and);
        time += of_round;
    }
    (answer, time)
}
