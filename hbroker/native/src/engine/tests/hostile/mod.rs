//! What strangers, liars and greedy hosts send takes bounded memory, and changes nothing for others (§3.3, §4).
//!
//! `strangers` has datagrams of every kind, `early` packets that come before their turn.

mod early;
mod strangers;
