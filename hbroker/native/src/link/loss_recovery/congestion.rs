//! The congestion window: CUBIC (RFC 9438), with the slow start of HyStart++ (RFC 9406).
//!
//! After a loss the window shrinks to 0.7 of its size. It then follows a cubic function of the time since:
//! quickly back to its old size, slowly past it, and then faster and faster in search of more room. So its
//! growth does not depend on the round-trip time, and a long fast path is filled in seconds. On a short path
//! a controller that adds one datagram for each round trip would be faster; then the window is as large as
//! that one's. `recovery` reports what was acknowledged and lost, and asks for the `allowance`.
//!
//! A queue that builds up at the bottleneck lengthens the round trip before the queue overflows. If the
//! shortest round trip of one round is clearly longer than that of the round before, the window grows only a
//! quarter as fast, and after five such rounds slow start ends. If the round trip becomes shorter again, slow
//! start continues.

use crate::Micros;

/// RFC 9002 §7.2: ten datagrams, but at most this number of bytes if that is more than two datagrams.
const INITIAL_WINDOW_BYTES: usize = 14_720;
/// RFC 9438 §4.6, beta_cubic: the part of the window that is left after a loss.
const BETA: f64 = 0.7;
/// RFC 9438 §5.1, C, in datagrams for each second cubed.
const SCALE: f64 = 0.4;
/// RFC 9438 §4.3, alpha_cubic: how many datagrams the Reno-friendly window grows for each round trip. It
/// shrinks to BETA, so this makes it as fair as Reno's.
const RENO_GROWTH: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// The largest window; a sum of two fits any integer.
const MOST_WINDOW: f64 = (1u64 << 31) as f64;

/// The congestion controller of one path. Windows are in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Cubic {
    max_datagram: usize,
    window: f64,
    slow_start_threshold: f64,
    slow_start: HyStart,
    /// A datagram sent before this belongs to a loss that the window has shrunk for already.
    recovery_start: Option<Micros>,
    /// The window at the last loss, or less, to make room for others (RFC 9438 §4.7).
    plateau: f64,
    /// The window at the last loss: cwnd_prior.
    prior: f64,
    epoch: Option<Epoch>,
    /// Since when the sender has not filled the window: this time does not count (RFC 9438 §5.8).
    unfilled_since: Option<Micros>,
    /// The sender had more to send than the window allowed: only then the window grows (RFC 9002 §7.8).
    is_limiting: bool,
}

/// A stage of congestion avoidance: from a loss, or the end of slow start, to the next loss.
#[derive(Debug, Clone, PartialEq)]
struct Epoch {
    start: Micros,
    /// The window around which the cubic function is flat: W_max.
    origin: f64,
    /// Seconds until the window reaches it: K.
    climb: f64,
    /// The window of a controller that adds one datagram for each round trip: W_est.
    reno_window: f64,
    /// The window from which that one grows as Reno's does: cwnd_prior.
    catches_up_at: f64,
}

impl Cubic {
    /// The window at the start of a path that carries datagrams of up to `max_datagram` bytes.
    pub fn new(max_datagram: usize) -> Self {
        let initial = (10 * max_datagram).min(INITIAL_WINDOW_BYTES.max(2 * max_datagram));
        Self {
            max_datagram,
            window: initial as f64,
            slow_start_threshold: f64::INFINITY,
            slow_start: HyStart::new(),
            recovery_start: None,
            plateau: 0.0,
            prior: 0.0,
            epoch: None,
            unfilled_since: None,
            is_limiting: false,
        }
    }

    /// The path carries datagrams of this size.
    pub fn set_max_datagram(&mut self, max_datagram: usize) {
        self.max_datagram = max_datagram;
        self.window = self.window.max(self.least());
    }

    /// The largest newly acknowledged datagram was sent at `sent_at`, and its round trip took `round_trip`.
    pub fn on_round_trip(&mut self, now: Micros, sent_at: Micros, round_trip: Micros) {
        if self.is_slow_start()
            && self.is_limiting
            && self.slow_start.on_round_trip(now, sent_at, round_trip) == Phase::Over
        {
            self.slow_start_threshold = self.window;
        }
    }

    /// `bytes` of a datagram sent at `sent_at` were acknowledged; a round trip takes `round_trip`.
    pub fn on_acknowledged(&mut self, now: Micros, sent_at: Micros, bytes: usize, round_trip: Micros) {
        if !self.is_limiting {
            self.unfilled_since.get_or_insert(now);
            return;
        }
        if self.recovery_start.is_some_and(|start| sent_at <= start) {
            return;
        }
        if self.is_slow_start() {
            self.window += (bytes / self.slow_start.divisor()) as f64;
        } else {
            self.avoid_congestion(now, bytes as f64, round_trip);
        }
        self.window = self.window.min(MOST_WINDOW);
    }

