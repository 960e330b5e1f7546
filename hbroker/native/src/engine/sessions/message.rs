//! A message of `QoS` 1 or 2, or a fragment of one, for one session; and several of them together.

use std::sync::Arc;

use bytes::Bytes;

use crate::Micros;
use crate::engine::fragmentation::fragments::chain_of;
use crate::engine::metrics::message_metrics::MessageMetrics;
use crate::engine::sessions::target::Target;
use crate::engine::transport::delivery_records::{Positions, Ticket, TicketSpan};
use crate::link::receive::ranges::RangeSet;
use crate::link_id::LinkId;
use crate::load::Load;
use crate::load::latency::Sample;
use crate::tables::subscriber::Overflow;
use crate::topic::Region;
use crate::wire::{self, MeantFor, PublishView, publish_of};

#[derive(Clone, Debug)]
pub struct QueuedMessage {
    /// The field `publish`, as received.
    pub field: Bytes,
    /// The messages of one chain keep their order.
    pub chain: u64,
    /// The `QoS` at which the session gets it.
    pub qos: u8,
    /// As in a packet.
    pub meant_for: Option<MeantFor>,
    pub overflow: Overflow,
    /// The shared group through which the session gets it.
    pub group: Option<Arc<str>>,
    /// Only the store holds its ticket; a session that counts as connected does not (`ack_queued`, §7.3).
    pub ack_queued: bool,
    /// The link to this node over which it was published; `None`: there is no link that could be held back.
    pub source: Option<LinkId>,
    /// Holds its publisher's PUBACK back.
    pub ticket: Option<Ticket>,
    /// What is counted when it is sent.
    pub message_metrics: MessageMetrics,
    /// When it expires; `Micros::MAX`: never.
    pub expires: Micros,
    /// Its number in the order in which its session accepted messages, from 1; 0: no session has accepted it
    /// yet.
    pub number: u64,
    /// Its number in its session's stored queue; 0: it is not stored.
    pub stored: u64,
    /// It was stored for another session: no publisher would send it again, so it is stored for this one, too.
    pub was_stored: bool,
}

impl QueuedMessage {
    /// A message for no session yet. `field` is the message's own field.
    pub fn new(publish: &PublishView<'_>, field: Bytes) -> Self {
        Self {
            field,
            // §7.6: a session gets the messages of a topic in the order in which the owner took them over,
            // whichever publisher they are from.
            chain: chain_of(0, publish.topic.as_bytes()),
            qos: publish.qos,
            meant_for: None,
            overflow: Overflow::default(),
            group: None,
            ack_queued: publish.ack_queued,
            source: None,
            ticket: None,
            message_metrics: MessageMetrics::of(publish),
            expires: publish.expires(),
            number: 0,
            stored: 0,
            was_stored: false,
        }
    }

    /// The message was given to its session's link. It does not expire any more, because the subscriber may
    /// have it (§7.8).
    pub fn launched(self) -> Self {
        Self { expires: Micros::MAX, ..self }
    }

    /// A message from a stored queue, as its session has it. `base`: what is added to its number there. `launched`: the
    /// numbers there of messages that were given to a link, and so do not expire.
    pub fn in_session(self, base: u64, launched: &RangeSet) -> Self {
        let expires = if launched.contains(self.stored) { Micros::MAX } else { self.expires };
        Self { number: base + self.stored, expires, ..self }
    }

    /// The message for another session than the one that had it.
    pub fn for_another(self) -> Self {
        Self { was_stored: self.was_stored || self.stored > 0, stored: 0, ..self }
    }

    /// The number in the stored queue of the message that is `position` messages further on.
    pub fn stored_at(&self, position: u32) -> u64 {
        if self.stored > 0 { self.stored + u64::from(position) } else { 0 }
    }

    /// Never `None`, because the field was checked when it was received.
    pub fn topic(&self) -> Option<&str> {
        publish_of(&self.field).map(|publish| publish.topic)
    }

    /// Whether its topic is in this region.
    pub fn is_of(&self, region: Region<'_>) -> bool {
        self.topic().is_some_and(|topic| region.holds(topic))
    }

