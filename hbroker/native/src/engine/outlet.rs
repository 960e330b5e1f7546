//! The way out of an engine: sessions, their links and queues, what goes to other workers, and what is counted.

use std::collections::VecDeque;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::engine::counters::{Counters, Drop};
use crate::engine::distribution::Origin;
use crate::engine::ledger::Ticket;
use crate::engine::links::Links;
use crate::engine::sessions::Sessions;
use crate::link::pubacks::Success;
use crate::link::{Chain, QueueFull};
use crate::link_id::{LinkId, SessionKey};

/// What one worker asks of another.
#[derive(Clone, Debug)]
pub enum Handoff {
    /// Queue this message for these sessions, which are yours, each at its `QoS`.
    Deliver { field: Bytes, chain: u64, targets: Targets, ticket: Option<Ticket> },
    /// A copy of a message that you took over is settled.
    Settled { ticket: Ticket },
    /// A session has ended: forget its subscriptions.
    Gone { session: SessionKey },
    /// A datagram for a session that you have.
    Datagram { source: std::net::SocketAddr, datagram: Bytes },
}

/// Sessions and the `QoS` that each gets a message at.
pub type Targets = SmallVec<[(SessionKey, u8); 8]>;

pub struct Outlet {
    pub links: Links,
    pub sessions: Sessions,
    pub counters: Counters,
    /// For which worker, and what.
    pub handoffs: VecDeque<(u8, Handoff)>,
}

impl Outlet {
    /// Lets a PUBACK go, if its link is still there.
    pub fn acknowledge(&mut self, origin: Origin, success: Success) {
        if let Some(entry) = self.links.get_mut(origin.link) {
            entry.link.acknowledge(origin.delivery, success);
            self.links.touch(origin.link);
        }
    }

    /// Offers a session a message at `QoS` 0.
    pub fn offer_copy(&mut self, session: SessionKey, field: &[u8], retained: bool) {
        if let Some(link) = self.link_of(session) {
            self.queue_copy(link, field, retained);
        }
    }

    /// Offers a session a message at `QoS` 1 or 2; as [`Self::queue_shared`].
    pub fn offer_shared(
        &mut self,
        session: SessionKey,
        field: Bytes,
        chain: u64,
        retained: bool,
        ticket: Option<Ticket>,
    ) -> bool {
        let Some(link) = self.link_of(session) else {
            self.counters.drop(Drop::SessionEnded);
            return false;
        };
        self.queue_shared(link, field, chain, retained, ticket)
    }

    /// Queues a message at `QoS` 0: dropped, and counted, where there is no room.
    pub fn queue_copy(&mut self, id: LinkId, field: &[u8], retained: bool) {
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        if entry.link.queue_unreliable(field, retained).is_err() {
            self.counters.drop(Drop::QueueFull);
            return;
        }
        self.counters.messages_out += 1;
        self.links.touch(id);
    }

    /// Queues a message at `QoS` 1 or 2; false, and counted, where there is no room or no such link. A ticket given is in
    /// the link's ledger then.
    pub fn queue_shared(
        &mut self,
        id: LinkId,
        field: Bytes,
        chain: u64,
        retained: bool,
        ticket: Option<Ticket>,
    ) -> bool {
        let Some(entry) = self.links.get_mut(id) else {
            self.counters.drop(Drop::SessionEnded);
            return false;
        };
        match entry.link.queue_reliable(Chain::Topic(chain), field, retained) {
            Ok(delivery) => {
                if let Some(ticket) = ticket {
                    entry.ledger.open(delivery, ticket);
                }
                self.counters.messages_out += 1;
                self.links.touch(id);
                true
            }
            Err(QueueFull) => {
                self.counters.drop(Drop::QueueFull);
                false
            }
        }
    }

    /// Queues a control packet, or the body of one; false where there is no room or no such link.
    pub fn queue_control(&mut self, id: LinkId, packet: Bytes) -> bool {
        let Some(entry) = self.links.get_mut(id) else {
            return false;
        };
        let queued = entry.link.queue_reliable(Chain::Control, packet, false).is_ok();
        if !queued {
            self.counters.drop(Drop::QueueFull);
        }
        self.links.touch(id);
        queued
    }

    fn link_of(&self, session: SessionKey) -> Option<LinkId> {
        self.sessions.get(session)?.link
    }
}
