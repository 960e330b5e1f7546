//! A histogram of latency: from the receipt of a message until its first copy was passed to the socket.
//!
//! Bucket i counts from 2^(i/4) to 2^((i+1)/4) microseconds. If there are many messages, only one in `every`
//! is timed. `every` is set for each interval, so that some thousands of messages are timed whatever the load
//! is. If an interval has more messages than the last one predicted (a burst after a quiet time), `every`
//! doubles during the interval, and half of the counts are dropped. A timed message has a [`Sample`], which
//! all its copies share. The first copy that leaves ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Micros;
use crate::load::spans::Traced;

pub const BUCKETS: usize = 96;
/// About how many messages are timed in an interval, and the highest value of `every`.
const TIMED: u64 = 2_048;
const MOST_EVERY: u32 = 256;

/// The time of receipt of a timed message, and what its spans need.
#[derive(Debug)]
pub struct Sample {
    received: Micros,
    is_over: AtomicBool,
    traced: Option<Arc<Traced>>,
}

impl Sample {
    pub fn new(received: Micros) -> Self {
        Self { received, is_over: AtomicBool::new(false), traced: None }
    }

    /// Of a message that has spans. It is not timed.
    pub fn traced(traced: Arc<Traced>) -> Self {
        Self { received: traced.started, is_over: AtomicBool::new(true), traced: Some(traced) }
    }

    /// What its spans need; `None`: the message has none.
    pub fn spans(&self) -> Option<&Arc<Traced>> {
        self.traced.as_ref()
    }

    /// The time of receipt, for the first copy that leaves; `None` for the others.
    pub fn end(&self) -> Option<Micros> {
        let is_first = !self.is_over.swap(true, Ordering::Relaxed);
        is_first.then_some(self.received)
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// Chooses the messages to time: one in `every`.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    every: u32,
    left: u32,
}

impl Rate {
    /// 0: no message is timed.
    pub fn new(every: u32) -> Self {
        Self { every, left: 1 }
    }

    pub fn set(&mut self, every: u32) {
        if every != self.every {
            *self = Self::new(every);
        }
    }

    /// Whether the next message is timed.
    pub fn is_due(&mut self) -> bool {
        self.due_among(1).next().is_some()
    }

    /// Which of the next `count` messages are timed, by index.
    pub fn due_among(&mut self, count: u32) -> impl Iterator<Item = u32> + Clone + use<> {
        let (first, every) = (self.left, self.every);
        if every > 0 {
            // After the last timed message a whole period begins; the messages behind it are subtracted.
            self.left = if count < first { first - count } else { every - (count - first) % every };
        }
        (first..=count).step_by(every.max(1) as usize).filter(move |_| every > 0).map(|position| position - 1)
    }

    pub fn every(&self) -> u32 {
        self.every
    }
}

/// The histogram of one worker.
#[derive(Clone)]
pub struct Latency {
    rate: Rate,
    /// Samples since the interval began, or what is left of them when `every` doubled.
    begun: u64,
    counts: [u64; BUCKETS],
}

impl Default for Latency {
    fn default() -> Self {
        Self { rate: Rate::new(1), begun: 0, counts: [0; BUCKETS] }
    }
}

impl Latency {
    /// A sample, if the message that was received now is to be timed.
    pub fn begin(&mut self, now: Micros) -> Option<Arc<Sample>> {
        self.begin_among(now, 1).next().map(|(_, sample)| sample)
    }

    /// The samples for `count` messages that were received now, each with its message's index.
    pub fn begin_among(
        &mut self,
        now: Micros,
        count: u32,
    ) -> impl Iterator<Item = (u32, Arc<Sample>)> + use<> {
        if self.begun >= 2 * TIMED && self.every() < MOST_EVERY {
            self.thin_out();
        }
        let due = self.rate.due_among(count);
        self.begun += due.clone().count() as u64;
        due.map(move |position| (position, Arc::new(Sample::new(now))))
    }

    /// Doubles `every`, and keeps half of the counts. Samples that have not ended count as later ones.
    fn thin_out(&mut self) {
        self.rate = Rate::new(2 * self.every());
        self.begun /= 2;
        let mut odd = 0;
        for count in &mut self.counts {
            let both = *count + odd;
            (*count, odd) = (both / 2, both % 2);
        }
    }

