//! Batches of `QoS` 1 and 2: consecutive deliveries of a link, with messages on one topic.
//!
//! They share what a batch of `QoS` 0 shares (`publish_batch`). They also share what only a queued message
//! costs: the memory for its bytes, the record of its tickets, and, for each allocation, one record in each
//! session that gets them (a [`QueuedBatch`]). Still, each message has its own delivery to each subscriber,
//! and is acknowledged separately. If a session does not take all messages of a [`QueuedBatch`] at once,
//! they are offered one by one. Another worker gets each [`QueuedBatch`] as it is. A message that is not plain, or
//! arrived out of order, takes the path of [`Engine::forward`].
//!
//! At a subscriber, messages of `QoS` 1 stay together until its application reads them
//! ([`Inbox::take_deliveries`](crate::engine::subscriber::inbox::Inbox::take_deliveries)).

use std::iter::once;

use smallvec::SmallVec;

use crate::Micros;
use crate::broken::Defect;
use crate::engine::fragmentation::fragments::chain_of;
use crate::engine::owner::distribution::Distribution;
use crate::engine::owner::forward::{Forwarder, wants};
use crate::engine::owner::forward_batch::is_open;
use crate::engine::owner::routes::Route;
use crate::engine::sessions::copy_blocks::copy_together;
use crate::engine::sessions::message::{QueuedBatch, QueuedMessage};
use crate::engine::sessions::target::{Target, Targets};
use crate::engine::transport::delivery_records::{Origin, Positions, TicketSpan};
use crate::engine::transport::outbound::{ByWorker, Outbound};
use crate::engine::transport::publish_batch::{BatchMetrics, PublishBatch};
use crate::engine::{Engine, Side};
use crate::link::receive::pubacks::Success;
use crate::link_id::{LinkId, SessionKey};
use crate::tables::subscriber::Overflow;
use crate::wire::{Body, Packets, PublishView};

/// The most messages of one batch: each has a position in a record.
const MOST: usize = 1_024;

impl Engine {
    /// Takes the batch at the beginning of these packets. Returns its number of messages.
    ///
    /// # Errors
    /// There is no batch, it is not plain, or a delivery before it is missing. Returns how many packets have
    /// to be handled one by one.
    pub(in crate::engine) fn take_deliveries(
        &mut self,
        now: Micros,
        id: LinkId,
        packets: Packets<'_, '_>,
    ) -> Result<usize, usize> {
        let length = batch_length(packets).max(1);
        let Some(batch) = &PublishBatch::of(packets.take(length)).filter(|_| length > 1) else {
            return Err(length);
        };
        let Some(delivery) = packets.sections().next().map(|section| section.first().delivery) else {
            return Err(length);
        };
        let may_have_spans = self.out.may_have_spans(batch);
        let Some(entry) = self.out.links.get_mut(id).filter(|entry| entry.link.is_next(delivery)) else {
            return Err(length);
        };
        let is_taken = match &mut self.side {
            Side::Node(forwarder) => {
                // A link's session becomes a publisher's with its first message, which [`Engine::forward`]
                // handles.
                let is_free =
                    entry.refusals.is_empty() && entry.allowance.is_none() && !entry.is_partly_throttled();
                let is_ready =
                    entry.inbound && is_free && batch.is_of(entry) && entry.may_publish(batch.topic(), false);
                let (source, origin) = (entry.subscriber, Origin { link: id, delivery });
                is_ready
                    && !may_have_spans
                    && forwarder.forward_deliveries(now, batch, origin, source, &mut self.out)
            }
            Side::Client(client) => {
                let is_at_once = batch.head().is_some_and(|publish| publish.qos == 1);
                is_at_once && client.inbox.take_deliveries(batch, (id, delivery), &mut self.out.counters)
            }
        };
        if !is_taken {
            return Err(length);
        }
        if let Some(entry) = self.out.links.get_mut(id) {
            entry.link.receive_next(length as u64);
        }
        if matches!(self.side, Side::Node(_)) {
            self.settle_pending(now);
        }
        Ok(length)
    }
}