    /// Datagrams were lost, the newest of them sent at `sent_at`.
    pub fn on_lost(&mut self, now: Micros, sent_at: Micros) {
        if self.recovery_start.is_some_and(|start| sent_at <= start) {
            return;
        }
        self.recovery_start = Some(now);
        // RFC 9438 §4.7: a window that did not reach its old size again makes room for others.
        let is_squeezed = self.window < self.plateau;
        self.prior = self.window;
        self.plateau = if is_squeezed { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.window = (self.window * BETA).max(self.least());
        self.slow_start_threshold = self.window;
        self.epoch = None;
        self.unfilled_since = None;
    }

    /// No datagram got through for several probe timeouts (RFC 9002 §7.6): begins again with the smallest
    /// window.
    pub fn on_persistent_congestion(&mut self) {
        self.window = self.least();
        self.recovery_start = None;
        self.epoch = None;
        self.slow_start = HyStart::new();
    }

    /// The sender stopped because the window is full (true), or because it had nothing more to send.
    pub fn set_limiting(&mut self, is_limiting: bool) {
        self.is_limiting = is_limiting;
    }

    /// The bytes that may be sent now, with `in_flight` unacknowledged.
    pub fn allowance(&self, in_flight: usize) -> usize {
        self.window().saturating_sub(in_flight)
    }

    /// Whether it is as it was at the start. (Time in which the window is not filled counts only later.)
    pub fn is_new(&self) -> bool {
        let Self { unfilled_since, is_limiting, .. } = *self;
        *self == Self { unfilled_since, is_limiting, ..Self::new(self.max_datagram) }
    }

    /// The bytes that may be in flight.
    pub fn window(&self) -> usize {
        self.window as usize
    }

    fn is_slow_start(&self) -> bool {
        self.window < self.slow_start_threshold
    }

    /// RFC 9438 §§4.2 to 4.5.
    fn avoid_congestion(&mut self, now: Micros, acknowledged: f64, round_trip: Micros) {
        let segment = self.max_datagram as f64;
        let (window, plateau, prior) = (self.window, self.plateau, self.prior);
        let epoch = self.epoch.get_or_insert_with(|| Epoch::new(now, window, plateau, prior, segment));
        if let Some(since) = self.unfilled_since.take() {
            epoch.start += now.saturating_sub(since.max(epoch.start));
        }
        epoch.grow_reno(segment, acknowledged / window);
        if epoch.cubic(now, segment) < epoch.reno_window {
            self.window = window.max(epoch.reno_window);
            return;
        }
        let target = epoch.cubic(now + round_trip, segment).clamp(window, 1.5 * window);
        self.window = window + (target - window) * acknowledged / window;
    }

    fn least(&self) -> f64 {
        (2 * self.max_datagram) as f64
    }
}

impl Epoch {
    fn new(now: Micros, window: f64, plateau: f64, prior: f64, segment: f64) -> Self {
        let origin = plateau.max(window);
        Self {
            start: now,
            origin,
            climb: ((origin - window) / segment / SCALE).cbrt(),
            reno_window: window,
            catches_up_at: prior,
        }
    }

    /// RFC 9438 §4.2, W_cubic, in bytes.
    fn cubic(&self, at: Micros, segment: f64) -> f64 {
        let elapsed = at.saturating_sub(self.start) as f64 / 1e6;
        self.origin + SCALE * (elapsed - self.climb).powi(3) * segment
    }

    /// RFC 9438 §4.3: `share` of the window was acknowledged.
    fn grow_reno(&mut self, segment: f64, share: f64) {
        let growth = if self.reno_window < self.catches_up_at { RENO_GROWTH } else { 1.0 };
        self.reno_window += growth * segment * share;
    }
}

/// RFC 9406 §4.3, MIN_RTT_THRESH and MAX_RTT_THRESH.
const LEAST_DELAY: Micros = 4_000;
const MOST_DELAY: Micros = 16_000;
/// RFC 9406 §4.3, MIN_RTT_DIVISOR.
const DELAY_DIVISOR: Micros = 8;
/// RFC 9406 §4.3, N_RTT_SAMPLE.
const ENOUGH_SAMPLES: u32 = 8;
/// RFC 9406 §4.3, CSS_GROWTH_DIVISOR.
const GROWTH_DIVISOR: usize = 4;
/// RFC 9406 §4.3, CSS_ROUNDS.
const CONSERVATIVE_ROUNDS: u32 = 5;

/// The phase of slow start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The window grows by the acknowledged bytes.
    Fast,
    /// It grows by a quarter of them: a queue may be building up.
    Conservative,
    /// The window is large enough.
    Over,
}

