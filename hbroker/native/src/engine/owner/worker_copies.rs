//! Copies at `QoS` 0 for sessions of another worker.
//!
//! While a worker handles a receive batch, it collects the copies for the same sessions of another worker
//! into one handoff. So memory, a slot in the mailbox, and reading the packets are paid once for many
//! messages. The other worker reads them like the packets of a datagram.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::engine::Engine;
use crate::engine::metrics::load::MessageMetrics;
use crate::engine::transport::outbound::{Handoff, Outbound};
use crate::engine::transport::publish_batch::{BatchMetrics, PublishBatch};
use crate::link_id::SessionKey;
use crate::load::latency::Sample;
use crate::wire::{self, Body, DatagramView, PacketView};

/// A handoff has at most this number of bytes, unless it is a single message; so the memory of a mailbox
/// stays small.
pub const MOST_BYTES: usize = 16 * 1024;
/// How many of the last handoffs are searched for one to the same sessions.
const LOOK_BACK: usize = 16;

/// Messages, and the sessions that get a copy of each.
#[derive(Clone, Debug)]
pub struct Copies {
    /// Fields `packets`, end to end.
    packets: Vec<u8>,
    /// The number of messages.
    count: u32,
    sessions: SmallVec<[SessionKey; 4]>,
    /// The timed messages, by their positions.
    timed: Vec<(u32, Arc<Sample>)>,
}

impl Copies {
    /// Adds `count` messages: fields `packets` without numbers, end to end. `timed`: the timed ones among
    /// them, by their positions in `packets`.
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

    /// The timed messages among `count` messages from `first` on, by their positions among these.
    fn timed_of(&self, first: u32, count: u32) -> impl Iterator<Item = (u32, Arc<Sample>)> {
        let timed = self.timed.iter().filter(move |(position, _)| (first..first + count).contains(position));
        timed.map(move |(position, sample)| (position - first, Arc::clone(sample)))
    }
}

impl Outbound {
    /// The last handoff for a worker, if it is of copies for these sessions and has room for `bytes` more;
    /// else a new one. (An older handoff would not do, because handoffs arrive in the order in which they
    /// were queued.)
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
        // The fields of a datagram are `packets`, too.
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
