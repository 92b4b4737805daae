//! The twelve services: the requests of each, its work, and the services it calls. As the example's services.rs; where
//! that passes owners, messages have the texts and lists.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use prost::Message;
use tonic::Status;

use crate::rpc::{Peers, read};
use crate::state::{Addresses, Graph, Names, Posts, Timelines, Users};
use crate::world::{Answer, Request, View, World, parse, readers, shorten, shortened};

/// Services by number and path; the number says at which process, as at which place in the example. front is called by
/// nobody.
const COMPOSE_POST: (usize, &str) = (0, "/social.Services/compose-post");
const TEXT: (usize, &str) = (1, "/social.Services/text");
const USER_MENTION: (usize, &str) = (2, "/social.Services/user-mention");
const URL_SHORTEN: (usize, &str) = (3, "/social.Services/url-shorten");
const MEDIA: (usize, &str) = (4, "/social.Services/media");
const POST_STORAGE: (usize, &str) = (5, "/social.Services/post-storage");
const STORE: (usize, &str) = (5, "/social.Services/post-storage-store");
const USER_TIMELINE: (usize, &str) = (6, "/social.Services/user-timeline");
const USER_TIMELINE_ADD: (usize, &str) = (6, "/social.Services/user-timeline-add");
const HOME_TIMELINE: (usize, &str) = (7, "/social.Services/home-timeline");
const HOME_TIMELINE_ADD: (usize, &str) = (7, "/social.Services/home-timeline-add");
const UNIQUE_ID: (usize, &str) = (8, "/social.Services/unique-id");
const USER: (usize, &str) = (9, "/social.Services/user");
const SOCIAL_GRAPH: (usize, &str) = (10, "/social.Services/social-graph");

#[derive(Message)]
struct Compose {
    #[prost(uint32, tag = "1")]
    author: u32,
    #[prost(uint64, tag = "2")]
    number: u64,
    #[prost(uint64, tag = "3")]
    round: u64,
    #[prost(string, tag = "4")]
    text: String,
}

#[derive(Message)]
struct Words {
    #[prost(string, repeated, tag = "1")]
    words: Vec<String>,
}

#[derive(Message)]
struct Numbers {
    #[prost(uint64, repeated, tag = "1")]
    numbers: Vec<u64>,
}

#[derive(Message)]
struct UserNumbers {
    #[prost(uint32, repeated, tag = "1")]
    users: Vec<u32>,
}

#[derive(Message)]
struct Number {
    #[prost(uint64, tag = "1")]
    number: u64,
}

#[derive(Message)]
struct Text {
    #[prost(string, tag = "1")]
    text: String,
    #[prost(uint32, repeated, tag = "2")]
    mentions: Vec<u32>,
    #[prost(fixed64, repeated, tag = "3")]
    addresses: Vec<u64>,
}

#[derive(Clone, Message)]
struct Post {
    #[prost(uint32, tag = "1")]
    author: u32,
    #[prost(uint64, tag = "2")]
    time: u64,
    #[prost(string, tag = "3")]
    text: String,
    #[prost(uint32, repeated, tag = "4")]
    mentions: Vec<u32>,
    #[prost(fixed64, repeated, tag = "5")]
    addresses: Vec<u64>,
    #[prost(fixed64, repeated, tag = "6")]
    media: Vec<u64>,
}

#[derive(Message)]
struct Store {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, optional, tag = "2")]
    post: Option<Post>,
}

#[derive(Message)]
struct Stored {
    #[prost(message, repeated, tag = "1")]
    posts: Vec<Post>,
}

#[derive(Message)]
struct Asked {
    #[prost(uint32, tag = "1")]
    user: u32,
    #[prost(uint64, tag = "2")]
    round: u64,
}

#[derive(Message)]
struct Add {
    #[prost(uint32, repeated, tag = "1")]
    users: Vec<u32>,
    #[prost(uint64, tag = "2")]
    time: u64,
    #[prost(uint64, tag = "3")]
    id: u64,
    #[prost(uint64, tag = "4")]
    round: u64,
}

