//! A message of `QoS` 1 or 2, or a fragment of one, for one session; and several of them together.
//!
//! Copies of short messages share an allocation ([`CopyBlocks`]). It is freed when the last message in it is.
//! So a block is small: if single messages survive in many
//! blocks, they keep little more memory than credit and the bounds of queues allow for that number of
//! messages (§9). A block has room for the messages of one datagram of the size that any path carries.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use crate::Micros;
use crate::engine::fragmentation::fragments::chain_of;
use crate::engine::metrics::load::MessageMetrics;
use crate::engine::transport::delivery_records::{Positions, Span, Ticket};
use crate::engine::transport::outbound::Target;
use crate::link::receive::ranges::RangeSet;
use crate::link_id::LinkId;
use crate::load::Load;
use crate::load::latency::Sample;
use crate::tables::subscriber::Overflow;
use crate::topic::Region;
use crate::wire::{self, Body, MeantFor, PacketView, PublishView};

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
    pub fn tickets(&self, positions: Positions) -> impl Iterator<Item = Span> + use<> {
        let all = self.queued_message.ticket.map(|first| Span { first, count: self.count as u16 });
        let part = move |(first, count)| all.map(|all| all.part(first as u16, count as u16));
        positions.runs().map_while(part)
    }

    /// The messages at these positions, each by itself.
    pub fn into_queued_messages(self, positions: Positions) -> Vec<QueuedMessage> {
        let Self { queued_message, count, timed } = self;
        if count == 1 {
            return vec![queued_message];
        }
        let tickets = queued_message.ticket.map(|first| Span { first, count: count as u16 });
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

/// The message in a field `publish`.
pub fn publish_of(field: &[u8]) -> Option<PublishView<'_>> {
    match PacketView::from_raw(field).ok()?.body {
        Body::Publish(publish) => Some(publish),
        _ => None,
    }
}

const BLOCK: usize = crate::link::mtu::BASE;
/// Longer messages have an allocation of their own.
const LONGEST: usize = BLOCK / 2;

/// Copies of messages, some of them end to end in one allocation, each with the number of messages.
pub type Copies = SmallVec<[(Bytes, u32); 2]>;

/// Makes copies. It keeps a block that is not full yet for the next copy. Gathered messages are end to end in
/// it, until they are taken.
#[derive(Default)]
pub struct CopyBlocks {
    block: BytesMut,
}

impl CopyBlocks {
    /// A copy of one message. No message may be gathered at this time.
    pub fn copy(&mut self, message: &[u8]) -> Bytes {
        debug_assert!(self.block.is_empty());
        if message.len() > LONGEST {
            return Bytes::copy_from_slice(message);
        }
        self.gather(message);
        self.take()
    }

    /// Appends a copy of a message to the gathered ones. False: the block has no room for it, and the
    /// gathered ones have to be taken first.
    pub fn gather(&mut self, message: &[u8]) -> bool {
        if self.block.capacity() - self.block.len() < message.len() {
            if !self.block.is_empty() {
                return false;
            }
            self.block = BytesMut::with_capacity(if message.len() > LONGEST { message.len() } else { BLOCK });
        }
        self.block.extend_from_slice(message);
        true
    }

    /// The number of gathered bytes.
    pub fn gathered_bytes(&self) -> usize {
        self.block.len()
    }

    /// Takes the gathered messages.
    pub fn take(&mut self) -> Bytes {
        self.block.split().freeze()
    }
}

/// Copies of messages that arrived together, in their order. At most `most` messages, and as many as fit a
/// block, are end to end in an allocation of their own.
pub fn copy_together<'m>(messages: impl Iterator<Item = &'m [u8]> + Clone, most: usize) -> Copies {
    let (mut copies, mut left) = (Copies::new(), messages);
    loop {
        let (mut bytes, mut count) = (0, 0);
        for message in left.clone().take(most) {
            if count > 0 && bytes + message.len() > BLOCK {
                break;
            }
            bytes += message.len();
            count += 1;
        }
        if count == 0 {
            return copies;
        }
        let mut block = Vec::with_capacity(bytes);
        left.by_ref().take(count).for_each(|message| block.extend_from_slice(message));
        copies.push((block.into(), count as u32));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    /// For each two consecutive copies, whether they share a block.
    fn shared(copies: &[Bytes]) -> Vec<bool> {
        copies.windows(2).map(|pair| pair[0].as_ptr_range().end == pair[1].as_ptr()).collect()
    }

    #[test]
    fn copies_share_a_block_until_it_is_full() {
        let sizes = [100, 1, 500, 400, 200, 512, 601, 5_000, 0, 400];
        let messages: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![size as u8; size]).collect();
        let mut copy_blocks = CopyBlocks::default();
        let copies: Vec<Bytes> = messages.iter().map(|message| copy_blocks.copy(message)).collect();
        assert!(copies.iter().eq(&messages));
        assert_eq!(shared(&copies)[..5], [true, true, true, false, true]);
    }

    #[test]
    fn what_is_gathered_lies_end_to_end_until_it_is_taken() {
        let mut copy_blocks = CopyBlocks::default();
        let (gathered, all): (Vec<bool>, Vec<u8>) =
            (0..40).map(|at| (copy_blocks.gather(&[at; 100]), at)).unzip();
        let room = gathered.iter().take_while(|is_taken| **is_taken).count();
        assert_eq!((room, copy_blocks.gathered_bytes()), (BLOCK / 100, BLOCK / 100 * 100));
        assert!(gathered[room..].iter().all(|is_taken| !is_taken), "it is to be taken first");
        assert_eq!(copy_blocks.take(), all[..room].iter().flat_map(|&at| [at; 100]).collect::<Vec<_>>());
        assert_eq!((copy_blocks.gathered_bytes(), copy_blocks.take().len()), (0, 0));
        assert!(
            copy_blocks.gather(&[1; 5_000]) && !copy_blocks.gather(&[2]),
            "a long one has a block of its own"
        );
        assert_eq!(copy_blocks.take(), [1; 5_000][..]);
        assert_eq!(copy_blocks.copy(&[3; 10]), [3; 10][..]);
    }

    #[test]
    fn what_comes_together_lies_end_to_end_as_far_as_a_block_holds_it() {
        let sizes = [100, 1, 500, 400, 200, 512, 601, 5_000, 0, 400];
        let messages: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![size as u8; size]).collect();
        for (most, counts) in [(64, &[4, 2, 1, 1, 2][..]), (3, &[3, 3, 1, 1, 2])] {
            let copies = copy_together(messages.iter().map(|message| &message[..]), most);
            assert_eq!(copies.iter().map(|(_, count)| *count).collect::<Vec<_>>(), counts);
            let mut left = messages.iter();
            for (bytes, count) in &copies {
                let expected: Vec<&[u8]> =
                    left.by_ref().take(*count as usize).map(|message| &message[..]).collect();
                assert_eq!(bytes, &expected.concat());
            }
        }
        assert!(copy_together(std::iter::empty(), 64).is_empty());
    }
}