/// The rounds of one slow start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HyStart {
    phase: Phase,
    /// A round ends when a datagram sent since then is acknowledged.
    round_start: Micros,
    /// The shortest round trip of this round and of the one before; `Micros::MAX`: none yet.
    shortest: Micros,
    previous: Micros,
    samples: u32,
    /// The shortest round trip when the growth was slowed down.
    baseline: Micros,
    conservative_rounds: u32,
}

impl HyStart {
    /// At the beginning of slow start.
    pub fn new() -> Self {
        Self {
            phase: Phase::Fast,
            round_start: 0,
            shortest: Micros::MAX,
            previous: Micros::MAX,
            samples: 0,
            baseline: 0,
            conservative_rounds: 0,
        }
    }

    /// Takes the round trip of a datagram sent at `sent_at`.
    pub fn on_round_trip(&mut self, now: Micros, sent_at: Micros, round_trip: Micros) -> Phase {
        if sent_at >= self.round_start {
            self.begin_round(now);
        }
        self.shortest = self.shortest.min(round_trip);
        self.samples += 1;
        if self.samples < ENOUGH_SAMPLES {
            return self.phase;
        }
        match self.phase {
            Phase::Fast if self.is_delayed() => {
                self.phase = Phase::Conservative;
                self.baseline = self.shortest;
                self.conservative_rounds = 0;
            }
            Phase::Conservative if self.shortest < self.baseline => self.phase = Phase::Fast,
            _ => {}
        }
        self.phase
    }

    /// The window grows by the acknowledged bytes, divided by this.
    pub fn divisor(&self) -> usize {
        if self.phase == Phase::Fast { 1 } else { GROWTH_DIVISOR }
    }

    fn begin_round(&mut self, now: Micros) {
        self.round_start = now;
        self.previous = std::mem::replace(&mut self.shortest, Micros::MAX);
        self.samples = 0;
        if self.phase == Phase::Conservative {
            self.conservative_rounds += 1;
            if self.conservative_rounds >= CONSERVATIVE_ROUNDS {
                self.phase = Phase::Over;
            }
        }
    }

