//! A node's messages: PUBLISH from publishers, PUBACK from subscribers.

use super::{Engine, Side};
use crate::Micros;
use crate::engine::counters::Drop;
use crate::engine::distribution::Origin;
use crate::engine::forward::Refusal;
use crate::engine::ledger::Ticket;
use crate::engine::outlet::Outlet;
use crate::engine::reason;
use crate::link_id::LinkId;
use crate::tables::jurisdiction::Cut;
use crate::wire::{self, PubAckView, PublishView};

impl Engine {
    pub(super) fn forward(
        &mut self,
        now: Micros,
        id: LinkId,
        delivery: u64,
        publish: &PublishView<'_>,
    ) {
        let Side::Node(forwarder) = &mut self.side else {
            return;
        };
        let Some(entry) = self.out.links.get_mut(id).filter(|entry| entry.inbound) else {
            self.out.counters.drop(Drop::UnexpectedPacket);
            return;
        };
        entry.published = true;
        if let Err(refusal) =
            forwarder.forward(now, publish, Some(Origin { link: id, delivery }), &mut self.out)
        {
            self.refuse(now, id, delivery, publish, &refusal);
        }
    }

    pub(super) fn settle(&mut self, id: LinkId, puback: &PubAckView<'_>) {
        let Side::Node(forwarder) = &mut self.side else {
            return;
        };
        for (first, last) in puback.ranges() {
            settle_range(&mut self.out, id, first, last, |ticket, out| {
                forwarder.settle(ticket, out)
            });
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
            Refusal::NotResponsible(cut) => {
                (Drop::NotResponsible, reason::NOT_RESPONSIBLE, cut.as_ref())
            }
            Refusal::Handover => (Drop::Handover, reason::HANDOVER, None),
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

/// Settles the open entries of a range of deliveries.
pub(super) fn settle_range(
    out: &mut Outlet,
    id: LinkId,
    first: u64,
    last: u64,
    mut settle: impl FnMut(Ticket, &mut Outlet),
) {
    let Some(entry) = out.links.get(id) else {
        return;
    };
    for delivery in entry.ledger.within(first, last) {
        let ticket = out
            .links
            .get_mut(id)
            .and_then(|entry| entry.ledger.settle(delivery));
        if let Some(ticket) = ticket {
            settle(ticket, out);
        }
    }
}
