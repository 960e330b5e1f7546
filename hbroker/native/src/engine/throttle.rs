//! Publishers are held back while too much waits for subscribers (§7.7).
//!
//! What counts is what is held for sessions that count as connected: it goes as they answer, and one that does not answer counts
//! as away before long. So publishers wait for a bounded time. What waits for those that are away has bounds of its own, and holds nobody up.

use super::Engine;
use crate::Micros;
use crate::engine::credit;
use crate::engine::links::Place;
use crate::engine::outlet::Handoff;
use crate::engine::sessions::LOOK;
use crate::link_id::LinkId;
use crate::wire;

/// Whether publishers are held back, and which of them were told.
#[derive(Default)]
pub struct Throttle {
    /// The workers that hold too much, a bit for each.
    high: [u128; 2],
    is_applied: bool,
    told: Vec<LinkId>,
}

impl Throttle {
    pub fn set(&mut self, worker: u8, is_high: bool) {
        let (word, bit) = (&mut self.high[usize::from(worker / 128)], 1 << (worker % 128));
        *word = if is_high { *word | bit } else { *word & !bit };
    }

    pub fn is_on(&self) -> bool {
        self.high != [0; 2]
    }

    fn is_high(&self, worker: u8) -> bool {
        self.high[usize::from(worker / 128)] & (1 << (worker % 128)) != 0
    }
}

impl Engine {
    /// Looks at the sessions that wait for answers, and at how much is held for them.
    pub(super) fn look(&mut self, now: Micros) {
        let held = self.out.look(now);
        self.tie_up(now);
        let high = self.config.queue_memory / usize::from(self.workers) / 2;
        let was_high = self.throttle.is_high(self.worker);
        // Between the marks it stays as it is, or publishers would stop and go with every message.
        let is_high = held > high || was_high && held > high / 2;
        if is_high != was_high {
            self.throttle.set(self.worker, is_high);
            for worker in (0..self.workers).filter(|&worker| worker != self.worker) {
                let pressure = Handoff::Pressure { worker: self.worker, is_high };
                self.out.handoffs.push_back((worker, pressure));
            }
        }
        self.tell_pressure(now);
    }

    /// Tells the publishers what they may send now, where that has changed.
    pub(super) fn tell_pressure(&mut self, now: Micros) {
        let is_on = self.throttle.is_on();
        let was_on = std::mem::replace(&mut self.throttle.is_applied, is_on);
        if is_on && !was_on {
            let publishers = self.out.links.iter().filter(|place| place.inbound() && place.published());
            let publishers: Vec<LinkId> = publishers.map(Place::id).collect();
            publishers.into_iter().for_each(|link| self.hold_back(link));
        } else if !is_on && !self.throttle.told.is_empty() {
            let told = std::mem::take(&mut self.throttle.told);
            self.throttle.told = told.into_iter().filter(|&link| !self.let_go(link)).collect();
            if !self.throttle.told.is_empty() {
                self.out.sessions.look_by(now + LOOK);
            }
        }
    }

    /// A link carries its first message: it is a publisher's.
    pub(super) fn greet_publisher(&mut self, link: LinkId) {
        if self.throttle.is_on() {
            self.hold_back(link);
        }
    }

    /// A publisher is to send nothing more until it is told.
    fn hold_back(&mut self, link: LinkId) {
        let mut field = Vec::new();
        wire::put_credit_field(&mut field, 0, 0);
        if self.out.queue_control(link, field.into()) {
            self.throttle.told.push(link);
        }
    }

    /// A publisher may send again; false: there is no room to tell it now.
    fn let_go(&mut self, link: LinkId) -> bool {
        let mut field = Vec::new();
        wire::put_credit_field(&mut field, credit::MESSAGES, credit::BYTES);
        self.out.links.get(link).is_none() || self.out.queue_control(link, field.into())
    }
}