    fn is_delayed(&self) -> bool {
        let threshold = (self.previous / DELAY_DIVISOR).clamp(LEAST_DELAY, MOST_DELAY);
        self.shortest >= self.previous.saturating_add(threshold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: f64 = 1_200.0;
    const ROUND_TRIP: Micros = 100_000;
    const SECOND: Micros = 1_000_000;

    fn limited() -> Cubic {
        let mut controller = Cubic::new(1_200);
        controller.set_limiting(true);
        controller
    }

    /// In congestion avoidance since a loss at time 0, with a window of this number of datagrams before it.
    fn after_loss(datagrams: u32) -> Cubic {
        let mut controller = limited();
        controller.window = f64::from(datagrams) * SEGMENT;
        controller.on_lost(0, 0);
        controller
    }

    /// Acknowledges a window in each round trip, from one time to another.
    fn fill(controller: &mut Cubic, from: Micros, until: Micros, round_trip: Micros) {
        let mut now = from;
        while now < until {
            let pieces = (controller.window / SEGMENT) as u64;
            for piece in 0..pieces {
                let at = now + round_trip * piece / pieces;
                controller.on_acknowledged(at + 1, at + 1, 1_200, round_trip);
            }
            now += round_trip;
        }
    }

    #[test]
    fn slow_start_doubles_in_a_round_trip() {
        let mut controller = limited();
        for _ in 0..10 {
            controller.on_acknowledged(1, 1, 1_200, ROUND_TRIP);
        }
        assert_eq!(controller.window(), 24_000);
    }

    /// RFC 9438 §4.2: W(t) = C (t - K)^3 + W_max with K = cbrt(W_max (1 - beta) / C). The window follows it
    /// within a round trip.
    #[test]
    fn the_window_follows_the_formula() {
        let most = 1_000.0_f64;
        let climb = (most * 0.3 / 0.4).cbrt();
        for seconds in [2, 5, 9, 12, 15] {
            let mut controller = after_loss(1_000);
            fill(&mut controller, 0, seconds * SECOND, ROUND_TRIP);
            let formula = |at: f64| most + 0.4 * (at - climb).powi(3);
            let (now, step) = (seconds as f64, ROUND_TRIP as f64 / 1e6);
            let datagrams = controller.window / SEGMENT;
            let slack = 2.0;
            let range = formula(now - step) - slack..=formula(now + step) + slack;
            assert!(range.contains(&datagrams), "after {seconds} s: {datagrams}, not in {range:?}");
        }
    }

    #[test]
    fn on_a_short_path_it_grows_as_reno_does() {
        let mut controller = after_loss(20);
        let before = controller.window / SEGMENT;
        fill(&mut controller, 0, 100_000, 10_000);
        let grown = controller.window / SEGMENT - before;
        assert!((10.0 * RENO_GROWTH * 0.9..10.0).contains(&grown), "{grown} in ten round trips");
        let before = controller.window / SEGMENT;
        controller.prior = 0.0;
        controller.epoch.as_mut().unwrap().catches_up_at = 0.0;
        fill(&mut controller, 100_000, 200_000, 10_000);
        let grown = controller.window / SEGMENT - before;
        assert!((9.0..11.0).contains(&grown), "past the window before the loss: {grown}");
    }

    #[test]
    fn one_round_trip_of_losses_shrinks_once() {
        let mut controller = limited();
        controller.on_lost(100, 50);
        controller.on_lost(110, 100);
        assert_eq!(controller.window(), 8_400);
        controller.on_lost(120, 101);
        assert_eq!(controller.window(), 5_880);
        for round in 1..10 {
            controller.on_lost(120 + 10 * round, 115 + 10 * round);
        }
        assert_eq!(controller.window(), 2_400, "never below two datagrams");
    }

    #[test]
    fn a_squeezed_window_gives_way() {
        let mut controller = after_loss(100);
        assert!((controller.plateau - 100.0 * SEGMENT).abs() < 1.0);
        controller.on_lost(20, 10);
        assert!((controller.plateau - 70.0 * 0.85 * SEGMENT).abs() < 1.0, "RFC 9438 §4.7");
    }

    #[test]
    fn time_in_which_the_window_is_not_filled_does_not_count() {
        let mut busy = after_loss(1_000);
        fill(&mut busy, 0, 4 * SECOND, ROUND_TRIP);
        let mut pausing = after_loss(1_000);
        fill(&mut pausing, 0, 2 * SECOND, ROUND_TRIP);
        pausing.set_limiting(false);
        pausing.on_acknowledged(2 * SECOND + 1, 2 * SECOND, 1_200, ROUND_TRIP);
        pausing.set_limiting(true);
        fill(&mut pausing, 62 * SECOND, 64 * SECOND, ROUND_TRIP);
        assert!((busy.window - pausing.window).abs() < 3.0 * SEGMENT, "{} {}", busy.window, pausing.window);
    }

    #[test]
    fn a_window_that_does_not_limit_does_not_grow() {
        let mut controller = limited();
        controller.set_limiting(false);
        controller.on_acknowledged(1, 1, 50_000, ROUND_TRIP);
        assert_eq!(controller.window(), 12_000);
    }

    #[test]
    fn persistent_congestion_starts_slowly_again() {
        let mut controller = limited();
        controller.on_lost(100, 50);
        controller.on_persistent_congestion();
        assert_eq!(controller.window(), 2_400);
        controller.on_acknowledged(100, 90, 1_200, ROUND_TRIP);
        assert_eq!(controller.window(), 3_600);
    }

    #[test]
    fn a_large_datagram_fits_the_first_window() {
        assert_eq!(Cubic::new(65_507).window(), 131_014);
    }

    /// One round of ten samples; returns the phase at its end.
    fn round(slow_start: &mut HyStart, number: u64, round_trip: Micros) -> Phase {
        let start = number * 1_000_000;
        (0..10)
            .map(|sample| slow_start.on_round_trip(start + sample, start - (sample != 0) as u64, round_trip))
            .last()
            .unwrap()
    }

    #[test]
    fn a_longer_round_trip_slows_it_down_and_five_rounds_end_it() {
        let mut slow_start = HyStart::new();
        assert_eq!(round(&mut slow_start, 1, 40_000), Phase::Fast);
        assert_eq!(round(&mut slow_start, 2, 44_999), Phase::Fast, "an eighth of 40 ms is allowed");
        assert_eq!(round(&mut slow_start, 3, 44_999 + 44_999 / 8), Phase::Conservative);
        assert_eq!(slow_start.divisor(), 4);
        for number in 4..8 {
            assert_eq!(round(&mut slow_start, number, 60_000), Phase::Conservative);
        }
        assert_eq!(round(&mut slow_start, 8, 60_000), Phase::Over);
    }

    #[test]
    fn it_goes_on_where_the_delay_was_a_passing_one() {
        let mut slow_start = HyStart::new();
        round(&mut slow_start, 1, 40_000);
        assert_eq!(round(&mut slow_start, 2, 60_000), Phase::Conservative);
        assert_eq!(round(&mut slow_start, 3, 50_000), Phase::Fast);
        assert_eq!(slow_start.divisor(), 1);
    }

    #[test]
    fn a_short_path_may_vary_by_milliseconds() {
        let mut slow_start = HyStart::new();
        for number in 1..20 {
            assert_eq!(round(&mut slow_start, number, if number % 2 == 0 { 50 } else { 4_000 }), Phase::Fast);
        }
    }
}