    pub fn note(&mut self, elapsed: Micros) {
        self.counts[bucket_of(elapsed)] += 1;
    }

    /// Clears the histogram; from now on one message in `every` is timed.
    pub fn restart(&mut self, every: u32) {
        *self = Self { rate: Rate::new(every), ..Self::default() };
    }

    /// Adds another histogram. If the two have different values of `every`, the sum has the higher one.
    pub fn absorb(&mut self, other: &Self) {
        let mut other = other.clone();
        while self.every() < other.every() {
            self.thin_out();
        }
        while other.every() < self.every() {
            other.thin_out();
        }
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, count)| *sum += count);
    }

    pub fn every(&self) -> u32 {
        self.rate.every()
    }

    pub fn counts(&self) -> &[u64; BUCKETS] {
        &self.counts
    }
}

/// The value of `every` for an interval with about this many messages.
pub fn rate_for(messages: u64) -> u32 {
    let share = u32::try_from(messages / TIMED).unwrap_or(MOST_EVERY);
    share.clamp(1, MOST_EVERY).next_power_of_two()
}

/// The bucket of a duration. The first also counts all below a microsecond, the last all above its range.
fn bucket_of(elapsed: Micros) -> usize {
    let quarters = (elapsed.max(1) as f64).log2() * 4.0;
    (quarters as usize).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_quarters_of_an_octave() {
        for elapsed in
            (0..100_000).chain((17..64).map(|power| (1 << power) - 1)).chain((17..64).map(|power| 1 << power))
        {
            let bucket = bucket_of(elapsed);
            let edge = |index: usize| 2f64.powf(index as f64 / 4.0);
            assert!(bucket == 0 || edge(bucket) <= elapsed as f64, "{elapsed} is not below bucket {bucket}");
            assert!(
                bucket == BUCKETS - 1 || (elapsed as f64) < edge(bucket + 1),
                "{elapsed} is in bucket {bucket}"
            );
        }
    }

    #[test]
    fn of_many_at_once_the_same_are_timed() {
        for every in [0, 1, 2, 3, 7, 64] {
            let (mut one, mut many, mut number) = (Rate::new(every), Rate::new(every), 0);
            for count in [1, 1, 2, 5, 63, 64, 65, 1, 7, 200] {
                let due: Vec<u32> = many.due_among(count).map(|position| number + position).collect();
                let each = (number..number + count).filter(|_| one.due_among(1).next().is_some());
                assert_eq!(due, each.collect::<Vec<_>>(), "one of {every}");
                number += count;
            }
        }
    }

    #[test]
    fn a_burst_after_a_quiet_time_is_timed_by_thousands_all_along() {
        let mut latency = Latency::default();
        let messages = 1_000_000;
        // Those of its second half take twice as long.
        for now in 0..messages {
            if let Some(sample) = latency.begin(now) {
                latency.note(if sample.end() < Some(messages / 2) { 100 } else { 200 });
            }
        }
        let (early, late) = (latency.counts()[bucket_of(100)], latency.counts()[bucket_of(200)]);
        assert_eq!(latency.every(), 256);
        assert!((1_900..=2_050).contains(&early) && (1_900..=2_050).contains(&late), "{early}, {late}");
        let mut sum = Latency::default();
        (0..100).for_each(|_| sum.note(100));
        sum.absorb(&latency);
        assert_eq!((sum.every(), sum.counts()[bucket_of(100)]), (256, early), "100 of 1 are none of 256");
    }

    #[test]
    fn one_of_so_many_is_timed_and_ends_once() {
        let mut latency = Latency::default();
        for (messages, every) in
            [(0, 1), (4_095, 1), (4_096, 2), (100_000, 64), (5_000_000, 256), (u64::MAX, 256)]
        {
            assert_eq!(rate_for(messages), every, "{messages}");
            latency.restart(every);
            let samples: Vec<_> = (0..1_024).filter_map(|now| latency.begin(now)).collect();
            assert_eq!(samples.len() as u32, 1_024 / every);
            let first = &samples[0];
            assert_eq!((first.end(), first.end(), first.is_over()), (Some(0), None, true));
        }
    }
}
