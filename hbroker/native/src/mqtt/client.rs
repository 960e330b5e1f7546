//! The state that a worker keeps for one client's connection, and the calls that a connection makes upwards.

use crate::Micros;
use crate::client_pool::core::ClientPoolCore;
use crate::mqtt::Key;
use crate::mqtt::codec::packets::Version;
use crate::mqtt::codec::publish::Publish;
use crate::mqtt::command::Traffic;
use crate::mqtt::connection::Connection;
use crate::mqtt::distribution::bridge::{PoolGuard, enter};
use crate::mqtt::event::{Closed, Event, Taken, Upper};
use crate::mqtt::worker_event::SessionHandle;
use crate::prefix::Prefix;
use crate::shares::Share;

/// A client may have this many requests to Python open. At that number its connection is not read until
/// Python has answered one.
const MOST_OPEN_REQUESTS: u16 = 16;

/// When the connection first offers a message again that the network had no room for.
const FIRST_RETRY: Micros = 2_000;
/// The delay doubles at most this many times.
const MOST_DOUBLINGS: u8 = 7;

/// The state that a worker keeps for one connection.
pub struct Client {
    pub connection: Connection,
    /// 0 until the client is accepted.
    pub session: SessionHandle,
    /// The number of its access list.
    pub access: Option<u32>,
    /// Marks its messages once it has a subscription with No Local.
    pub origin: u64,
    /// Requests that Python has not answered.
    pub open_requests: u16,
    /// The network had no room for the client's message: when to offer it again, and how many times it was
    /// refused.
    pub retry: Option<Micros>,
    pub refusals: u8,
    pub marks: Marks,
    /// The version of the CONNECT; `None` if Python does not know of the connection.
    pub version: Option<Version>,
    pub traffic: Traffic,
    /// The client's share of the memory for incomplete packets.
    pub unfinished: Share<Prefix>,
    /// How the connection ended.
    pub closed: Option<Closed>,
}

/// Options of a client's messages that its packets do not contain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marks {
    /// For subscriptions with No Local; 0: there is none.
    pub origin: u64,
    /// The owner acknowledges a message as soon as it is queued, not when it is distributed.
    pub ack_queued: bool,
}

impl Client {
    pub fn new(connection: Connection) -> Self {
        Self {
            connection,
            session: 0,
            access: None,
            origin: 0,
            open_requests: 0,
            retry: None,
            refusals: 0,
            marks: Marks::default(),
            version: None,
            traffic: Traffic::default(),
            unfinished: Share::default(),
            closed: None,
        }
    }

    /// The network had no room: offers the message again later. The delay doubles with each refusal.
    pub fn offer_later(&mut self, now: Micros) {
        self.retry = Some(now + (FIRST_RETRY << self.refusals.min(MOST_DOUBLINGS)));
        self.refusals = self.refusals.saturating_add(1);
    }

    /// Whether the connection must not be read now.
    pub fn is_held(&self) -> bool {
        self.open_requests >= MOST_OPEN_REQUESTS || self.retry.is_some() || !self.connection.wants_bytes()
    }

    /// When the worker must next call the connection.
    pub fn deadline(&self) -> Option<Micros> {
        let due = self.connection.poll_timeout().min(self.retry.unwrap_or(Micros::MAX));
        (due < Micros::MAX).then_some(due)
    }
}

/// Everything above the connections in one iteration of a worker: the network, and the events for Python.
pub struct Above<'t> {
    client_pool: &'t ClientPoolCore,
    guard: Option<PoolGuard<'t>>,
    /// (sequence number, session, key) of each message that the network took and has to answer.
    pub published: Vec<(u64, SessionHandle, Key)>,
    pub events: Vec<Event>,
    /// The session of the connection that is being called.
    pub session: SessionHandle,
    pub marks: Marks,
    /// `full`: the network had no room for a message. `taken`: the network took a message.
    pub full: bool,
    pub taken: bool,
}

impl<'t> Above<'t> {
    pub fn new(client_pool: &'t ClientPoolCore) -> Self {
        Self {
            client_pool,
            guard: None,
            published: Vec::new(),
            events: Vec::new(),
            session: 0,
            marks: Marks::default(),
            full: false,
            taken: false,
        }
    }

    /// The network. Its lock is taken at most once in an iteration.
    pub fn guard(&mut self) -> &mut PoolGuard<'t> {
        self.guard.get_or_insert_with(|| enter(self.client_pool))
    }
}

impl Upper for Above<'_> {
    fn publish(&mut self, publish: &Publish<'_>, key: Option<Key>) -> Taken {
        let marks = self.marks;
        match self.guard().publish(publish, marks) {
            Ok(Some(sequence)) => {
                self.taken = true;
                if let Some(key) = key {
                    self.published.push((sequence, self.session, key));
                }
                Taken::Yes
            }
            Ok(None) => {
                self.full = true;
                Taken::Later
            }
            Err(reason) => Taken::Refused(reason),
        }
    }

    fn event(&mut self, event: Event) {
        self.events.push(event);
    }
}
