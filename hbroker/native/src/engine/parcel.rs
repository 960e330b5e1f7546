//! A message of `QoS` 1 or 2, or a part of one, on its way to one session.

use std::sync::Arc;

use bytes::Bytes;

use crate::Micros;
use crate::engine::ledger::Ticket;
use crate::engine::load::Docket;
use crate::engine::outlet::Target;
use crate::engine::parts::chain_of;
use crate::tables::match_set::Overflow;
use crate::wire::{Body, PacketView, PublishView};

#[derive(Clone, Debug)]
pub struct Parcel {
    /// The field `publish`, as it came.
    pub field: Bytes,
    /// Which messages it keeps its order with.
    pub chain: u64,
    /// What the session gets it at.
    pub qos: u8,
    /// As in a packet.
    pub retained_for: Option<u64>,
    pub overflow: Overflow,
    /// The shared group that it came for.
    pub group: Option<Arc<str>>,
    /// Holds its publisher's PUBACK back.
    pub ticket: Option<Ticket>,
    /// What is counted when it leaves.
    pub docket: Docket,
    /// From then on it is worth nothing; `Micros::MAX`: it never expires.
    pub expires: Micros,
}

impl Parcel {
    /// For nobody yet. `field`: the message's own.
    pub fn new(publish: &PublishView<'_>, field: Bytes) -> Self {
        Self {
            field,
            // §7.6: a session gets a topic's messages in the order in which they were taken over, whoever published them.
            chain: chain_of(0, publish.topic.as_bytes()),
            qos: publish.qos,
            retained_for: None,
            overflow: Overflow::default(),
            group: None,
            ticket: None,
            docket: Docket::of(publish),
            expires: publish.expires(),
        }
    }

    /// Given to its session's link: it does not expire any more, for the subscriber may have it (§7.8).
    pub fn launched(self) -> Self {
        Self { expires: Micros::MAX, ..self }
    }

    /// A field was checked when it came in, so there is one.
    pub fn topic(&self) -> Option<&str> {
        publish_of(&self.field).map(|publish| publish.topic)
    }

    /// For this target.
    pub fn addressed(self, target: Target) -> Self {
        let Target { qos, overflow, group, .. } = target;
        Self { qos, overflow, group, ..self }
    }
}

/// The message in a field `publish`.
pub fn publish_of(field: &[u8]) -> Option<PublishView<'_>> {
    match PacketView::from_raw(field).ok()?.body {
        Body::Publish(publish) => Some(publish),
        _ => None,
    }
}
