//! State of the services. `L` and `P` are lists and posts: `Shared` on the heap, `Arc` in the twin.

use std::collections::HashMap;

use super::world::{SHOWN, World, name};

/// user: the users, and the number of their posts.
#[derive(Debug)]
pub struct Users(Vec<u64>);

impl Users {
    /// All of them.
    pub fn new(world: World) -> Users {
        Users(vec![0; world.users as usize])
    }

    /// One has posted something. False if there is no such user.
    pub fn posted(&mut self, user: u32) -> bool {
        let Some(count) = self.0.get_mut(user as usize) else { return false };
        *count += 1;
        true
    }
}

/// user-mention: users by name.
#[derive(Debug)]
pub struct Names(HashMap<String, u32>);

impl Names {
    /// All of them.
    pub fn new(world: World) -> Names {
        Names((0..world.users).map(|user| (name(user), user)).collect())
    }

    /// The user with this name.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.0.get(name).copied()
    }
}

/// social-graph: the followers of a user, by user.
#[derive(Debug)]
pub struct Graph<L>(Vec<L>);

impl<L: Clone> Graph<L> {
    /// All users.
    pub fn new(world: World, list: impl Fn(Vec<u32>) -> L) -> Graph<L> {
        Graph((0..world.users).map(|user| list(world.followers(user))).collect())
    }

    /// Followers of a user.
    pub fn followers(&self, user: u32) -> Option<L> {
        self.0.get(user as usize).cloned()
    }
}

/// post-storage: posts by number.
#[derive(Debug)]
pub struct Posts<P>(HashMap<u64, P>);

impl<P> Default for Posts<P> {
    fn default() -> Self {
        Posts(HashMap::new())
    }
}

impl<P: Clone> Posts<P> {
    /// Keeps one.
    pub fn store(&mut self, id: u64, post: P) {
        self.0.insert(id, post);
    }

    /// Gives one.
    pub fn find(&self, id: u64) -> Option<P> {
        self.0.get(&id).cloned()
    }
}

/// user-timeline and home-timeline: the last posts for each user, as times and numbers, in order.
#[derive(Debug)]
pub struct Timelines(Vec<Vec<(u64, u64)>>);

impl Timelines {
    /// All users.
    pub fn new(world: World) -> Timelines {
        Timelines(vec![Vec::new(); world.users as usize])
    }

    /// A post of this time. None is read any more of those before the ones that are shown of the time before `round`,
    /// so they are forgotten.
    pub fn add(&mut self, user: u32, time: u64, id: u64, round: u64) {
        let Some(all) = self.0.get_mut(user as usize) else { return };
        let old = all.partition_point(|(time, _)| *time < round);
        all.drain(..old.saturating_sub(SHOWN));
        let at = all.partition_point(|entry| *entry < (time, id));
        all.insert(at, (time, id));
    }

    /// The last posts before this time, the last one first.
    pub fn last(&self, user: u32, round: u64) -> Vec<u64> {
        let Some(all) = self.0.get(user as usize) else { return Vec::new() };
        let end = all.partition_point(|(time, _)| *time < round);
        all[end.saturating_sub(SHOWN)..end].iter().rev().map(|(_, id)| *id).collect()
    }
}

/// url-shorten: addresses by their short forms.
#[derive(Debug, Default)]
pub struct Addresses(HashMap<u64, String>);

impl Addresses {
    /// Keeps one.
    pub fn store(&mut self, short: u64, address: &str) {
        self.0.entry(short).or_insert_with(|| address.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_has_the_last_posts_of_the_rounds_before() {
        let world = World { users: 2, followers: 1, posts: 10, seed: 1 };
        let mut all = Timelines::new(world);
        for time in [3, 1, 2, 30, 0] {
            all.add(1, time, 100 + time, 0);
        }
        assert_eq!(all.last(1, 10), [103, 102, 101, 100]);
        for time in 10..25 {
            all.add(1, time, 100 + time, 10);
        }
        assert_eq!(all.last(1, 10), [103, 102, 101, 100]);
        assert_eq!(all.last(1, 25), (115..125).rev().collect::<Vec<_>>());
        all.add(1, 26, 126, 25);
        assert_eq!(
            (all.last(1, 25).len(), all.0[1].len(), all.last(0, 99).len(), all.last(7, 99).len()),
            (10, 12, 0, 0)
        );
    }
}
