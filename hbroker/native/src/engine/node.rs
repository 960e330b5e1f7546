//! A node's messages: PUBLISH from publishers, PUBACK from subscribers.

use super::{Engine, Side};
use crate::Micros;
use crate::engine::counters::Drop;
use crate::engine::distribution::Origin;
use crate::engine::routes::Refusal;
use crate::link_id::LinkId;
use crate::schema::reason;
use crate::tables::jurisdiction::Cut;
use crate::wire::{self, PacketView, PubAckView, PublishView};

impl Engine {
    pub(super) fn forward(
        &mut self,
        now: Micros,
        id: LinkId,
        packet: &PacketView<'_>,
        publish: &PublishView<'_>,
    ) {
        let delivery = packet.delivery;
        let Side::Node(forwarder) = &mut self.side else {
            return;
        };
        let Some(entry) = self.out.links.get_mut(id).filter(|entry| entry.inbound) else {
            self.out.counters.drop(Drop::UnexpectedPacket);
            return;
        };
        entry.published = true;
        let taken = if entry.refusals.precede(publish, packet.after) {
            Err(Refusal::Handover)
        } else {
            forwarder.forward(now, publish, Some(Origin { link: id, delivery }), &mut self.out)
        };
        if let Some(entry) = self.out.links.get_mut(id) {
            entry.refusals.note(publish, delivery, &taken);
        }
        if let Err(refusal) = taken {
            self.refuse(now, id, delivery, publish, &refusal);
        }
    }

    pub(super) fn settle(&mut self, id: LinkId, puback: &PubAckView<'_>) {
        let Side::Node(forwarder) = &mut self.side else {
            return;
        };
        for (first, last) in puback.ranges() {
            while let Some(entry) = self.out.links.get_mut(id)
                && let Some(ticket) = entry.ledger.settle_within(first, last)
            {
                forwarder.settle(ticket, &mut self.out);
            }
        }
    }

    /// Tells a publisher why its message was not taken over: at `QoS` 1 and 2 until it has heard it, at 0 once, if at all.
    fn refuse(
        &mut self,
        now: Micros,
        id: LinkId,
        delivery: u64,
        publish: &PublishView<'_>,
        refusal: &Refusal,
    ) {
        let (why, reason, cut) = match refusal {
            Refusal::InvalidTopic => (Drop::InvalidMessage, reason::TOPIC_NAME_INVALID, None),
            Refusal::InvalidMessage => (Drop::InvalidMessage, reason::PROTOCOL_ERROR, None),
            Refusal::NotResponsible(cut) => (Drop::NotResponsible, reason::NOT_RESPONSIBLE, cut.as_ref()),
            Refusal::Handover => (Drop::Handover, reason::HANDOVER, None),
            Refusal::NotAuthorized => (Drop::NotAuthorized, reason::NOT_AUTHORIZED, None),
        };
        self.out.counters.drop(why);
        let cut = cut.map(Cut::view);
        let Some(entry) = self.out.links.get_mut(id) else {
            return;
        };
        let mut body = Vec::new();
        let queued = if delivery > 0 {
            // Its publisher knows the topic by the delivery.
            wire::put_puback_field(&mut body, [(delivery, delivery)], reason, "", cut.as_ref());
            entry.link.refuse(body.into())
        } else if self.strangers.take(now) {
            wire::put_puback_field(&mut body, [], reason, publish.topic, cut.as_ref());
            entry.link.queue_unreliable(&body, false)
        } else {
            return self.out.counters.drop(Drop::RateLimited);
        };
        if queued.is_err() {
            self.out.counters.drop(Drop::QueueFull);
        }
        self.out.links.touch(id);
    }
}
