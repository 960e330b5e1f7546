//! The tickets with which a client resumes TLS with a node (RFC 8446 §2.2).
//!
//! `rustls` keeps tickets by the name of the server. All nodes share a name, and each can read its own tickets
//! alone. So here they are kept by the node's address.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use rustls::NamedGroup;
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls12Resumption, Tls13ClientSessionValue,
};
use rustls::pki_types::ServerName;

/// The nodes whose tickets a client keeps.
const MOST_NODES: usize = 256;

/// The last ticket of each node. Each is used once.
#[derive(Clone, Default)]
pub struct Tickets(Arc<Mutex<HashMap<SocketAddr, Tls13ClientSessionValue>>>);

impl Tickets {
    /// Resumes with the node at this address, if there is a ticket of it.
    pub fn for_node(&self, node: SocketAddr) -> Resumption {
        let of_node = TicketsOfNode { tickets: self.clone(), node };
        Resumption::store(Arc::new(of_node)).tls12_resumption(Tls12Resumption::Disabled)
    }
}

struct TicketsOfNode {
    tickets: Tickets,
    node: SocketAddr,
}

impl fmt::Debug for TicketsOfNode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "tickets of {}", self.node)
    }
}

impl ClientSessionStore for TicketsOfNode {
    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut tickets = self.tickets.0.lock();
        if tickets.len() >= MOST_NODES
            && !tickets.contains_key(&self.node)
            && let Some(any) = tickets.keys().next().copied()
        {
            tickets.remove(&any);
        }
        tickets.insert(self.node, ticket);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.tickets.0.lock().remove(&self.node)
    }

    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None // Nodes take the group that is first.
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}
}
