//! A social network of twelve services, after SocialNet of DeathStarBench, which pass owners of objects of the heap
//! (DRust 7.1).
//!
//! A service is at one place. What a service is asked with, and what it answers, are owners: 16 or 24 bytes, however
//! long the post. Who reads it has it in place where it is mapped, else fetches it. A post is written once and read
//! often: by whoever reads a timeline with it.
//!
//! The services: front, compose-post, unique-id, text, user-mention, url-shorten, media, user, social-graph,
//! post-storage, user-timeline, home-timeline.
//!
//! 1. [`world`]: users and requests, generated, and what is in a post
//! 2. [`state`]: what services remember
//! 3. [`services`]: the twelve, over the rack; [`twin`]: the same as calls in one process, with `Arc`, `String` and
//!    `Vec`
//! 4. [`options`]: what the user asked for; [`start`]: how it runs

pub mod options;
pub mod services;
pub mod start;
pub mod state;
pub mod twin;
pub mod world;
