//! Takes over batches of messages (`publish_batch`) as a whole, and copies that another worker took over.
//!
//! A batch gets the same result as [`Engine::forward`] and [`Engine::read`] for each message. A message that is not
//! plain (retained, with an expiry, a fragment, for a shared group) is handled by these.

use std::sync::Arc;

use crate::Micros;
use crate::engine::metrics::counters::Drop;
use crate::engine::metrics::message_metrics::MessageMetrics;
use crate::engine::owner::forward::{Forwarder, wants};
use crate::engine::owner::routes::Route;
use crate::engine::transport::copy_batch::{CopyBatch, MOST_BYTES, timed_of};
use crate::engine::transport::links::Entry;
use crate::engine::transport::outbound::{ByWorker, Handoff, Outbound};
use crate::engine::transport::publish_batch::{BatchMetrics, PublishBatch};
use crate::engine::{Engine, Side};
use crate::link::Queued;
use crate::link_id::{LinkId, SessionKey};
use crate::load::latency::Sample;
use crate::wire::{Body, DatagramView, PacketView, Packets};

/// How many of the last handoffs are searched for one to the same sessions.
const LOOK_BACK: usize = 16;

impl Engine {
    /// Takes the batch at the beginning of these packets. Returns its number of messages.
    ///
    /// # Errors
    /// None is taken: returns how many packets have to be handled one by one.
    pub(in crate::engine) fn take_batch(
        &mut self,
        now: Micros,
        id: LinkId,
        packets: Packets<'_, '_>,
    ) -> Result<usize, usize> {
        // `batch` is borrowed from here on. If it were moved in small pieces, copying it in large ones would
        // have to wait for them.
        let batch = &PublishBatch::at(packets)?;
        let is_taken = match &mut self.side {
            Side::Node(forwarder) => {
                // A link's session becomes a publisher's with its first message, which [`Engine::forward`]
                // handles.
                let entry = self.out.links.get_mut(id).filter(|entry| entry.inbound && batch.is_of(entry));
                let source = entry
                    .and_then(|entry| entry.may_publish(batch.topic(), false).then_some(entry.subscriber));
                source.is_some_and(|source| {
                    !self.out.may_have_spans(batch)
                        && forwarder.forward_batch(now, batch, source, &mut self.out)
                })
            }
            Side::Client(client) => {
                client.inbox.take_batch(batch, &mut self.out.counters);
                true
            }
        };
        if is_taken { Ok(batch.len()) } else { Err(batch.len()) }
    }
}

impl Forwarder {
    /// Takes the messages of a batch over, and offers them to all subscribers. False: they have to be
    /// forwarded one by one.
    fn forward_batch(
        &mut self,
        now: Micros,
        batch: &PublishBatch<'_, '_>,
        source: Option<SessionKey>,
        out: &mut Outbound,
    ) -> bool {
        let worker = self.worker();
        let Ok(route) = &self.routes.find(now, batch.topic()) else {
            return false;
        };
        if !is_open(route) || !self.workspace_rates.take(now, batch.topic(), batch.len()) {
            return false;
        }
        out.counters.messages_in += batch.len() as u64;
        let batch_metrics = BatchMetrics::of(batch, now, route.topic_slot, &mut out.load);
        let mut elsewhere = ByWorker::new();
        for subscriber in route.subscribers.iter().filter(|subscriber| wants(subscriber, source)) {
            let session = subscriber.session;
            if session.worker() == worker {
                out.offer_batch(session, batch, &batch_metrics);
            } else {
                elsewhere.add(session.worker(), session);
            }
        }
        for (other, sessions) in elsewhere.drain() {
            out.hand_batch_over(other, &sessions, batch, &batch_metrics);
        }
        true
    }
}

impl Outbound {
    /// Whether a message of a batch may have spans: such messages are forwarded one by one.
    pub(in crate::engine) fn may_have_spans(&self, batch: &PublishBatch<'_, '_>) -> bool {
        self.spans.is_some() && batch.views().any(|publish| publish.has_properties)
    }

    /// Hands the messages of a batch to another worker, which offers them to its sessions.
    fn hand_batch_over(
        &mut self,
        worker: u8,
        sessions: &[SessionKey],
        batch: &PublishBatch<'_, '_>,
        batch_metrics: &BatchMetrics,
    ) {
        let (count, bytes) = (batch.len() as u32, batch.bytes.len());
        if bytes <= MOST_BYTES {
            return self.copies_for(worker, sessions, bytes).add(
                batch.bytes,
                count,
                timed_of(&batch_metrics.timed, 0, count),
            );
        }
        for (publish, message_metrics) in batch.views().zip(batch_metrics.metrics_of_each(batch)) {
            let field = publish.field();
            self.copies_for(worker, sessions, field.len()).add_one(&field, &message_metrics);
        }
    }

