//! Runs of `QoS` 1 and 2: deliveries that follow one another over a link, with messages on one topic.
//!
//! They share what a run of `QoS` 0 shares (`run`), and what only a message costs that is kept: the memory for its bytes, the record
//! of what it waits for, and, of each piece of memory that they lie in, a record with each session that gets them (a
//! [`Consignment`]). Each has its own delivery to each subscriber all the same, and is acknowledged for itself. Where a link does not take them all at once
//! they go on one by one. To the sessions of another worker each consignment goes as it is. Whatever is not plain, or came out of turn, goes by [`Engine::forward`].
//!
//! At a subscriber those of `QoS` 1 stay together until its application reads them ([`Inbox::take_deliveries`](crate::engine::subscriber::inbox::Inbox::take_deliveries)).

use std::iter::once;

use crate::Micros;
use crate::broken::Defect;
use crate::engine::fragmentation::fragments::chain_of;
use crate::engine::owner::distribution::{Distribution, Origin};
use crate::engine::owner::forward::{Forwarder, wants};
use crate::engine::sessions::copy_blocks::copy_together;
use crate::engine::sessions::message::{Consignment, Parcel};
use crate::engine::transport::delivery_records::{Places, Span};
use crate::engine::transport::outlet::{ByWorker, Outlet, Target};
use crate::engine::transport::runs::{Notes, Run, is_open};
use crate::engine::{Engine, Side};
use crate::link::receive::pubacks::Success;
use crate::link_id::{LinkId, SessionKey};
use crate::tables::match_set::Overflow;
use crate::wire::{Body, Packets, PublishView};

/// Messages of one run at most: each has a place in a record.
const MOST: usize = 1_024;

impl Engine {
    /// Takes the run that packets begin with: of how many messages.
    ///
    /// # Errors
    /// They begin with none, it is not plain, or what comes before it is missing: how many packets are to be handled each by itself.
    pub(in crate::engine) fn take_deliveries(
        &mut self,
        now: Micros,
        id: LinkId,
        packets: Packets<'_, '_>,
    ) -> Result<usize, usize> {
        let length = run_length(packets).max(1);
        let Some(run) = &Run::of(packets.take(length)).filter(|_| length > 1) else {
            return Err(length);
        };
        let Some(delivery) = packets.sections().next().map(|section| section.first().delivery) else {
            return Err(length);
        };
        let Some(entry) = self.out.links.awake(id).filter(|entry| entry.link.is_next(delivery)) else {
            return Err(length);
        };
        let is_taken = match &mut self.side {
            Side::Node(forwarder) => {
                // The first message of a link makes its session a publisher's.
                let is_free = entry.refusals.is_empty() && entry.grace.is_none() && !entry.holds_some();
                let is_ready = entry.inbound && is_free && run.is_of(entry);
                let (source, origin) = (entry.subscriber, Origin { link: id, delivery });
                is_ready && forwarder.forward_deliveries(now, run, origin, source, &mut self.out)
            }
            Side::Client(client) => {
                let is_at_once = run.shape().is_some_and(|publish| publish.qos == 1);
                is_at_once && client.inbox.take_deliveries(run, (id, delivery), &mut self.out.counters)
            }
        };
        if !is_taken {
            return Err(length);
        }
        if let Some(entry) = self.out.links.get_mut(id) {
            entry.link.receive_next(length as u64);
        }
        if matches!(self.side, Side::Node(_)) {
            self.tie_up(now);
        }
        Ok(length)
    }
}

impl Forwarder {
    /// Takes the messages of a run over, as [`Forwarder::forward`] does each; what it holds back of their PUBACKs meanwhile, it leaves loose. False: each
    /// is to be forwarded by itself.
    fn forward_deliveries(
        &mut self,
        now: Micros,
        run: &Run<'_, '_>,
        origin: Origin,
        source: Option<SessionKey>,
        out: &mut Outlet,
    ) -> bool {
        let (worker, count) = (self.worker(), run.len() as u64);
        let Self { routes, window, distribution, .. } = self;
        let Some(first) = run.first() else {
            return false;
        };
        let Ok(route) = &routes.find(now, first.topic) else {
            return false;
        };
        let is_taken = is_open(route)
            && !route.gathering
            && !out.is_full()
            && out.full.among(route.subscribers.iter().copied()).next().is_none()
            && (first.qos == 1 || window.all_first_seen(now, first.publisher, first.sequence, count));
        if !is_taken {
            return false;
        }
        out.counters.messages_in += count;
        let notes = Notes::of(run, now, route.mark, out);
        let mut subscribers =
            route.subscribers.iter().filter(|subscriber| wants(subscriber, source)).peekable();
        if subscribers.peek().is_none() {
            out.acknowledge_run(origin, count, Success::Unmatched);
            return true;
        }
        let is_early = first.ack_queued || Defect::AcknowledgesEarly.is_present();
        let id = (first.qos == 2).then_some((first.publisher, first.sequence));
        let held = (!is_early).then(|| distribution.open_run(origin, count as u16, id, first.topic));
        let (mut kept, mut elsewhere) = (Vec::new(), ByWorker::new());
        for subscriber in subscribers {
            let target = Target { qos: subscriber.qos.min(first.qos), ..subscriber.into() };
            let home = target.session.worker();
            if home == worker && target.qos == 0 {
                offer_copies(run, &notes, target.session, out);
                continue;
            }
            if kept.is_empty() {
                kept = keep(run, &notes, origin.link, held);
            }
            if home != worker {
                elsewhere.add(home, target);
                continue;
            }
            for consignment in &kept {
                offer(now, consignment, &target, distribution, out);
            }
        }
        for (home, targets) in elsewhere.drain() {
            for consignment in &kept {
                distribution.hand_over(home, consignment.clone(), targets.clone(), out);
            }
        }
        if is_early {
            out.acknowledge_run(origin, count, Success::Done);
        }
        out.loose.tickets.extend(held);
        true
    }
}

