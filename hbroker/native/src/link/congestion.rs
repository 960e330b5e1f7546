//! How many bytes may be in flight: the NewReno controller of RFC 9002 §7.
//!
//! Slow start doubles the window in each round trip until the first loss; congestion avoidance then adds one datagram
//! for each window acknowledged; a loss halves it, once for each round trip. The recovery that owns a controller knows
//! only its four verbs, `allowance` out and `on_acknowledged`, `on_lost`, `on_persistent_congestion` in: another
//! controller, and a pacer that lets less than the window through, take their place behind them.

use crate::Micros;

/// RFC 9002 §7.2: ten datagrams, and no more than this many bytes where that is more than two.
const INITIAL_WINDOW_BYTES: usize = 14_720;

/// The congestion controller of one path.
#[derive(Debug)]
pub struct NewReno {
    max_datagram: usize,
    window: usize,
    slow_start_threshold: usize,
    /// What was sent before this belongs to a loss already answered.
    recovery_start: Option<Micros>,
    /// Bytes acknowledged in congestion avoidance that did not yet make the window grow.
    credit: usize,
    /// The sender had more to send than the window let through: only such a window grows (RFC 9002 §7.8).
    is_limiting: bool,
}

impl NewReno {
    /// The window at the start of a path that carries datagrams of up to `max_datagram` bytes.
    pub fn new(max_datagram: usize) -> Self {
        Self {
            max_datagram,
            window: (10 * max_datagram).min(INITIAL_WINDOW_BYTES.max(2 * max_datagram)),
            slow_start_threshold: usize::MAX,
            recovery_start: None,
            credit: 0,
            is_limiting: false,
        }
    }

    /// Bytes were acknowledged of a datagram sent at `sent_at`.
    pub fn on_acknowledged(&mut self, sent_at: Micros, bytes: usize) {
        if !self.is_limiting || self.recovery_start.is_some_and(|start| sent_at <= start) {
            return;
        }
        if self.window < self.slow_start_threshold {
            self.window = self.window.saturating_add(bytes);
            return;
        }
        self.credit += bytes;
        if self.credit >= self.window {
            self.credit -= self.window;
            self.window = self.window.saturating_add(self.max_datagram);
        }
    }

    /// Datagrams were lost, the newest of them sent at `sent_at`.
    pub fn on_lost(&mut self, now: Micros, sent_at: Micros) {
        if self.recovery_start.is_some_and(|start| sent_at <= start) {
            return;
        }
        self.recovery_start = Some(now);
        self.window = (self.window / 2).max(self.least());
        self.slow_start_threshold = self.window;
        self.credit = 0;
    }

    /// Nothing came through for several probe timeouts (RFC 9002 §7.6): begin again from the least window.
    pub fn on_persistent_congestion(&mut self) {
        self.window = self.least();
        self.recovery_start = None;
        self.credit = 0;
    }

    /// The sender stopped because the window is full (true), or because it had nothing more to send.
    pub fn set_limiting(&mut self, is_limiting: bool) {
        self.is_limiting = is_limiting;
    }

    /// Bytes that may be sent now, with `in_flight` unacknowledged.
    pub fn allowance(&self, in_flight: usize) -> usize {
        self.window.saturating_sub(in_flight)
    }

    /// Bytes that may be in flight.
    pub fn window(&self) -> usize {
        self.window
    }

    fn least(&self) -> usize {
        2 * self.max_datagram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited() -> NewReno {
        let mut controller = NewReno::new(1_200);
        controller.set_limiting(true);
        controller
    }

    #[test]
    fn slow_start_doubles_in_a_round_trip() {
        let mut controller = limited();
        for _ in 0..10 {
            controller.on_acknowledged(1, 1_200);
        }
        assert_eq!(controller.window(), 24_000);
    }

    #[test]
    fn avoidance_adds_one_datagram_for_each_window() {
        let mut controller = limited();
        controller.on_lost(10, 5);
        let before = controller.window();
        let mut acknowledged = 0;
        while controller.window() == before {
            controller.on_acknowledged(11, 600);
            acknowledged += 600;
        }
        assert_eq!(
            (acknowledged, controller.window()),
            (before, before + 1_200)
        );
    }

    #[test]
    fn one_round_trip_of_losses_halves_once() {
        let mut controller = limited();
        controller.on_lost(100, 50);
        controller.on_lost(110, 100);
        assert_eq!(controller.window(), 6_000);
        controller.on_lost(120, 101);
        assert_eq!(controller.window(), 3_000);
        controller.on_lost(130, 125);
        controller.on_lost(140, 135);
        assert_eq!(controller.window(), 2_400, "never below two datagrams");
    }

    #[test]
    fn a_window_that_does_not_limit_does_not_grow() {
        let mut controller = limited();
        controller.set_limiting(false);
        controller.on_acknowledged(1, 50_000);
        assert_eq!(controller.window(), 12_000);
    }

    #[test]
    fn persistent_congestion_starts_slowly_again() {
        let mut controller = limited();
        controller.on_lost(100, 50);
        controller.on_persistent_congestion();
        assert_eq!(controller.window(), 2_400);
        controller.on_acknowledged(90, 1_200);
        assert_eq!(controller.window(), 3_600);
    }

    #[test]
    fn a_large_datagram_fits_the_first_window() {
        assert_eq!(NewReno::new(65_507).window(), 131_014);
    }
}
