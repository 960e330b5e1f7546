//! Messages that come many at once: to everybody it is as if each had come by itself (§2.4, §3.3, §7.3).
//!
//! Publishers send them so (`pending`, `deltas`), and owners hand them on so: `unacknowledged` at `QoS` 0,
//! `acknowledged` at `QoS` 1 and 2.

mod acknowledged;
mod deltas;
mod pending;
mod unacknowledged;
