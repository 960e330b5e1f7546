//! The tables of an engine. They are pure data structures: they know no links, and time is an argument.
//!
//! ```text
//! node:    engine/owner ──> jurisdiction   does this node own the topic?
//!                       ──> trie           which sessions subscribed? ──> match_set, slot_index
//!                       ──> groups         which member of a shared group receives it?
//!                       ──> retained       the retained messages, shared by all workers
//! client:  engine/publisher ──> zones      which node owns the topic?
//! both:    window                          has a message with this sequence number been seen?
//! arena (numbered slots, small lists) serves most of them.
//! ```

pub mod groups;
pub mod jurisdiction;
pub mod match_set;
pub mod retained;
pub mod subscriber;
pub mod trie;
pub mod window;
pub mod zones;

mod arena;
mod slot_index;
