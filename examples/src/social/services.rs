//! The twelve services over the rack.
//!
//! A service of the caller's machine is a function; that of another one is called by a fiber at its place. Either has
//! the owners of the request, and may wait: for its reads, and for other services. The state of services is in trusts
//! at their places, one request for each use of it; closures on these wait for nothing, so they take and give owners
//! and read none.

use gossamer::{JoinHandle, NoRef, Place, Trust};
use gossamer_heap::{Global, Shared, slice};

use super::state::{Addresses, Graph, Names, Posts, Timelines, Users};
use super::world::{Answer, Request, SHOWN, View, World, parse, readers, shorten, shortened};

/// A post. All of it is in the heap, in pieces that different services have made.
pub struct Post {
    author: u32,
    time: u64,
    text: Global<str>,
    mentions: Global<[u32]>,
    addresses: Global<[u64]>,
    media: Global<[u64]>,
}

/// Result of the text service.
struct Text {
    text: Global<str>,
    mentions: Global<[u32]>,
    addresses: Global<[u64]>,
}

/// The services, for closures that travel.
#[derive(Clone)]
pub struct Services {
    world: World,
    unique_id: Trust<u64>,
    user_mention: Trust<Names>,
    url_shorten: Trust<Addresses>,
    user: Trust<Users>,
    social_graph: Trust<Graph<Shared<[u32]>>>,
    post_storage: Trust<Posts<Shared<Post>>>,
    user_timeline: Trust<Timelines>,
    home_timeline: Trust<Timelines>,
    places: Places,
}

/// Places of the services.
#[derive(Clone, Copy)]
struct Places {
    compose_post: Place,
    text: Place,
    user_mention: Place,
    url_shorten: Place,
    media: Place,
    post_storage: Place,
    user_timeline: Place,
    home_timeline: Place,
}

/// A call of a service that is under way, or done.
enum Call<R: 'static> {
    Done(R),
    There(JoinHandle<R>),
}

impl<R> Call<R> {
    /// Its result.
    fn join(self) -> R {
        match self {
            Call::Done(result) => result,
            Call::There(fiber) => fiber.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        }
    }
}

/// Begins a call of a service at this place: done at once if that is of this machine, else a fiber there.
fn begin<R: NoRef + Send + 'static>(place: Place, f: impl FnOnce() -> R + NoRef + Send + 'static) -> Call<R> {
    match place.machine == gossamer::here().machine {
        true => Call::Done(f()),
        false => Call::There(gossamer::spawn_on(place, f)),
    }
}

/// The result of a service at this place.
fn call<R: NoRef + Send + 'static>(place: Place, f: impl FnOnce() -> R + NoRef + Send + 'static) -> R {
    begin(place, f).join()
}

impl Services {
    /// Starts them, one place after the other.
    pub fn new(world: World) -> Services {
        let all: Vec<Place> = gossamer::rack().places().collect();
        let place = |service: usize| all[service % all.len()];
        let list = |followers: Vec<u32>| Shared::from(Global::from(followers));
        let places = Places {
            compose_post: place(0),
            text: place(1),
            user_mention: place(2),
            url_shorten: place(3),
            media: place(4),
            post_storage: place(5),
            user_timeline: place(6),
            home_timeline: place(7),
        };
        Services {
            world,
            unique_id: gossamer::entrust_on(place(8), 0),
            user_mention: gossamer::entrust_with(places.user_mention, move || Names::new(world)),
            url_shorten: gossamer::entrust_with(places.url_shorten, Addresses::default),
            user: gossamer::entrust_with(place(9), move || Users::new(world)),
            social_graph: gossamer::entrust_with(place(10), move || Graph::new(world, list)),
            post_storage: gossamer::entrust_with(places.post_storage, Posts::default),
            user_timeline: gossamer::entrust_with(places.user_timeline, move || Timelines::new(world)),
            home_timeline: gossamer::entrust_with(places.home_timeline, move || Timelines::new(world)),
            places,
        }
    }