/// State of the services, each in its own process; the state in other processes is not used.
pub struct Services {
    world: World,
    peers: OnceLock<Peers>,
    unique_id: Mutex<u64>,
    user_mention: Names,
    url_shorten: Mutex<Addresses>,
    user: Mutex<Users>,
    social_graph: Graph<Arc<[u32]>>,
    post_storage: Mutex<Posts<Arc<Post>>>,
    user_timeline: Mutex<Timelines>,
    home_timeline: Mutex<Timelines>,
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn told(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

impl Services {
    pub fn new(world: World) -> Services {
        Services {
            world,
            peers: OnceLock::new(),
            unique_id: Mutex::default(),
            user_mention: Names::new(world),
            url_shorten: Mutex::default(),
            user: Mutex::new(Users::new(world)),
            social_graph: Graph::new(world, Arc::from),
            post_storage: Mutex::default(),
            user_timeline: Mutex::new(Timelines::new(world)),
            home_timeline: Mutex::new(Timelines::new(world)),
        }
    }

    /// Before anybody calls.
    pub fn connect(&self, peers: Peers) -> crate::Result<()> {
        self.peers.set(peers).map_err(|_| "the services are connected already".into())
    }

    /// Answers a call.
    pub async fn answer(&self, path: &str, bytes: Bytes) -> Result<Bytes, Status> {
        let peers = self.peers.get().ok_or_else(|| Status::unavailable("not connected yet"))?;
        Ok(match path {
            path if path == COMPOSE_POST.1 => {
                let is_posted = compose_post(peers, read(bytes)?).await?;
                told(&Number { number: u64::from(is_posted) })
            }
            path if path == TEXT.1 => told(&text(peers, read(bytes)?).await?),
            path if path == USER_MENTION.1 => {
                let names: Words = read(bytes)?;
                told(&UserNumbers {
                    users: names.words.iter().filter_map(|name| self.user_mention.find(name)).collect(),
                })
            }
            path if path == URL_SHORTEN.1 => {
                let addresses: Words = read(bytes)?;
                let one = |address: &String| {
                    let short = shorten(address);
                    lock(&self.url_shorten).store(short, address);
                    short
                };
                told(&Numbers { numbers: addresses.words.iter().map(one).collect() })
            }
            path if path == MEDIA.1 => told(&Numbers { numbers: self.world.media(read::<Number>(bytes)?.number) }),
            path if path == USER.1 => {
                let user = read::<Number>(bytes)?.number as u32;
                told(&Number { number: u64::from(lock(&self.user).posted(user)) })
            }
            path if path == UNIQUE_ID.1 => {
                let mut last = lock(&self.unique_id);
                *last += 1;
                told(&Number { number: *last })
            }
            path if path == SOCIAL_GRAPH.1 => {
                let followers = self.social_graph.followers(read::<Number>(bytes)?.number as u32);
                told(&UserNumbers { users: followers.map_or_else(Vec::new, |all| all.to_vec()) })
            }
            _ => return self.of_posts(path, bytes),
        })
    }

    /// Those of posts and timelines, which call nobody.
    fn of_posts(&self, path: &str, bytes: Bytes) -> Result<Bytes, Status> {
        let last = |timelines: &Mutex<Timelines>, Asked { user, round }| Numbers {
            numbers: lock(timelines).last(user, round),
        };
        let add = |timelines: &Mutex<Timelines>, Add { users, time, id, round }| {
            let mut all = lock(timelines);
            users.into_iter().for_each(|user| all.add(user, time, id, round));
            Number::default()
        };
        Ok(match path {
            path if path == USER_TIMELINE.1 => told(&last(&self.user_timeline, read(bytes)?)),
            path if path == USER_TIMELINE_ADD.1 => told(&add(&self.user_timeline, read(bytes)?)),
            path if path == HOME_TIMELINE.1 => told(&last(&self.home_timeline, read(bytes)?)),
            path if path == HOME_TIMELINE_ADD.1 => told(&add(&self.home_timeline, read(bytes)?)),
            path if path == STORE.1 => {
                let Store { id, post } = read(bytes)?;
                let post = post.ok_or_else(|| Status::invalid_argument("there is no post"))?;
                lock(&self.post_storage).store(id, Arc::new(post));
                told(&Number::default())
            }
            path if path == POST_STORAGE.1 => {
                let (ids, all) = (read::<Numbers>(bytes)?, lock(&self.post_storage));
                let posts = ids.numbers.into_iter().filter_map(|id| all.find(id)).map(|post| (*post).clone()).collect();
                told(&Stored { posts })
            }
            _ => return Err(Status::unimplemented(path.to_owned())),
        })
    }
}

async fn compose_post(peers: &Peers, asked: Compose) -> Result<bool, Status> {
    let Compose { author, number, round, text } = asked;
    let one = Number { number: u64::from(author) };
    if peers.call::<Number>(USER, &one).await?.number == 0 {
        return Ok(false);
    }
    let (asked_media, asked_text) = (Number { number }, Words { words: vec![text] });
    // Both at once.
    let (media, found) =
        tokio::try_join!(peers.call::<Numbers>(MEDIA, &asked_media), peers.call::<Text>(TEXT, &asked_text))?;
    let id = peers.call::<Number>(UNIQUE_ID, &Number::default()).await?.number;
    let Text { text, mentions, addresses } = found;
    let post = Post { author, time: number, text, mentions: mentions.clone(), addresses, media: media.numbers };
    peers.call::<Number>(STORE, &Store { id, post: Some(post) }).await?;
    let add = |users| Add { users, time: number, id, round };
    peers.call::<Number>(USER_TIMELINE_ADD, &add(vec![author])).await?;
    let followers = peers.call::<UserNumbers>(SOCIAL_GRAPH, &one).await?.users;
    peers.call::<Number>(HOME_TIMELINE_ADD, &add(readers(&followers, &mentions))).await?;
    Ok(true)
}

async fn text(peers: &Peers, asked: Words) -> Result<Text, Status> {
    let text = asked.words.into_iter().next().unwrap_or_default();
    let list = |words: Vec<&str>| Words { words: words.into_iter().map(str::to_owned).collect() };
    let (names, addresses) = parse(&text);
    let (names, addresses) = (list(names), list(addresses));
    let (mentions, addresses) = tokio::try_join!(
        peers.call::<UserNumbers>(USER_MENTION, &names),
        peers.call::<Numbers>(URL_SHORTEN, &addresses)
    )?;
    let text = shortened(&text, &addresses.numbers);
    Ok(Text { text, mentions: mentions.users, addresses: addresses.numbers })
}

/// front: does one request of a round that began with `round`.
pub async fn front(world: World, peers: &Peers, number: u64, round: u64) -> Result<Answer, Status> {
    let mut answer = Answer::default();
    let ids: Numbers = match world.request(number) {
        Request::Compose(author) => {
            let compose = Compose { author, number, round, text: world.text(number) };
            answer.posted = peers.call::<Number>(COMPOSE_POST, &compose).await?.number;
            return Ok(answer);
        }
        Request::UserTimeline(user) => peers.call(USER_TIMELINE, &Asked { user, round }).await?,
        Request::HomeTimeline(user) => peers.call(HOME_TIMELINE, &Asked { user, round }).await?,
    };
    for post in peers.call::<Stored>(POST_STORAGE, &ids).await?.posts {
        let Post { author, time, text, mentions, addresses, media } = &post;
        let view = View { author: *author, time: *time, text, mentions, addresses, media };
        answer.note(number, view.digest());
    }
    Ok(answer)
}
