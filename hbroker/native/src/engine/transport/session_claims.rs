//! Who may go on with a session (§4.6): a client with the same rights as the one before, or one of whom Python has said
//! so. The id of a session is no secret if somebody can guess a client's name and key.

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::engine::Engine;
use crate::engine::metrics::counters::Drop;
use crate::engine::transport::event::{Event, Flow, SessionClaim};
use crate::engine::transport::links::LinkSlot;
use crate::schema::reason;
use crate::wire::{self, HeaderOut};

/// The most answers of Python that wait for their clients.
const MOST: usize = 4_096;

/// The rights of the clients of sessions, by session. `None` where no tokens are required, so that a client takes
/// less memory.
#[derive(Default)]
pub struct SessionClaims {
    tables: Option<Box<Tables>>,
}

#[derive(Default)]
struct Tables {
    /// Of the client that has, or had, the session.
    known: HashMap<u64, u64>,
    /// Of who may go on with it.
    allowed: HashMap<u64, u64>,
}

impl SessionClaims {
    /// The client of a session has these rights; 0: it is unknown which, or no tokens are required.
    pub fn note(&mut self, session: u64, rights: u64) {
        if rights != 0 {
            self.tables().known.insert(session, rights);
        }
    }

    /// The session has ended.
    pub fn forget(&mut self, session: u64) {
        if let Some(tables) = &mut self.tables {
            tables.known.remove(&session);
        }
    }

    fn of(&self, session: u64) -> u64 {
        self.tables.as_ref().and_then(|tables| tables.known.get(&session)).copied().unwrap_or(0)
    }

    fn allow(&mut self, session: u64, rights: u64) {
        let allowed = &mut self.tables().allowed;
        if allowed.len() >= MOST {
            allowed.clear(); // Their clients are asked about again.
        }
        allowed.insert(session, rights);
    }

    fn take(&mut self, session: u64, rights: u64) -> bool {
        let Some(tables) = &mut self.tables else {
            return false;
        };
        let is_allowed = tables.allowed.get(&session) == Some(&rights);
        if is_allowed {
            tables.allowed.remove(&session);
        }
        is_allowed
    }

    fn tables(&mut self) -> &mut Tables {
        self.tables.get_or_insert_default()
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