impl Forwarder {
    /// Takes the messages of a batch over, as [`Forwarder::forward`] does each. The tickets that the caller
    /// held meanwhile go to `out.pending`. False: the messages have to be forwarded one by one.
    fn forward_deliveries(
        &mut self,
        now: Micros,
        batch: &PublishBatch<'_, '_>,
        origin: Origin,
        source: Option<SessionKey>,
        out: &mut Outbound,
    ) -> bool {
        let (worker, count) = (self.worker(), batch.len() as u64);
        let Self { routes, window, distribution, workspace_rates, .. } = self;
        let Some(first) = batch.first() else {
            return false;
        };
        let Ok(route) = &routes.find(now, first.topic) else {
            return false;
        };
        let has_room =
            has_room(worker, &first, route, out) && workspace_rates.take(now, first.topic, batch.len());
        if !has_room || first.qos == 2 && !window.all_first_seen(now, first.publisher, first.sequence, count)
        {
            return false;
        }
        out.counters.messages_in += count;
        let batch_metrics = BatchMetrics::of(batch, now, route.topic_slot, &mut out.load);
        let mut subscribers =
            route.subscribers.iter().filter(|subscriber| wants(subscriber, source)).peekable();
        if subscribers.peek().is_none() {
            out.acknowledge(origin, count, Success::Unmatched);
            return true;
        }
        let is_early = first.ack_queued || Defect::AcknowledgesEarly.is_present();
        let id = (first.qos == 2).then_some((first.publisher, first.sequence));
        let span = (!is_early).then(|| distribution.open(origin, count as u16, id, first.topic));
        let (mut kept, mut here, mut elsewhere) = (Vec::new(), Targets::new(), ByWorker::new());
        for subscriber in subscribers {
            let target = Target { qos: subscriber.qos.min(first.qos), ..subscriber.into() };
            let home = target.session.worker();
            if home == worker && target.qos == 0 {
                offer_copies(batch, &batch_metrics, target.session, out);
                continue;
            }
            if kept.is_empty() {
                kept = keep(batch, &batch_metrics, origin.link, span);
            }
            if home == worker {
                here.push(target);
            } else {
                elsewhere.add(home, target);
            }
        }
        kept.iter().for_each(|queued_batch| offer(now, queued_batch, &here, distribution, out));
        for (home, targets) in elsewhere.drain() {
            for queued_batch in &kept {
                distribution.hand_over(home, queued_batch.clone(), targets.clone(), out);
            }
        }
        if is_early {
            out.acknowledge(origin, count, Success::Done);
        }
        out.pending.tickets.extend(span);
        true
    }
}

/// Whether all messages of a batch with this first one may be taken over, and every subscriber is offered all of them.
#[inline]
fn has_room(worker: u8, first: &PublishView<'_>, route: &Route<'_>, out: &Outbound) -> bool {
    let sessions = route.subscribers.iter().map(|subscriber| subscriber.session);
    let waits_for_the_disk = first.ack_queued && out.waits_for_the_disk(worker, sessions);
    is_open(route)
        && !(route.recovering || waits_for_the_disk || out.queues_are_full() || out.store_is_full())
        && out.full_sessions.among(route.subscribers.iter().copied()).next().is_none()
}

/// The messages of a batch for a session that gets them at `QoS` 1 or 2. `source` is the link that they came
/// over, `span` their tickets.
fn keep(
    batch: &PublishBatch<'_, '_>,
    batch_metrics: &BatchMetrics,
    source: LinkId,
    span: Option<TicketSpan>,
) -> Vec<QueuedBatch> {
    let Some(publish) = batch.head() else {
        return Vec::new();
    };
    let chain = chain_of(0, publish.topic.as_bytes());
    let copies = copy_together(batch.messages().map(|(field, _)| field), Positions::MOST as usize);
    let mut position = 0;
    let consign = |(field, count)| {
        let (message_metrics, timed) = batch_metrics.of_some(batch, position, count);
        let queued_message = QueuedMessage {
            field,
            chain,
            qos: publish.qos,
            meant_for: None,
            overflow: Overflow::default(),
            group: None,
            ack_queued: publish.ack_queued,
            source: Some(source),
            ticket: span.map(|span| span.part(position as u16, count as u16).first),
            message_metrics,
            expires: Micros::MAX,
            number: 0,
            stored: 0,
            was_stored: false,
        };
        position += count;
        QueuedBatch { queued_message, count, timed }
    };
    copies.into_iter().map(consign).collect()
}

