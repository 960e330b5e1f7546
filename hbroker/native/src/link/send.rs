//! Sending: packets are built, paced, and kept until they are acknowledged (RFC 9000 §13, RFC 9002).

pub mod budget;
pub mod contents;
pub mod datagram_builder;
pub mod flight;
pub mod outbox;
pub mod pacer;