    /// The message for this target. A copy at `QoS` 0 holds no ticket.
    pub fn addressed(self, target: Target) -> Self {
        let meant_for = target.meant_for();
        let Target { qos, overflow, group, .. } = target;
        let ticket = self.ticket.filter(|_| qos > 0);
        Self { qos, meant_for, overflow, group, ticket, ..self }
    }
}

/// What is known of a message that was taken over, in addition to its bytes.
pub struct MessageOrigin {
    /// The link over which it was published.
    pub source: Option<LinkId>,
    /// Holds its publisher's PUBACK back.
    pub ticket: Option<Ticket>,
    /// What is counted when it is sent.
    pub message_metrics: MessageMetrics,
}

/// Queued messages that differ only in their bytes, consecutive tickets and metrics.
#[derive(Clone, Debug)]
pub struct QueuedBatch {
    /// The first message, with the bytes of all messages end to end. The numbers of the others follow its
    /// numbers. If there are several, its metrics are those of all.
    pub queued_message: QueuedMessage,
    pub count: u32,
    /// If there are several: the timed ones, by their positions.
    pub timed: Vec<(u32, Arc<Sample>)>,
}

impl From<QueuedMessage> for QueuedBatch {
    fn from(queued_message: QueuedMessage) -> Self {
        Self { queued_message, count: 1, timed: Vec::new() }
    }
}

impl QueuedBatch {
    /// The positions of all messages.
    pub fn positions(&self) -> Positions {
        Positions::all(self.count)
    }

    /// Another worker took them over.
    pub fn changes_hands(&mut self, load: &mut Option<Box<Load>>) {
        let field = &self.queued_message.field[..];
        // The field of a single message may be in several pieces; of several messages, each field is whole.
        let first = if self.count > 1 { wire::first_field(field, &[]) } else { field };
        self.queued_message.message_metrics.changes_hands(load, first);
    }

    /// The bytes of the messages at these positions.
    pub fn bytes(&self, positions: Positions) -> usize {
        if positions.len() == self.count {
            return self.queued_message.field.len();
        }
        let mut rest = &self.queued_message.field[..];
        let lengths = (0..self.count).map(|position| {
            let field = wire::first_field(rest, &[]);
            rest = &rest[field.len()..];
            if positions.contains(position) { field.len() } else { 0 }
        });
        lengths.sum()
    }

    /// The tickets of the messages at these positions.
    pub fn tickets(&self, positions: Positions) -> impl Iterator<Item = TicketSpan> + use<> {
        let all = self.queued_message.ticket.map(|first| TicketSpan { first, count: self.count as u16 });
        let part = move |(first, count)| all.map(|all| all.part(first as u16, count as u16));
        positions.runs().map_while(part)
    }

    /// The messages at these positions, each by itself.
    pub fn into_queued_messages(self, positions: Positions) -> Vec<QueuedMessage> {
        let Self { queued_message, count, timed } = self;
        if count == 1 {
            return vec![queued_message];
        }
        let tickets = queued_message.ticket.map(|first| TicketSpan { first, count: count as u16 });
        let mut rest = queued_message.field.clone();
        let queued_messages = (0..count).map(|position| {
            let field = rest.split_to(wire::first_field(&rest, &[]).len());
            let sample = timed.iter().find(|(at, _)| *at == position).map(|(_, sample)| Arc::clone(sample));
            let ticket = tickets.map(|tickets| tickets.part(position as u16, 1).first);
            let (message_metrics, number) = (
                queued_message.message_metrics.of_one(&field, sample),
                queued_message.number + u64::from(position),
            );
            let stored = queued_message.stored_at(position);
            let one = queued_message.clone();
            (position, QueuedMessage { message_metrics, field, ticket, number, stored, ..one })
        });
        queued_messages
            .filter_map(|(position, queued_message)| positions.contains(position).then_some(queued_message))
            .collect()
    }
}

impl QueuedBatch {
    /// The numbers of the messages at these positions, as ranges from the first to the last number.
    pub fn numbers(&self, positions: Positions) -> impl Iterator<Item = (u64, u64)> + use<> {
        let number = self.queued_message.number;
        positions.runs().map(move |(first, count)| {
            let first = number + u64::from(first);
            (first, first + u64::from(count) - 1)
        })
    }
}