    /// Offers a session the messages of a batch, as [`Outbound::offer_copy`] does each.
    pub(in crate::engine) fn offer_batch(
        &mut self,
        key: SessionKey,
        batch: &PublishBatch<'_, '_>,
        batch_metrics: &BatchMetrics,
    ) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        session.accept_copies(batch.len() as u64);
        let Some((id, entry)) = session.link.and_then(|id| Some((id, self.links.get_mut(id)?))) else {
            session.refuse_copies(Drop::Offline, batch.len() as u64);
            return self.counters.drop_many(Drop::Offline, batch.len() as u64);
        };
        let (copies, bytes) = entry.queue_publishes(batch, batch_metrics);
        self.links.mark_dirty(id);
        self.counters.messages_out += copies;
        let refused = batch.len() as u64 - copies;
        session.refuse_copies(Drop::QueueFull, refused);
        self.counters.drop_many(Drop::QueueFull, refused);
        if let Some(load) = &mut self.load {
            load.topics.count_out(batch_metrics.topic_slot, copies as u32, bytes);
        }
    }
}

impl Entry {
    /// Queues the messages of a batch, or as many as there is room for. Returns their number, and the bytes
    /// of their payloads.
    fn queue_publishes(&mut self, batch: &PublishBatch<'_, '_>, batch_metrics: &BatchMetrics) -> (u64, u64) {
        let (queued, _) = self.link.passed();
        if self.link.queue_encoded(batch.bytes, batch.packet_runs()).is_ok() {
            for (position, sample) in &batch_metrics.timed {
                self.timed.add(Queued::Unreliable(queued + 1 + u64::from(*position)), sample);
            }
            return (batch.len() as u64, batch_metrics.payload);
        }
        let taken =
            batch.views().take_while(|publish| self.link.queue_unreliable(&publish.field(), None).is_ok());
        taken.fold((0, 0), |(copies, bytes), publish| (copies + 1, bytes + publish.payload.len() as u64))
    }
}

/// Whether any client may publish on this topic, and every session gets all messages.
pub(in crate::engine) fn is_open(route: &Route<'_>) -> bool {
    !route.reserved && route.groups.iter().next().is_none()
}

impl Outbound {
    /// The last handoff for a worker, if it is of copies for these sessions and has room for `bytes` more;
    /// else a new one. (An older handoff would not do, because handoffs arrive in the order in which they
    /// were queued.)
    pub fn copies_for(&mut self, worker: u8, sessions: &[SessionKey], bytes: usize) -> &mut CopyBatch {
        let mut last = self.handoffs.iter().rev().take(LOOK_BACK).filter(|(to, _)| *to == worker);
        let is_open = last.next().is_some_and(|(_, handoff)| match handoff {
            Handoff::Copies(copies) => {
                *copies.sessions == *sessions && copies.packets.len() + bytes <= MOST_BYTES
            }
            _ => false,
        });
        if !is_open {
            let (packets, timed) = (Vec::new(), Vec::new());
            let copies = CopyBatch { packets, count: 0, sessions: sessions.into(), timed };
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
    pub(in crate::engine) fn deliver_copies(&mut self, copies: &CopyBatch) {
        // The fields of a datagram are `packets`, too.
        let mut buffers = self.view_buffers.take().unwrap_or_default();
        let mut view = DatagramView::unread(&copies.packets, buffers.take());
        if view.read(&mut buffers.mask).is_ok() {
            let (mut rest, mut position) = (view.packets(), 0);
            while !rest.is_empty() {
                let count = match &PublishBatch::at(rest) {
                    Ok(batch) => {
                        let timed = timed_of(&copies.timed, position, batch.len() as u32).collect();
                        let batch_metrics = BatchMetrics::handed_over(batch, timed, &mut self.out.load);
                        copies
                            .sessions
                            .iter()
                            .for_each(|&session| self.out.offer_batch(session, batch, &batch_metrics));
                        batch.len()
                    }
                    Err(alone) => {
                        (position..).zip(rest.take(*alone).iter()).for_each(|(position, packet)| {
                            let sample =
                                timed_of(&copies.timed, position, 1).next().map(|(_, sample)| sample);
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
