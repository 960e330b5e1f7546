//! An idle link: the state that is kept while nothing is under way.
//!
//! An owner has tens of thousands of links, and most of them only send a keep-alive every few seconds. A link
//! that is awake takes 1.4 KB, and its queues nearly as much again. An idle link is reduced to numbers,
//! times, and what was learned of the path. From these, [`IdleLink::wake`] makes the same link again. The
//! peer cannot observe the difference.
//!
//! A link may be idle while the answer to a PING is on its way. So a link is awake only while a batch of
//! datagrams is handled. If all peers send a keep-alive at the same time, no more links are awake than a
//! batch has datagrams.

use std::net::SocketAddr;

use smallvec::SmallVec;

use super::{Link, LinkConfig, PROBES_BEFORE_TIMEOUT, Role};
use crate::Micros;
use crate::link::incarnation::Incarnations;
use crate::link::keep_alive::KeepAliveTimer;
use crate::link::loss_recovery::congestion::Cubic;
use crate::link::loss_recovery::recovery::{IdleRecovery, Recovery};
use crate::link::mtu::PathMtu;
use crate::link::receive::acks::{Acks, IdleAcks};
use crate::link::receive::pubacks::Pubacks;
use crate::link::receive::reorder_buffer::ReorderBuffer;
use crate::link::send::budget::Budget;
use crate::link::send::datagram_builder::Contents;
use crate::link::send::delivery::Deliveries;
use crate::link::send::outbox::Outbox;

/// The state of an acceptor's end while it is idle.
#[derive(Debug)]
pub struct IdleLink {
    peer: SocketAddr,
    incarnation: u64,
    peer_incarnation: u64,
    role: Role,
    is_answered: bool,
    idle_acks: IdleAcks,
    /// The last reliable packets, in and out.
    arrived: u64,
    delivered: u64,
    idle_recovery: IdleRecovery,
    budget: Budget,
    /// When a datagram was last received, and when either end last sent something.
    last: (Micros, Micros),
    /// `None`: nothing was learned of it.
    path: Option<Box<Path>>,
}

#[derive(Debug)]
struct Path {
    congestion: Cubic,
    mtu: PathMtu,
}

impl Link {
    /// The idle state of the link, without its counters. `None`: something is under way, or the link would
    /// wake by itself for its keep-alive.
    pub fn idle_state(&self) -> Option<IdleLink> {
        let is_over = self.config.role != Role::Initiator
            && self.is_established
            && !self.is_mismatched
            && !self.is_unproved
            && self.token.is_empty()
            && self.probes == 0
            && self.resume_at.is_none()
            && self.outbox.is_empty()
            && self.pubacks.is_empty();
        if !is_over {
            return None;
        }
        let idle_recovery =
            self.recovery.idle_state(|sent| sent.carried.is_empty().then_some(sent.acknowledged_through))?;
        let idle_acks = self.acks.idle_state()?;
        let (arrived, delivered) = (self.arrivals.idle_state()?, self.deliveries.idle_state()?);
        let is_known = !self.mtu.is_new() || !self.recovery.congestion().is_new();
        let path = || Path { congestion: self.recovery.congestion().clone(), mtu: self.mtu.clone() };
        Some(IdleLink {
            peer: self.peer,
            incarnation: self.config.incarnation,
            peer_incarnation: self.incarnations.peer()?,
            role: self.config.role,
            is_answered: self.is_answered,
            idle_acks,
            arrived,
            delivered,
            idle_recovery,
            budget: self.budget,
            last: self.keep_alive_timer.idle_state()?,
            path: is_known.then(|| Box::new(path())),
        })
    }
}

impl IdleLink {
    /// The link that it was. `config`: the settings that all links of this end have in common.
    pub fn wake(&mut self, session: u64, config: &LinkConfig) -> Link {
        let (incarnation, role) = (self.incarnation, self.role);
        let config = LinkConfig { session, incarnation, role, past: None, first_number: 1, ..config.clone() };
        let (congestion, mtu) = match self.path.take() {
            Some(path) => (path.congestion, path.mtu),
            None => {
                let mtu = PathMtu::new(config.max_datagram);
                (Cubic::new(mtu.size()), mtu)
            }
        };
        let longest = config.idle_timeout / PROBES_BEFORE_TIMEOUT;
        Link {
            peer: self.peer,
            token: Vec::new(),
            token_since: 1,
            is_unproved: false,
            is_established: true,
            is_answered: self.is_answered,
            is_mismatched: false,
            awaits_answer: false,
            incarnations: Incarnations::of(self.peer_incarnation),
            acks: Acks::from_idle_state(self.idle_acks),
            arrivals: ReorderBuffer::after(self.arrived),
            outbox: Outbox::default(),
            deliveries: Deliveries::after(self.delivered),
            pubacks: Pubacks::new(),
            recovery: Recovery::from_idle_state(
                &self.idle_recovery,
                congestion,
                mtu.size(),
                longest,
                |through| Contents { acknowledged_through: through, carried: SmallVec::new() },
            ),
            budget: self.budget,
            mtu,
            probes: 0,
            resume_at: None,
            keep_alive_timer: KeepAliveTimer::from_idle_state(&config, self.last),
            body_field: Vec::new(),
            config,
        }
    }

    /// The peer's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The peer's incarnation.
    pub fn peer_incarnation(&self) -> u64 {
        self.peer_incarnation
    }

    /// As [`Link::is_half_open`].
    pub fn is_half_open(&self) -> bool {
        self.role == Role::Acceptor && !self.is_answered
    }

    /// When it has to wake if nothing is received: to probe, or because its idle timeout is over.
    pub fn deadline(&self, config: &LinkConfig) -> Micros {
        let longest = config.idle_timeout / PROBES_BEFORE_TIMEOUT;
        let over = self.last.0 + config.idle_timeout;
        self.idle_recovery.deadline(longest, config.idle_timeout).map_or(over, |deadline| deadline.min(over))
    }
}
