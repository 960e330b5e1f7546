//! From a client to the network (MQTT 5 §4.3): what it sent at `QoS` 1 and 2, until it is acknowledged.
//!
//! The network answers in any order; PUBACK goes out in the order of the messages of `QoS` 1, PUBREC in that of `QoS` 2 (MQTT 5 §4.6). A message of
//! `QoS` 2 is known by its packet id until PUBREL, also over connections: one that comes again before is not published again (MQTT 5 §4.3.3). Where the connection
//! went before the network had answered, the message is an *orphan*: the answer finds it, and who sends it again
//! gets that one.

use std::collections::{BTreeMap, VecDeque};

use crate::mqtt::Key;
use crate::mqtt::codec::frame::kind;
use crate::mqtt::codec::reason::Reason;

#[derive(Default)]
pub struct Incoming {
    last_key: u64,
    /// Of `QoS` 1, and of 2, in the order in which they came; the answer, once it is known.
    once: VecDeque<Pending>,
    exact: VecDeque<Pending>,
    /// Of `QoS` 2, by packet id, until PUBREL.
    received: BTreeMap<u16, Received>,
    /// What the client sent over this connection and has no final acknowledgement for.
    open: usize,
}

struct Pending {
    key: Key,
    packet_id: u16,
    outcome: Option<Reason>,
}

struct Received {
    stage: Stage,
    /// It counts in `open`.
    is_open: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The network has not answered.
    Asked,
    /// Nor has it, and the connection is gone; whether the client sent it again since.
    Orphan(Key, bool),
    /// PUBREC was sent, or would have been.
    Had,
}

/// What an incoming PUBLISH is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    New,
    /// It came before, and is to get PUBREC now.
    Again,
    /// It came before, and gets PUBREC when the network has answered.
    Awaited,
}

/// An acknowledgement that is due: its kind, packet id and reason.
pub type Due = (u8, u16, Reason);

impl Incoming {
    /// Goes on with packet ids of `QoS` 2 that another gateway had received.
    pub fn resuming(received: Vec<u16>) -> Self {
        let had = |packet_id| (packet_id, Received { stage: Stage::Had, is_open: false });
        Self { received: received.into_iter().map(had).collect(), ..Self::default() }
    }

    /// Looks a PUBLISH up.
    pub fn arrive(&mut self, qos: u8, packet_id: u16) -> Arrival {
        let Some(received) = self.received.get_mut(&packet_id).filter(|_| qos == 2) else {
            return Arrival::New;
        };
        if !received.is_open {
            received.is_open = true;
            self.open += 1;
        }
        match received.stage {
            Stage::Had => Arrival::Again,
            Stage::Asked => Arrival::Awaited,
            Stage::Orphan(key, _) => {
                received.stage = Stage::Orphan(key, true);
                Arrival::Awaited
            }
        }
    }

    /// The key that the next message will have.
    pub fn next_key(&self) -> Key {
        Key(self.last_key + 1)
    }

    /// Takes a new message, under `next_key`. `outcome`: what is known of it already.
    pub fn take(&mut self, qos: u8, packet_id: u16, outcome: Option<Reason>) {
        self.last_key += 1;
        self.open += 1;
        let pending = Pending { key: Key(self.last_key), packet_id, outcome };
        if qos == 1 {
            self.once.push_back(pending);
        } else {
            self.received.insert(packet_id, Received { stage: Stage::Asked, is_open: true });
            self.exact.push_back(pending);
        }
    }

    /// The network's answer.
    pub fn answer(&mut self, key: Key, reason: Reason) {
        for pending in [&mut self.once, &mut self.exact] {
            if let Ok(index) = pending.binary_search_by_key(&key, |pending| pending.key) {
                pending[index].outcome = Some(reason);
                return;
            }
        }
        let is_it = |received: &Received| matches!(received.stage, Stage::Orphan(orphan, _) if orphan == key);
        let orphan =
            self.received.iter().find(|(_, received)| is_it(received)).map(|(id, it)| (*id, it.stage));
        match orphan {
            // The client waits for it: behind what it has sent since.
            Some((packet_id, Stage::Orphan(_, true))) => {
                self.last_key += 1;
                self.exact.push_back(Pending { key: Key(self.last_key), packet_id, outcome: Some(reason) });
            }
            Some((packet_id, _)) => self.conclude(packet_id, reason),
            None => {}
        }
    }

    /// What is to be acknowledged next.
    pub fn next_due(&mut self) -> Option<Due> {
        if let Some(reason) = self.once.front().and_then(|pending| pending.outcome) {
            self.open = self.open.saturating_sub(1);
            return self.once.pop_front().map(|pending| (kind::PUBACK, pending.packet_id, reason));
        }
        let reason = self.exact.front()?.outcome?;
        let packet_id = self.exact.pop_front()?.packet_id;
        self.conclude(packet_id, reason);
        Some((kind::PUBREC, packet_id, reason))
    }

    /// PUBREL: what PUBCOMP is to say.
    pub fn release(&mut self, packet_id: u16) -> Reason {
        match self.received.get(&packet_id) {
            Some(Received { stage: Stage::Had, .. }) => {
                self.forget(packet_id);
                Reason::SUCCESS
            }
            _ => Reason::PACKET_ID_NOT_FOUND,
        }
    }

    /// The connection is gone: `QoS` 1 comes again as a new message (MQTT 5 §4.3.2), `QoS` 2 under its packet id.
    pub fn detach(&mut self) {
        self.open = 0;
        self.once = VecDeque::new();
        for Pending { key, packet_id, outcome } in std::mem::take(&mut self.exact) {
            match (outcome, self.received.get_mut(&packet_id)) {
                (Some(reason), _) => self.conclude(packet_id, reason),
                (None, Some(received)) => received.stage = Stage::Orphan(key, false),
                (None, None) => {}
            }
        }
        self.received.values_mut().for_each(|received| {
            received.is_open = false;
            if let Stage::Orphan(key, true) = received.stage {
                received.stage = Stage::Orphan(key, false);
            }
        });
    }

    /// Messages that the client sent over this connection and has no final acknowledgement for (MQTT 5 §3.3.4).
    pub fn open(&self) -> usize {
        self.open
    }

    /// Messages that the network has not answered.
    pub fn unanswered(&self) -> usize {
        self.once.len() + self.exact.len()
    }

    /// Whether the network has answered all.
    pub fn is_settled(&self) -> bool {
        self.unanswered() == 0 && self.received.values().all(|received| received.stage == Stage::Had)
    }

    /// The packet ids of `QoS` 2 that the network has taken, and that PUBREL has not come for.
    pub fn export(&self) -> Vec<u16> {
        let had = self.received.iter().filter(|(_, received)| received.stage == Stage::Had);
        had.map(|(packet_id, _)| *packet_id).collect()
    }

    /// The end of what the network had to say to a message of `QoS` 2.
    fn conclude(&mut self, packet_id: u16, reason: Reason) {
        if reason.is_failure() {
            // MQTT 5 §4.3.3: what comes next under this id is a new message.
            self.forget(packet_id);
        } else if let Some(received) = self.received.get_mut(&packet_id) {
            received.stage = Stage::Had;
        }
    }

    fn forget(&mut self, packet_id: u16) {
        if self.received.remove(&packet_id).is_some_and(|received| received.is_open) {
            self.open = self.open.saturating_sub(1);
        }
    }
}
