//! From publishers to subscribers, through one owner or the next (§7.2 to §7.6, §7.9).
//!
//! `one_owner` has the promises of each `QoS`, `large` messages in fragments, `groups` shared groups, `redirect`
//! owners that change on the way, and `publisher_ids` how a publisher is known.

mod groups;
mod large;
mod one_owner;
mod publisher_ids;
mod redirect;
mod rights;
