//! Sending: packets are queued, put into datagrams, and paced (RFC 9000 §13, RFC 9002).
//!
//! ```text
//!     datagram_builder    Link::poll_transmit: makes datagrams of what is due
//!       |-- outbox              packets that were never sent, in the order of queueing
//!       `-- budget              how much may be retransmitted
//!     delivery            sent reliable packets, until they are acknowledged
//!     pacer               when the next datagram may be sent; of crate::link::loss_recovery
//! ```

pub mod budget;
pub mod datagram_builder;
pub mod delivery;
pub mod outbox;
pub mod pacer;
