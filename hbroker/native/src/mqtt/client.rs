//! A client's connection, as its worker keeps it.

use crate::Micros;
use crate::mqtt::Key;
use crate::mqtt::codec::packets::Version;
use crate::mqtt::codec::publish::Publish;
use crate::mqtt::command::Traffic;
use crate::mqtt::connection::Connection;
use crate::mqtt::distribution::network::{Guard, Network, Outgoing};
use crate::mqtt::event::{Closed, Event, Taken, Upper};
use crate::mqtt::worker_event::SessionHandle;
use crate::prefix::Prefix;
use crate::shares::Share;

/// Questions to Python that a client may have open; then it is not read until one is answered.
const MOST_OPEN_REQUESTS: u16 = 16;

/// When a message that the network had no room for is offered again.
const FIRST_RETRY: Micros = 2_000;
/// So often that time doubles.
const MOST_DOUBLINGS: u8 = 7;

/// What a worker keeps of a connection.
pub struct Client {
    pub connection: Connection,
    /// 0: it was not accepted yet.
    pub session: SessionHandle,
    /// Who it is, once it is accepted.
    pub name: Option<Box<Name>>,
    /// Questions that Python has not answered.
    pub open_requests: u16,
    /// The network had no room for its message: when to offer it again, and how often it was offered.
    pub retry: Option<Micros>,
    pub refusals: u8,
    pub marks: Marks,
    /// That of its CONNECT; `None`: Python does not know of the connection.
    pub version: Option<Version>,
    pub traffic: Traffic,
    /// What it holds of a packet that is not whole.
    pub unfinished: Share<Prefix>,
    /// How it ended.
    pub closed: Option<Closed>,
}

/// What is asked of its messages, beside what its packets say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marks {
    pub origin: u64,
    pub ack_queued: bool,
}

/// Who a client is.
pub struct Name {
    pub client_id: Box<str>,
    pub user: Box<str>,
    /// The number of its access list.
    pub access: Option<u32>,
    /// See [`Marks`]; its messages bear it once they have to.
    pub origin: u64,
}

impl Client {
    pub fn new(connection: Connection) -> Self {
        Self {
            connection,
            session: 0,
            name: None,
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

    /// The network had no room: the message is offered again, ever more seldom.
    pub fn offer_later(&mut self, now: Micros) {
        self.retry = Some(now + (FIRST_RETRY << self.refusals.min(MOST_DOUBLINGS)));
        self.refusals = self.refusals.saturating_add(1);
    }

    /// Whether bytes of it are to wait.
    pub fn is_held(&self) -> bool {
        self.open_requests >= MOST_OPEN_REQUESTS || self.retry.is_some() || !self.connection.wants_bytes()
    }

    /// When it is to be looked at.
    pub fn deadline(&self) -> Option<Micros> {
        let due = self.connection.poll_timeout().min(self.retry.unwrap_or(Micros::MAX));
        (due < Micros::MAX).then_some(due)
    }
}

/// What one turn says to the network and asks of Python; what is above a connection, while it is called.
pub struct Above<'t, N: Network> {
    network: &'t N,
    guard: Option<N::Guard<'t>>,
    /// (sequence number, session, key) of what the network took, and is to answer.
    pub published: Vec<(u64, SessionHandle, Key)>,
    pub events: Vec<Event>,
    /// Of the connection in hand.
    pub session: SessionHandle,
    pub marks: Marks,
    /// The network had no room; and it took something.
    pub full: bool,
    pub taken: bool,
}

impl<'t, N: Network> Above<'t, N> {
    pub fn new(network: &'t N) -> Self {
        Self {
            network,
            guard: None,
            published: Vec::new(),
            events: Vec::new(),
            session: 0,
            marks: Marks::default(),
            full: false,
            taken: false,
        }
    }

    /// The network, entered at most once in a turn.
    pub fn guard(&mut self) -> &mut N::Guard<'t> {
        self.guard.get_or_insert_with(|| self.network.enter())
    }
}

impl<N: Network> Upper for Above<'_, N> {
    fn publish(&mut self, publish: &Publish<'_>, key: Option<Key>) -> Taken {
        let Marks { origin, ack_queued } = self.marks;
        let message = Outgoing { publish, origin, ack_queued };
        match self.guard().publish(&message) {
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
