//! A node's messages: PUBLISH from publishers, PUBACK from subscribers.

use crate::Micros;
use crate::engine::metrics::counters::Drop;
use crate::engine::owner::distribution::Origin;
use crate::engine::owner::routes::Refusal;
use crate::engine::{Engine, Side};
use crate::link_id::LinkId;
use crate::publisher_id::publisher_id;
use crate::tables::jurisdiction::Cut;
use crate::wire::{self, PacketView, PubAckView, PublishView};

impl Engine {
    pub(in crate::engine) fn forward(
        &mut self,
        now: Micros,
        id: LinkId,
        packet: &PacketView<'_>,
        publish: &PublishView<'_>,
    ) {
        let delivery = packet.delivery;
        let Some(entry) = self.out.links.get_mut(id).filter(|entry| entry.inbound) else {
            self.out.counters.drop(Drop::UnexpectedPacket);
            return;
        };
        let is_turned_away = entry.refusals.precede(publish, packet.after);
        let is_too_much = delivery > 0 && entry.is_beyond_allowance(publish);
        let may_be_held = delivery > 0 && entry.holds_some();
        if entry.publisher == 0 {
            // A link that carries a PUBLISH has learnt the incarnation of its peer.
            let incarnation = entry.link.peer_incarnation().unwrap_or_default();
            entry.publisher = publisher_id(entry.session, incarnation);
            self.greet_publisher(now, id);
        }
        let is_held = may_be_held && !is_turned_away && !is_too_much && self.is_held(now, id, publish);
        let is_its_own = self.out.links.awake(id).is_some_and(|entry| entry.is_of(publish.publisher));
        let Side::Node(forwarder) = &mut self.side else {
            return;
        };
        let taken = if !is_its_own {
            Err(Refusal::ForeignPublisher)
        } else if is_turned_away {
            Err(Refusal::Handover)
        } else if is_too_much || is_held {
            Err(Refusal::QueuesFull)
        } else {
            forwarder.forward(now, publish, Some(Origin { link: id, delivery }), &mut self.out)
        };
        if let Some(entry) = self.out.links.get_mut(id) {
            entry.refusals.note(publish, delivery, &taken);
        }
        if let Err(refusal) = taken {
            self.refuse(now, id, delivery, publish, &refusal);
        }
        self.settle_pending(now);
    }

    /// A subscriber's PUBACK.
    pub(in crate::engine) fn settle(&mut self, now: Micros, id: LinkId, puback: &PubAckView<'_>) {
        let entry = self.out.links.awake(id).filter(|entry| !entry.link.is_mismatched());
        if let Some(session) = entry.and_then(|entry| entry.subscriber) {
            self.out.answer(now, session, puback);
            self.settle_pending(now);
        }
    }

    /// A client sends its credit, and whether it publishes for many (§7.7).
    pub(in crate::engine) fn grant_credit(
        &mut self,
        now: Micros,
        id: LinkId,
        (messages, bytes): (u32, u64),
        for_many: bool,
    ) {
        // If the session is not made here yet, it gets the credit from the link later.
        let Some(entry) = self.out.links.get_mut(id) else {
            return;
        };
        entry.credit.grant(messages, bytes);
        let session = entry.subscriber;
        if std::mem::replace(&mut entry.for_many, for_many) != for_many {
            self.update_credit(now, id); // It may have been held back before this CREDIT arrived.
        }
        if let Some(session) = session {
            self.out.grant(now, session, messages, bytes);
            self.settle_pending(now);
        }
    }

    /// Carries out what handling messages has left to do: tickets, holds, overflowed sessions, messages
    /// without a member.
    pub(in crate::engine) fn settle_pending(&mut self, now: Micros) {
        while !self.out.pending.is_empty() {
            let mut tickets = std::mem::take(&mut self.out.pending.tickets);
            let overflowed = std::mem::take(&mut self.out.pending.overflowed);
            let holds = std::mem::take(&mut self.out.pending.holds);
            let orphans = std::mem::take(&mut self.out.pending.orphans);
            let full = std::mem::take(&mut self.out.pending.full);
            full.into_iter().for_each(|(session, is_full)| self.tell_full(session, is_full));
            for key in overflowed {
                self.end_overflowed(now, key);
            }
            for hold in holds {
                self.hold(now, hold);
            }
            let Side::Node(forwarder) = &mut self.side else {
                return;
            };
            for queued_message in orphans {
                let is_leaving = forwarder.barriers.holds(&queued_message);
                forwarder.reassign(now, queued_message, is_leaving, &mut self.out);
            }
            for span in tickets.drain() {
                forwarder.settle(span, &mut self.out);
            }
            if self.out.pending.tickets.is_empty() {
                self.out.pending.tickets = tickets; // Its memory serves the next ones.
            }
        }
    }

    /// Refuses a message with a PUBACK: at `QoS` 1 and 2 reliably, at 0 once, within the rate limit for
    /// strangers.
    fn refuse(
        &mut self,
        now: Micros,
        id: LinkId,
        delivery: u64,
        publish: &PublishView<'_>,
        refusal: &Refusal,
    ) {
        let (why, reason) = refusal.drop_and_reason();
        self.out.counters.drop(why);
        let cut = match refusal {
            Refusal::NotResponsible(cut) => cut.as_ref().map(Cut::view),
            _ => None,
        };
        let Some(entry) = self.out.links.get_mut(id) else {
            return;
        };
        let mut body = Vec::new();
        let queued = if delivery > 0 {
            // The publisher finds the topic by the delivery.
            wire::put_puback_field(&mut body, [(delivery, delivery)], reason, "", cut.as_ref());
            entry.link.refuse(body.into())
        } else if matches!(refusal, Refusal::Expired) {
            return; // The publisher learns nothing useful from that.
        } else if self.strangers.take(now) {
            wire::put_puback_field(&mut body, [], reason, publish.topic, cut.as_ref());
            entry.link.queue_own(&body)
        } else {
            return self.out.counters.drop(Drop::RateLimited);
        };
        if queued.is_err() {
            self.out.counters.drop(Drop::QueueFull);
        }
        self.out.links.touch(id);
    }
}
