//! Backpressure (§7.7): a publisher is held back while a session that it publishes to is crowded (`holds`).
//! All publishers are held back while too many bytes are queued in total.
//!
//! Only the queues of sessions that count as connected are counted. They shrink as the subscribers
//! acknowledge, and a subscriber that does not acknowledge soon counts as offline. So publishers wait for a
//! bounded time. The queues of offline sessions have bounds of their own, and hold nobody back.

use crate::Micros;
use crate::engine::sessions::table::LOOK;
use crate::engine::transport::credit;
use crate::engine::transport::links::LinkSlot;
use crate::engine::transport::outbound::Handoff;
use crate::engine::{Engine, Side};
use crate::link_id::LinkId;
use crate::wire;

/// Whether all publishers are held back, and which of them have to be notified.
#[derive(Default)]
pub struct Throttle {
    /// The workers with too many queued bytes.
    high: Workers,
    /// The workers that take nothing more over.
    full: Workers,
    is_applied: bool,
    /// The publishers' links to be sent their usual credit when the throttle is off again.
    met: Vec<LinkId>,
    /// The links that had no room for their CREDIT.
    untold: Vec<LinkId>,
}

/// A bit for each worker.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Workers([u128; 2]);

impl Workers {
    fn set(&mut self, worker: u8, is_in: bool) {
        let (word, bit) = (&mut self.0[usize::from(worker / 128)], 1 << (worker % 128));
        *word = if is_in { *word | bit } else { *word & !bit };
    }

    fn has(self, worker: u8) -> bool {
        self.0[usize::from(worker / 128)] & (1 << (worker % 128)) != 0
    }

    fn is_empty(self) -> bool {
        self == Self::default()
    }
}

impl Throttle {
    pub fn is_on(&self) -> bool {
        !self.high.is_empty()
    }
}

impl Engine {
    /// Looks at the sessions that have not acknowledged, and at the bytes that are queued for them.
    pub(in crate::engine) fn look(&mut self, now: Micros) {
        let waiting_bytes = self.out.look(now);
        self.settle_pending(now);
        let Side::Node(node) = &mut self.side else {
            return;
        };
        let high = self.config.queue_memory / usize::from(self.workers) / 2;
        let was_high = node.throttle.high.has(self.worker);
        // Hysteresis: without it publishers would stop and go with every message.
        let is_high = waiting_bytes > high || was_high && waiting_bytes > high / 2;
        let is_full = self.out.sessions.is_full();
        if (is_high, is_full) != (was_high, node.throttle.full.has(self.worker)) {
            for worker in (0..self.workers).filter(|&worker| worker != self.worker) {
                let pressure = Handoff::Pressure { worker: self.worker, is_high, is_full };
                self.out.handoffs.push_back((worker, pressure));
            }
        }
        node.throttle.full.set(self.worker, is_full);
        node.throttle.high.set(self.worker, is_high);
        self.tell_pressure(now);
    }

    /// Whether all publishers are held back.
    pub(in crate::engine) fn is_throttled(&self) -> bool {
        matches!(&self.side, Side::Node(node) if node.throttle.is_on())
    }

    /// Another worker reports its pressure.
    pub(in crate::engine) fn take_pressure(&mut self, now: Micros, worker: u8, is_high: bool, is_full: bool) {
        let Side::Node(node) = &mut self.side else {
            return;
        };
        node.throttle.high.set(worker, is_high);
        node.throttle.full.set(worker, is_full);
        let mut others = node.throttle.full;
        others.set(self.worker, false);
        self.out.others_are_full = !others.is_empty();
        self.tell_pressure(now);
    }

    /// Sends the publishers their new credit, if it has changed.
    fn tell_pressure(&mut self, now: Micros) {
        let Side::Node(node) = &mut self.side else {
            return;
        };
        let is_on = node.throttle.is_on();
        let was_on = std::mem::replace(&mut node.throttle.is_applied, is_on);
        let mut links = std::mem::take(&mut node.throttle.untold);
        if is_on && !was_on {
            let publishers =
                self.out.links.iter().filter(|link_slot| link_slot.inbound() && link_slot.published());
            node.throttle.met = publishers.map(LinkSlot::id).collect();
            links.extend(&node.throttle.met);
        } else if !is_on && was_on {
            links.append(&mut node.throttle.met);
        }
        links.into_iter().for_each(|link| self.update_credit(now, link));
    }

    /// A link carries its first PUBLISH, so it is a publisher's.
    pub(in crate::engine) fn greet_publisher(&mut self, now: Micros, link: LinkId) {
        if let Side::Node(node) = &mut self.side
            && node.throttle.is_on()
        {
            node.throttle.met.push(link);
            self.update_credit(now, link);
        }
    }

    /// Sends a publisher credit 0, or its usual credit, if that has changed.
    pub(in crate::engine) fn update_credit(&mut self, now: Micros, link: LinkId) {
        let is_on = self.is_throttled();
        if !is_on && self.out.links.awake(link).is_none() {
            return; // An idle link is not held back.
        }
        let Some(entry) = self.out.links.get_mut(link) else {
            return;
        };
        let is_held_back = is_on || !entry.for_many && !entry.holders.is_empty();
        entry.allowance = is_held_back.then(|| entry.allowance.unwrap_or_default());
        if is_held_back == entry.is_held_back {
            return self.out.links.touch(link);
        }
        let (messages, bytes) = if is_held_back { (0, 0) } else { (credit::MESSAGES, credit::BYTES) };
        let mut field = Vec::new();
        wire::put_credit_field(&mut field, messages, bytes, false);
        if !self.out.queue_control(link, field.into()) {
            // There is no room for the CREDIT now.
            self.node(|node| node.throttle.untold.push(link));
            self.out.sessions.look_by(now + LOOK);
        } else if let Some(entry) = self.out.links.get_mut(link) {
            entry.is_held_back = is_held_back;
        }
    }
}
