//! Messages from a client to the network (MQTT 5 §4.3): the PUBLISH packets of `QoS` 1 and 2, until they are
//! acknowledged.
//!
//! The network answers in any order. PUBACKs are sent in the order of the `QoS` 1 messages, PUBRECs in the
//! order of the `QoS` 2 messages (MQTT 5 §4.6). A `QoS` 2 message is known by its packet id until PUBREL,
//! also across connections: if the client retransmits the message before PUBREL, it is not published again
//! (MQTT 5 §4.3.3). If the connection ends before the network has answered, the message is an *orphan*: the
//! network's answer is recorded for it, and is sent when the client retransmits the message.

use std::collections::{BTreeMap, VecDeque};

use crate::mqtt::Key;
use crate::mqtt::codec::frame::kind;
use crate::mqtt::codec::reason::Reason;

#[derive(Default)]
pub struct Incoming {
    last_key: u64,
    /// The messages of each `QoS`, in order of arrival, with the network's answer once there is one.
    qos1: VecDeque<Pending>,
    qos2: VecDeque<Pending>,
    /// Messages of `QoS` 2, by packet id, until PUBREL.
    received: BTreeMap<u16, Received>,
    /// How many messages of this connection have no final acknowledgement.
    open: usize,
}

struct Pending {
    key: Key,
    packet_id: u16,
    outcome: Option<Reason>,
}

struct Received {
    stage: Stage,
    /// Whether it is counted in `open`.
    is_open: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The network has not answered.
    AwaitsNetwork,
    /// The network has not answered, and the connection has ended. True: the client has retransmitted it
    /// since.
    Orphan(Key, bool),
    /// PUBREC was sent, or would have been sent.
    AwaitsPubrel,
}

/// Whether a received PUBLISH is new, and if not, when PUBREC answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishArrival {
    New,
    /// A retransmission, to be answered with PUBREC at once.
    AnsweredDuplicate,
    /// A retransmission, to be answered with PUBREC when the network has answered.
    PendingDuplicate,
}

/// The next acknowledgement to send: its packet type, packet id and reason code.
pub type Due = (u8, u16, Reason);

impl Incoming {
    /// Resumes with the packet ids of `QoS` 2 that another gateway had received.
    pub fn resuming(received: Vec<u16>) -> Self {
        let resumed = |packet_id| (packet_id, Received { stage: Stage::AwaitsPubrel, is_open: false });
        Self { received: received.into_iter().map(resumed).collect(), ..Self::default() }
    }

    /// Tells whether a PUBLISH is new.
    pub fn arrive(&mut self, qos: u8, packet_id: u16) -> PublishArrival {
        let Some(received) = self.received.get_mut(&packet_id).filter(|_| qos == 2) else {
            return PublishArrival::New;
        };
        if !received.is_open {
            received.is_open = true;
            self.open += 1;
        }
        match received.stage {
            Stage::AwaitsPubrel => PublishArrival::AnsweredDuplicate,
            Stage::AwaitsNetwork => PublishArrival::PendingDuplicate,
            Stage::Orphan(key, _) => {
                received.stage = Stage::Orphan(key, true);
                PublishArrival::PendingDuplicate
            }
        }
    }

    /// The key of the next message.
    pub fn next_key(&self) -> Key {
        Key(self.last_key + 1)
    }

    /// Records a new message under `next_key`. `outcome`: the answer, if it is known already.
    pub fn take(&mut self, qos: u8, packet_id: u16, outcome: Option<Reason>) {
        self.last_key += 1;
        self.open += 1;
        let pending = Pending { key: Key(self.last_key), packet_id, outcome };
        if qos == 1 {
            self.qos1.push_back(pending);
        } else {
            self.received.insert(packet_id, Received { stage: Stage::AwaitsNetwork, is_open: true });
            self.qos2.push_back(pending);
        }
    }

    /// Records the network's answer.
    pub fn answer(&mut self, key: Key, reason: Reason) {
        for pending in [&mut self.qos1, &mut self.qos2] {
            if let Ok(index) = pending.binary_search_by_key(&key, |pending| pending.key) {
                pending[index].outcome = Some(reason);
                return;
            }
        }
        let is_it = |received: &Received| matches!(received.stage, Stage::Orphan(orphan, _) if orphan == key);
        let orphan =
            self.received.iter().find(|(_, received)| is_it(received)).map(|(id, it)| (*id, it.stage));
        match orphan {
            // The client has retransmitted the message: PUBREC comes after those of the messages that it has
            // sent since.
            Some((packet_id, Stage::Orphan(_, true))) => {
                self.last_key += 1;
                self.qos2.push_back(Pending { key: Key(self.last_key), packet_id, outcome: Some(reason) });
            }
            Some((packet_id, _)) => self.conclude(packet_id, reason),
            None => {}
        }
    }

    /// The next acknowledgement to send.
    pub fn next_due(&mut self) -> Option<Due> {
        if let Some(reason) = self.qos1.front().and_then(|pending| pending.outcome) {
            self.open = self.open.saturating_sub(1);
            return self.qos1.pop_front().map(|pending| (kind::PUBACK, pending.packet_id, reason));
        }
        let reason = self.qos2.front()?.outcome?;
        let packet_id = self.qos2.pop_front()?.packet_id;
        self.conclude(packet_id, reason);
        Some((kind::PUBREC, packet_id, reason))
    }

    /// Handles PUBREL. Returns the reason code of PUBCOMP.
    pub fn release(&mut self, packet_id: u16) -> Reason {
        match self.received.get(&packet_id) {
            Some(Received { stage: Stage::AwaitsPubrel, .. }) => {
                self.forget(packet_id);
                Reason::SUCCESS
            }
            _ => Reason::PACKET_ID_NOT_FOUND,
        }
    }

    /// The connection has ended. A message of `QoS` 1 arrives again as a new message (MQTT 5 §4.3.2), one of
    /// `QoS` 2 with its packet id.
    pub fn detach(&mut self) {
        self.open = 0;
        self.qos1 = VecDeque::new();
        for Pending { key, packet_id, outcome } in std::mem::take(&mut self.qos2) {
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

    /// How many messages of this connection have no final acknowledgement (MQTT 5 §3.3.4).
    pub fn open(&self) -> usize {
        self.open
    }

    /// How many messages the network has not answered.
    pub fn unanswered(&self) -> usize {
        self.qos1.len() + self.qos2.len()
    }

    /// Whether the network has answered every PUBLISH that it took. An export before that omits the unanswered
    /// ones, and the next gateway would take the client's retransmission for a new message.
    pub fn is_settled(&self) -> bool {
        self.unanswered() == 0 && self.received.values().all(|received| received.stage == Stage::AwaitsPubrel)
    }

    /// The packet ids of `QoS` 2 messages that the network has taken, and for which no PUBREL has arrived.
    pub fn export(&self) -> Vec<u16> {
        let taken = self.received.iter().filter(|(_, received)| received.stage == Stage::AwaitsPubrel);
        taken.map(|(packet_id, _)| *packet_id).collect()
    }

    /// Records the final answer of the network to a message of `QoS` 2.
    fn conclude(&mut self, packet_id: u16, reason: Reason) {
        if reason.is_failure() {
            // MQTT 5 §4.3.3: the next PUBLISH with this packet id is a new message.
            self.forget(packet_id);
        } else if let Some(received) = self.received.get_mut(&packet_id) {
            received.stage = Stage::AwaitsPubrel;
        }
    }

    fn forget(&mut self, packet_id: u16) {
        if self.received.remove(&packet_id).is_some_and(|received| received.is_open) {
            self.open = self.open.saturating_sub(1);
        }
    }
}