/// Offers sessions messages of a batch, and adds the copies that hold tickets. Sessions that do not take all of
/// them at once are offered one message after the other, so that each is stored once for all these sessions.
fn offer(
    now: Micros,
    queued_batch: &QueuedBatch,
    targets: &Targets,
    distribution: &mut Distribution,
    out: &mut Outbound,
) {
    let mut one_by_one: SmallVec<[&Target; 4]> = SmallVec::new();
    for target in targets {
        match out.offer_all(now, queued_batch, target) {
            Some(holds_ticket) => {
                let span = queued_batch.tickets(queued_batch.positions()).filter(|_| holds_ticket);
                span.for_each(|span| distribution.add_copies(span, 1));
            }
            None => one_by_one.push(target),
        }
    }
    if one_by_one.is_empty() {
        return;
    }
    for queued_message in queued_batch.clone().into_queued_messages(queued_batch.positions()) {
        for &target in &one_by_one {
            distribution.keep(now, queued_message.clone(), target.clone(), out);
        }
    }
}

/// Offers a session the messages of a batch at `QoS` 0.
fn offer_copies(
    batch: &PublishBatch<'_, '_>,
    batch_metrics: &BatchMetrics,
    session: SessionKey,
    out: &mut Outbound,
) {
    for ((field, _), message_metrics) in batch.messages().zip(batch_metrics.metrics_of_each(batch)) {
        out.offer_copy(session, field, None, &message_metrics);
    }
}

/// The number of plain messages of one topic with consecutive deliveries at the beginning of these packets.
fn batch_length(packets: Packets<'_, '_>) -> usize {
    let mut sections = packets.take(MOST).sections();
    let Some(section) = sections.next() else {
        return 0;
    };
    let head = section.first();
    let Body::Publish(first) = &head.body else {
        return 0;
    };
    let continues = |publish: &PublishView<'_>| {
        publish.is_simple()
            && (publish.qos, publish.ack_queued) == (first.qos, first.ack_queued)
            && (first.qos == 1 || first.qos == 2 && publish.publisher == first.publisher)
            && publish.topic == first.topic
    };
    let mut length = 0;
    for section in once(section).chain(sections) {
        let packet = section.first();
        let is_next = packet.delivery == head.delivery.wrapping_add(length as u64);
        let continues = matches!(&packet.body, Body::Publish(publish) if continues(publish));
        if !(section.is_reliable() && is_next && continues && packet.meant_for().is_none()) {
            break;
        }
        let count = if first.qos == 1 {
            section.len()
        } else {
            let due = (0..).map(|position| first.sequence.wrapping_add(length as u64 + position));
            section.sequences().zip(due).take_while(|(sequence, due)| sequence == due).count()
        };
        length += count;
        if count < section.len() {
            break;
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire;
    use crate::wire::{DatagramView, PublishOut};

    #[test]
    fn a_batch_ends_where_something_is_different() {
        let length = |change: fn(usize, &mut PublishOut<'_>, &mut u64)| {
            let mut datagram = Vec::new();
            for position in 0..6 {
                let mut out = PublishOut {
                    topic: "t",
                    qos: 2,
                    publisher: 7,
                    sequence: 40 + position as u64,
                    ..PublishOut::default()
                };
                let mut delivery = 10 + position as u64;
                change(position, &mut out, &mut delivery);
                let mut field = Vec::new();
                wire::put_publish_field(&mut field, &out);
                wire::put_packet(&mut datagram, delivery, 0, None, &field);
            }
            batch_length(DatagramView::parse(&datagram).unwrap().packets())
        };
        assert_eq!(length(|_, _, _| {}), 6);
        assert_eq!(length(|_, out, _| out.qos = 1), 6);
        assert_eq!(length(|_, out, _| out.qos = 3), 0);
        assert_eq!(length(|_, out, delivery| (out.qos, *delivery) = (0, 0)), 0);
        assert_eq!(length(|position, _, delivery| *delivery += u64::from(position > 3)), 4);
        assert_eq!(length(|position, out, _| out.sequence += u64::from(position > 3)), 4);
        assert_eq!(length(|position, out, _| (out.qos, out.sequence) = (1, 7 * position as u64)), 6);
        assert_eq!(length(|position, out, _| out.qos -= u8::from(position > 2)), 3);
        assert_eq!(length(|position, out, _| out.ack_queued = position > 2), 3);
        assert_eq!(length(|position, out, _| out.retain = position > 1), 2);
        assert_eq!(length(|position, out, _| out.expiry_s = (position > 1).then_some(9)), 2);
        assert_eq!(length(|position, out, _| out.topic = if position > 0 { "u" } else { "t" }), 1);
    }
}