/// What a session keeps that gets the messages of a run at `QoS` 1 or 2. `source`: the link that they came over. `held`: their tickets.
fn keep(run: &Run<'_, '_>, notes: &Notes, source: LinkId, held: Option<Span>) -> Vec<Consignment> {
    let Some(publish) = run.shape() else {
        return Vec::new();
    };
    let chain = chain_of(0, publish.topic.as_bytes());
    let copies = copy_together(run.messages().map(|(field, _)| field), Places::MOST as usize);
    let mut place = 0;
    let consign = |(field, count)| {
        let (docket, timed) = notes.of_some(run, place, count);
        let parcel = Parcel {
            field,
            chain,
            qos: publish.qos,
            meant_for: None,
            overflow: Overflow::default(),
            group: None,
            source: Some(source),
            ticket: held.map(|held| held.part(place as u16, count as u16).first),
            docket,
            expires: Micros::MAX,
            number: 0,
        };
        place += count;
        Consignment { parcel, count, timed }
    };
    copies.into_iter().map(consign).collect()
}

/// Offers a session messages of a run, and adds the copies that hold tickets.
fn offer(
    now: Micros,
    consignment: &Consignment,
    target: &Target,
    distribution: &mut Distribution,
    out: &mut Outlet,
) {
    match out.offer_all(now, consignment, target) {
        Some(is_held) => {
            let held = consignment.tickets(consignment.places()).filter(|_| is_held);
            held.for_each(|held| distribution.add_copies(held, 1));
        }
        None => {
            for parcel in consignment.clone().into_parcels(consignment.places()) {
                distribution.keep(now, parcel, target.clone(), out);
            }
        }
    }
}

/// Offers a session the messages of a run at `QoS` 0.
fn offer_copies(run: &Run<'_, '_>, notes: &Notes, session: SessionKey, out: &mut Outlet) {
    for ((field, _), docket) in run.messages().zip(notes.dockets(run)) {
        out.offer_copy(session, field, None, &docket);
    }
}

/// How many plain messages of one topic, each of them the next delivery, these packets begin with.
fn run_length(packets: Packets<'_, '_>) -> usize {
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
            let due = (0..).map(|place| first.sequence.wrapping_add(length as u64 + place));
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
    fn a_run_ends_where_something_is_different() {
        let length = |change: fn(usize, &mut PublishOut<'_>, &mut u64)| {
            let mut datagram = Vec::new();
            for place in 0..6 {
                let mut out = PublishOut {
                    topic: "t",
                    qos: 2,
                    publisher: 7,
                    sequence: 40 + place as u64,
                    ..PublishOut::default()
                };
                let mut delivery = 10 + place as u64;
                change(place, &mut out, &mut delivery);
                let mut field = Vec::new();
                wire::put_publish_field(&mut field, &out);
                wire::put_packet(&mut datagram, delivery, 0, None, &field);
            }
            run_length(DatagramView::parse(&datagram).unwrap().packets())
        };
        assert_eq!(length(|_, _, _| {}), 6);
        assert_eq!(length(|_, out, _| out.qos = 1), 6);
        assert_eq!(length(|_, out, _| out.qos = 3), 0);
        assert_eq!(length(|_, out, delivery| (out.qos, *delivery) = (0, 0)), 0);
        assert_eq!(length(|place, _, delivery| *delivery += u64::from(place > 3)), 4);
        assert_eq!(length(|place, out, _| out.sequence += u64::from(place > 3)), 4);
        assert_eq!(length(|place, out, _| (out.qos, out.sequence) = (1, 7 * place as u64)), 6);
        assert_eq!(length(|place, out, _| out.qos -= u8::from(place > 2)), 3);
        assert_eq!(length(|place, out, _| out.ack_queued = place > 2), 3);
        assert_eq!(length(|place, out, _| out.retain = place > 1), 2);
        assert_eq!(length(|place, out, _| out.expiry_s = (place > 1).then_some(9)), 2);
        assert_eq!(length(|place, out, _| out.topic = if place > 0 { "u" } else { "t" }), 1);
    }
}
