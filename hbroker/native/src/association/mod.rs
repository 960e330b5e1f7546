//! Associations: every datagram between two addresses is sealed (docs/adr/0035-sealed-associations.md).
//!
//! An association lies below links. It is made by a handshake of TLS 1.3, between an initiator and a node. Then both
//! ends have keys, with which they seal and open all datagrams between them, of whatever session.
//!
//! ```text
//!     table         all associations of one address: datagrams in -> opened; datagrams out -> sealed, or held
//!       |             until there are keys; whom to answer, and when to forget
//!       |-- handshake      TLS as a stream in datagrams
//!       |     `-- credentials   certificates; the configurations of TLS
//!       |-- keys           a sender's and a receiver's keys, numbers, replays
//!       `-- packet         the datagrams
//! ```
//!
//! Sans-IO, as everything below `endpoint`: datagrams and time come in; datagrams and a deadline come out.

pub mod credentials;
pub mod handshake;
pub mod keys;
pub mod packet;
pub mod table;
#[cfg(test)]
pub mod tests;
