//! A social network of twelve services, after SocialNet of DeathStarBench, which pass owners of objects of the heap
//! (DRust 7.1).
//!
//! A service is at one place. Its requests and its answers are owners: 16 or 24 bytes, however long the post. A reader
//! has the post in place where it is mapped, else fetches it. A post is written once and read often, with each timeline
//! that has it.
//!
//! The services: front, compose-post, unique-id, text, user-mention, url-shorten, media, user, social-graph,
//! post-storage, user-timeline, home-timeline.
//!
//! 1. [`world`]: users and requests, generated, and the contents of a post
//! 2. [`state`]: the state of the services
//! 3. [`services`]: the twelve, over the rack; [`twin`]: the same as calls in one process, with `Arc`, `String` and
//!    `Vec`
//! 4. [`options`]: the command line; [`start`]: how it runs

pub mod options;
pub mod services;
pub mod start;
pub mod state;
pub mod twin;
pub mod world;