    /// front: does one request of a round that began with `round`. The fiber that calls it is that of a user's
    /// connection.
    pub fn front(&self, number: u64, round: u64) -> Answer {
        let mut answer = Answer::default();
        let ids = match self.world.request(number) {
            Request::Compose(author) => {
                let (services, text) = (self.clone(), Global::from(self.world.text(number).as_str()));
                let is_posted =
                    call(self.places.compose_post, move || services.compose_post(author, number, round, text));
                answer.posted = u64::from(is_posted);
                return answer;
            }
            Request::UserTimeline(user) => self.user_timeline.apply(move |all| Global::from(all.last(user, round))),
            Request::HomeTimeline(user) => self.home_timeline.apply(move |all| Global::from(all.last(user, round))),
        };
        let services = self.clone();
        let posts = call(self.places.post_storage, move || services.stored(ids));
        for post in posts.read().iter() {
            let post = post.read();
            let (text, mentions) = (post.text.read(), post.mentions.read());
            let (addresses, media) = (post.addresses.read(), post.media.read());
            let (author, time) = (post.author, post.time);
            let view = View { author, time, text: &text, mentions: &mentions, addresses: &addresses, media: &media };
            answer.note(number, view.digest());
        }
        answer
    }

    fn compose_post(&self, author: u32, number: u64, round: u64, text: Global<str>) -> bool {
        if !self.user.apply(move |users| users.posted(author)) {
            return false;
        }
        let (services, world) = (self.clone(), self.world);
        // Both at once.
        let media = begin(self.places.media, move || Global::from(world.media(number)));
        let found = call(self.places.text, move || services.text(text));
        let media = media.join();
        let id = self.unique_id.apply(|last| {
            *last += 1;
            *last
        });
        let Text { text, mentions, addresses } = found;
        let mentioned = Shared::from(Global::from(mentions.read().to_vec()));
        let post = Shared::new(Post { author, time: number, text, mentions, addresses, media });
        self.post_storage.apply(move |posts| posts.store(id, post));
        self.user_timeline.apply(move |all| all.add(author, number, id, round));
        if let Some(followers) = self.social_graph.apply(move |graph| graph.followers(author)) {
            let home_timeline = self.home_timeline.clone();
            call(self.places.home_timeline, move || {
                let add = move |all: &mut Timelines, users: Vec<u32>| {
                    users.into_iter().for_each(|user| all.add(user, number, id, round));
                };
                home_timeline.apply_with(add, readers(&followers.read(), &mentioned.read()));
            });
        }
        true
    }

    fn text(&self, text: Global<str>) -> Text {
        let read = text.read();
        let (names, addresses) = parse(&read);
        let list = |words: &[&str]| slice(words.len(), |i| Global::<str>::from(words[i]));
        let (names, addresses) = (list(&names), list(&addresses));
        let (known, kept) = (self.user_mention.clone(), self.url_shorten.clone());
        let mentions = begin(self.places.user_mention, move || user_mention(&known, &names));
        let addresses = call(self.places.url_shorten, move || url_shorten(&kept, &addresses));
        let mentions = mentions.join();
        let text = Global::from(shortened(&read, &addresses.read()).as_str());
        Text { text, mentions, addresses }
    }

    /// post-storage: the posts with these numbers.
    fn stored(&self, ids: Global<[u64]>) -> Global<[Shared<Post>]> {
        let (mut shown, ids) = ([0; SHOWN], ids.read());
        let count = ids.len().min(SHOWN);
        shown[..count].copy_from_slice(&ids[..count]);
        let find = move |posts: &mut Posts<Shared<Post>>| {
            Global::from(shown[..count].iter().filter_map(|id| posts.find(*id)).collect::<Vec<_>>())
        };
        self.post_storage.apply(find)
    }
}

fn user_mention(known: &Trust<Names>, names: &Global<[Global<str>]>) -> Global<[u32]> {
    let texts = names.read().iter().map(|name| name.read().to_owned()).collect::<Vec<String>>();
    let find = |names: &mut Names, texts: Vec<String>| texts.iter().filter_map(|name| names.find(name)).collect();
    let users: Vec<u32> = if texts.is_empty() { Vec::new() } else { known.apply_with(find, texts) };
    Global::from(users)
}

fn url_shorten(kept: &Trust<Addresses>, addresses: &Global<[Global<str>]>) -> Global<[u64]> {
    let texts = addresses.read().iter().map(|address| address.read().to_owned()).collect::<Vec<String>>();
    let short = texts.iter().map(|text| shorten(text)).collect::<Vec<_>>();
    if !texts.is_empty() {
        let store =
            |all: &mut Addresses, texts: Vec<String>| texts.iter().for_each(|text| all.store(shorten(text), text));
        kept.apply_with(store, texts);
    }
    Global::from(short)
}
