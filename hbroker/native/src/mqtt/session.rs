//! A session (§4.1): what outlives a client's connection.

use std::sync::Arc;

use crate::Micros;
use crate::mqtt::access::Access;
use crate::mqtt::claim::{Claim, MessageId};
use crate::mqtt::counters::Counters;
use crate::mqtt::message::{Message, Terms};
use crate::mqtt::reason::Reason;
use crate::mqtt::settings::SessionSettings;
use crate::mqtt::{Key, Turn};

/// A message for one client.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub message: Arc<Message>,
    pub terms: Terms,
    /// None: nobody waits for its acknowledgement.
    pub claim: Option<Claim>,
}

/// What another gateway needs to resume a session: packet ids, without messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionState {
    /// Sent at `QoS` 1 or 2 and not acknowledged, in order.
    pub sent: Vec<(MessageId, u16)>,
    /// PUBREC came, PUBCOMP did not: PUBREL is owed, in order.
    pub owed: Vec<u16>,
    /// Taken from the client at `QoS` 2, PUBREL has not come.
    pub received: Vec<u16>,
}

/// What outlives a client's connection, apart from its subscriptions.
#[derive(Default)]
pub struct Session {}

impl Session {
    pub fn new(settings: SessionSettings) -> Self {
        let _ = settings;
        Self {}
    }

    /// Continues one that another gateway exported.
    pub fn import(settings: SessionSettings, state: SessionState) -> Self {
        let _ = (settings, state);
        Self {}
    }

    /// What another gateway needs to go on with it.
    pub fn export(&self) -> SessionState {
        SessionState::default()
    }

    /// Whether the network has answered every PUBLISH that it took: an export says all.
    pub fn is_settled(&self) -> bool {
        true
    }

    /// A message for a client that is away. False: its queue overflowed, and it is to end by its policy.
    #[must_use]
    pub fn deliver(&mut self, now: Micros, delivery: Delivery, counters: &mut Counters) -> bool {
        let _ = (now, delivery, counters);
        true
    }

    /// The network's answer to a PUBLISH of a connection that is gone.
    pub fn answer(&mut self, key: Key, reason: Reason) {
        let _ = (key, reason);
    }

    /// When its claims are to be released; `Micros::MAX`: never.
    pub fn poll_timeout(&self) -> Micros {
        Micros::MAX
    }

    pub fn handle_timeout(&mut self, now: Micros, counters: &mut Counters) {
        let _ = (now, counters);
    }

    pub fn set_access(&mut self, access: Access) {
        let _ = access;
    }

    /// Drops what waits, counted.
    pub fn end(self, counters: &mut Counters) {
        let _ = counters;
    }

    /// Messages and bytes that wait for the client, and messages that it has not acknowledged.
    pub fn load(&self) -> Load {
        Load::default()
    }

    fn _turn(_: Turn<'_>) {}
}

/// What a session holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    pub queued: usize,
    pub queued_bytes: usize,
    pub inflight: usize,
}
