//! What an engine looks things up in. Pure data structures: no links, no time but as an argument.
//!
//! At a node: `jurisdiction` (is a topic ours?), `trie` (who subscribed to it?), `groups` (who of those
//! that share a subscription gets it?), `retained`. At a client: `zones` (whose is it?). On
//! both sides `window` recognises messages that come again. `arena`, `few`, `match_set` and `slot_index`
//! serve the trie.

pub mod groups;
pub mod jurisdiction;
pub mod match_set;
pub mod retained;
mod small_list;
pub mod trie;
pub mod window;
pub mod zones;

mod arena;
mod slot_index;
