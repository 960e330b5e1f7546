//! Who may go on with a session (§4.6): a client with the same rights as the one before, or one of whom Python has said
//! so. The id of a session is no secret if somebody can guess a client's name and key.

use std::net::SocketAddr;

use hashbrown::HashMap;

use crate::engine::Engine;
use crate::engine::metrics::counters::Drop;
use crate::engine::transport::event::{Event, Flow, SessionClaim};
use crate::engine::transport::links::LinkSlot;
use crate::keyed_hash::KeyedHash;
use crate::schema::reason;
use crate::wire::{self, HeaderOut};

/// The most answers of Python that wait for their clients.
const MOST: usize = 4_096;

/// The rights of the clients of sessions, by session. Empty where no tokens are required.
pub struct SessionClaims {
    /// Of the client that has, or had, the session.
    known: HashMap<u64, u64, KeyedHash>,
    /// Of who may go on with it.
    allowed: HashMap<u64, u64, KeyedHash>,
}

impl SessionClaims {
    pub fn new(hasher: KeyedHash) -> Self {
        Self { known: HashMap::with_hasher(hasher), allowed: HashMap::with_hasher(hasher) }
    }

    /// The client of a session has these rights; 0: it is unknown which, or no tokens are required.
    pub fn note(&mut self, session: u64, rights: u64) {
        if rights != 0 {
            self.known.insert(session, rights);
        }
    }

    /// The session has ended.
    pub fn forget(&mut self, session: u64) {
        self.known.remove(&session);
    }

    fn of(&self, session: u64) -> u64 {
        self.known.get(&session).copied().unwrap_or(0)
    }

    fn allow(&mut self, session: u64, rights: u64) {
        if self.allowed.len() >= MOST {
            self.allowed.clear(); // Their clients are asked about again.
        }
        self.allowed.insert(session, rights);
    }

    fn take(&mut self, session: u64, rights: u64) -> bool {
        let is_allowed = self.allowed.get(&session) == Some(&rights);
        if is_allowed {
            self.allowed.remove(&session);
        }
        is_allowed
    }
}

impl Engine {
    /// Whether who sent the datagram that is handled now may begin a link of this session. If Python has to decide, it
    /// is asked, and the client sends again.
    pub(in crate::engine) fn may_go_on(&mut self, session: u64, source: SocketAddr) -> bool {
        if !self.config.requires_tokens {
            return true;
        }
        let sender = self.sender_key();
        let links = &self.out.links;
        let of_link = links.by_session(session).and_then(|id| links.get(id)).map(LinkSlot::rights);
        let known = of_link.unwrap_or_else(|| self.out.claims.of(session));
        if known == 0 || known == sender || self.out.claims.take(session, sender) {
            return true;
        }
        let flow = Flow::Outside(source.ip().into());
        if self.events.has_room(flow) {
            self.events.push(flow, Event::SessionClaimed(SessionClaim { session, source, rights: sender }));
        } else {
            self.out.counters.drop(Drop::EventQueueFull);
        }
        false
    }

    /// A client with these rights may go on with a session ([`Event::SessionClaimed`]).
    pub fn allow_session(&mut self, session: u64, rights: u64) {
        self.out.claims.allow(session, rights);
    }

    /// It may not, and is told so.
    pub fn refuse_session(&mut self, session: u64, client: (SocketAddr, u64)) {
        self.out.counters.drop(Drop::NotAuthorized);
        let (mut body, mut datagram) = (Vec::new(), Vec::new());
        wire::put_reset_field(&mut body, session, &[], reason::NOT_AUTHORIZED);
        let header = HeaderOut { session, incarnation: self.config.incarnation, ..HeaderOut::default() };
        wire::put_header(&mut datagram, &header);
        wire::put_packet(&mut datagram, 0, 0, None, &body);
        self.send_outside(client, datagram);
    }
}
