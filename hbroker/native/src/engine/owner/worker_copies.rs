//! Copies at `QoS` 0 for sessions of another worker.
//!
//! What a worker has for the same sessions of another one, while it works through what came in, goes there in one piece: memory, a place in
//! the mailbox, and a look at what the packets are, once for many messages. There they are read as those of a datagram are.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::engine::Engine;
use crate::engine::metrics::load::MessageMetrics;
use crate::engine::transport::outbound::{Handoff, Outbound};
use crate::engine::transport::publish_batch::{BatchMetrics, PublishBatch};
use crate::link_id::SessionKey;
use crate::load::latency::Sample;
use crate::wire::{self, Body, DatagramView, PacketView};

/// More bytes do not go together, but for one message: so what waits in a mailbox stays small.
pub const MOST_BYTES: usize = 16 * 1024;
/// Of the last handoffs so many are looked at for one that goes to the same sessions.
const LOOK_BACK: usize = 16;

/// Messages, and who gets a copy of each.
#[derive(Clone, Debug)]
pub struct Copies {
    /// Fields `packets`, end to end.
    packets: Vec<u8>,
    /// How many those are.
    count: u32,
    sessions: SmallVec<[SessionKey; 4]>,
    /// Those that are timed, by their places.
    timed: Vec<(u32, Arc<Sample>)>,
}

impl Copies {
    /// Adds so many messages, fields `packets` without numbers, end to end. `timed`: those that are, by their places among these.
    pub fn add(&mut self, packets: &[u8], count: u32, timed: impl Iterator<Item = (u32, Arc<Sample>)>) {
        if self.count > 0 {
            self.packets.reserve(MOST_BYTES.saturating_sub(self.packets.len()).max(packets.len()));
        }
        self.packets.extend_from_slice(packets);
        self.timed.extend(timed.map(|(position, sample)| (self.count + position, sample)));
        self.count += count;
    }

    /// Adds a message, of which this is the field `publish`.
    pub fn add_one(&mut self, field: &[u8], message_metrics: &MessageMetrics) {
        wire::put_packet(&mut self.packets, 0, 0, None, field);
        self.timed.extend(message_metrics.sample().map(|sample| (self.count, Arc::clone(sample))));
        self.count += 1;
    }

    /// Those that are timed of so many messages from a place on, by their places among these.
    fn timed_of(&self, first: u32, count: u32) -> impl Iterator<Item = (u32, Arc<Sample>)> {
        let timed = self.timed.iter().filter(move |(position, _)| (first..first + count).contains(position));
        timed.map(move |(position, sample)| (position - first, Arc::clone(sample)))
    }
}

impl Outbound {
    /// The last handoff for a worker, if it is of copies for these sessions and has room for so many bytes more; else a new one. (An earlier
    /// one would not do: what is given to a worker arrives in the order in which it was given.)
    pub fn copies_for(&mut self, worker: u8, sessions: &[SessionKey], bytes: usize) -> &mut Copies {
        let mut last = self.handoffs.iter().rev().take(LOOK_BACK).filter(|(to, _)| *to == worker);
        let is_open = last.next().is_some_and(|(_, handoff)| match handoff {
            Handoff::Copies(copies) => {
                *copies.sessions == *sessions && copies.packets.len() + bytes <= MOST_BYTES
            }
            _ => false,
        });
        if !is_open {
            let (packets, timed) = (Vec::new(), Vec::new());
            let copies = Copies { packets, count: 0, sessions: sessions.into(), timed };
            self.handoffs.push_back((worker, Handoff::Copies(copies)));
        }
        let mut last = self.handoffs.iter_mut().rev().filter(|(to, _)| *to == worker);
        match last.next() {
            Some((_, Handoff::Copies(copies))) => copies,
            _ => unreachable!("one that is open is the last for its worker"),
        }
    }
}

impl Engine {
    /// Offers another worker's copies to this worker's sessions.
    pub(in crate::engine) fn deliver_copies(&mut self, copies: &Copies) {
        // Fields of a datagram are one, too.
        let mut buffers = self.view_buffers.take().unwrap_or_default();
        let mut view = DatagramView::unread(&copies.packets, buffers.take());
        if view.read(&mut buffers.mask).is_ok() {
            let (mut rest, mut position) = (view.packets(), 0);
            while !rest.is_empty() {
                let count = match &PublishBatch::at(rest) {
                    Ok(batch) => {
                        let timed = copies.timed_of(position, batch.len() as u32).collect();
                        let batch_metrics = BatchMetrics::handed_over(batch, timed, &mut self.out);
                        copies
                            .sessions
                            .iter()
                            .for_each(|&session| self.out.offer_batch(session, batch, &batch_metrics));
                        batch.len()
                    }
                    Err(alone) => {
                        (position..).zip(rest.take(*alone).iter()).for_each(|(position, packet)| {
                            let sample = copies.timed_of(position, 1).next().map(|(_, sample)| sample);
                            self.deliver_copy(&packet, &copies.sessions, sample);
                        });
                        *alone
                    }
                };
                rest = rest.skip(count);
                position += count as u32;
            }
        }
        buffers.put_back(view.into_buffer());
        self.view_buffers = Some(buffers);
    }

    fn deliver_copy(
        &mut self,
        packet: &PacketView<'_>,
        sessions: &[SessionKey],
        sample: Option<Arc<Sample>>,
    ) {
        let Body::Publish(publish) = &packet.body else {
            return;
        };
        let message_metrics = MessageMetrics::handed_over(&mut self.out.load, publish, sample);
        for &session in sessions {
            self.out.offer_copy(session, &publish.field(), None, &message_metrics);
        }
    }
}
