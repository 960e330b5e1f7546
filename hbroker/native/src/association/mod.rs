//! Associations: every datagram between two addresses is sealed (docs/adr/0035-sealed-associations.md).
//!
//! An association lies below links. It is made by a handshake of TLS 1.3, between an initiator and a node. Then both
//! ends have keys, with which they seal and open all datagrams between them, of whatever session.
//!
//! ```text
//!     worker        datagrams in -> opened; datagrams out -> sealed, or held until there are keys; timers
//!       |-- establishment   who may begin, who is answered; handshakes until there are keys
//!       |     `-- handshake       TLS as a stream in datagrams
//!       |           `-- credentials     certificates; the configurations of TLS
//!       |                 |-- tickets         with which a client goes on with a node that it knows
//!       |                 `-- key_log         the secrets, for who may read what is sealed
//!       |-- client_rights   what Python says of a client, and what was kept of it until then
//!       |     `-- admission       whether it is known what a client may do
//!       |-- table           all associations of one address, for all its workers
//!       |-- keys            a sender's and a receiver's keys, numbers, replays
//!       `-- packet          the datagrams
//! ```
//!
//! Sans-IO, as everything below `endpoint`: datagrams and time come in; datagrams and a deadline come out.

pub mod admission;
mod client_rights;
pub mod counters;
pub mod credentials;
mod establishment;
pub mod handshake;
pub mod key_log;
mod keys;
pub mod packet;
pub mod table;
#[cfg(test)]
pub mod tests;
mod tickets;
pub mod worker;
