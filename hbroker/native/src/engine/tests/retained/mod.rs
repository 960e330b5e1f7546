//! Retained messages over whole engines (§7.6).
//!
//! `latest` has which message of a topic comes, `replays` how many come at a time.

mod latest;
mod replays;
