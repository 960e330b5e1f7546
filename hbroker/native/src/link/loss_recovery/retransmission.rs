//! What follows when datagrams are acknowledged or lost (docs/protocol.md §3.2), as `recovery` decides.
//!
//! An acknowledgement settles the contents of a datagram; a loss makes the link send them again. Both tell
//! `mtu` about the datagram size of the path.

use crate::Micros;
use crate::link::Link;
use crate::link::mtu::PathMtu;
use crate::wire::AckView;

/// RFC 9002 §6.2.4: a probe timeout sends up to two datagrams.
const PROBE_DATAGRAMS: u32 = 2;
/// After this number of consecutive probe timeouts the size of the datagrams may be the reason.
const SILENCES_OF_A_BLACK_HOLE: u32 = 2;

impl Link {
    pub(in crate::link) fn handle_acknowledgement(&mut self, now: Micros, ack: &AckView<'_>) {
        let Self { recovery, deliveries, pubacks, acks, mtu, .. } = self;
        let (in_flight, size) = (recovery.in_flight(), mtu.size());
        let mut is_progress = false;
        recovery.on_acknowledgement(now, ack.largest, ack.ranges(), ack.delay_us, |sent| {
            is_progress = true;
            if sent.is_mtu_probe {
                mtu.on_probe_acknowledged(now, sent.size);
            } else {
                mtu.on_acknowledged(sent.size);
            }
            acks.on_acknowledged(sent.contents.acknowledged_through);
            sent.contents.settle(deliveries, pubacks);
        });
        if mtu.size() != size {
            recovery.set_max_datagram(mtu.size());
        }
        self.budget.on_acknowledged(in_flight - self.recovery.in_flight(), self.recovery.window());
        if is_progress && !self.token.is_empty() && ack.largest >= self.token_since {
            self.token = Vec::new();
        }
        self.is_established |= is_progress;
        self.is_answered |= is_progress;
        self.detect_lost(now);
    }

    pub(in crate::link) fn detect_lost(&mut self, now: Micros) {
        let Self { recovery, deliveries, pubacks, mtu, .. } = self;
        let mut largest = 0;
        recovery.detect_lost(now, |number, sent| {
            if sent.is_mtu_probe {
                mtu.on_probe_lost(now);
            } else {
                largest = largest.max(sent.size);
            }
            sent.contents.send_again(number, deliveries, pubacks);
        });
        if mtu.on_lost(now, largest) {
            recovery.set_max_datagram(mtu.size());
        }
    }

    /// Probes, if no acknowledgement was received for too long.
    pub(in crate::link) fn handle_silence(&mut self, now: Micros) {
        if !self.recovery.is_probe_due(now) {
            return;
        }
        if self.recovery.unanswered() >= SILENCES_OF_A_BLACK_HOLE && self.mtu.on_silence(now) {
            self.recovery.set_max_datagram(self.mtu.size());
        }
        self.probe();
    }

    /// Asks for an acknowledgement, preferably with packets that may have been lost.
    pub(in crate::link) fn probe(&mut self) {
        let Self { recovery, deliveries, pubacks, .. } = self;
        for contents in recovery.oldest(PROBE_DATAGRAMS as usize) {
            contents.probe(deliveries, pubacks);
        }
        self.probes = PROBE_DATAGRAMS;
    }

    /// The capacity and the datagram size of the path are unknown (RFC 9000 §9.4).
    pub(in crate::link) fn begin_path(&mut self) {
        self.mtu = PathMtu::new(self.config.max_datagram);
        self.recovery.set_max_datagram(self.mtu.size());
        self.recovery.reset_path();
    }

    /// No datagram in flight will arrive.
    pub(in crate::link) fn send_all_again(&mut self) {
        self.budget.restore(self.recovery.window());
        let Self { recovery, deliveries, pubacks, .. } = self;
        recovery.abandon(|number, contents| contents.send_again(number, deliveries, pubacks));
    }
}
