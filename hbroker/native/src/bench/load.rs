//! One load: how many messages each publisher may send now, and what its subscribers received.
//!
//! *Closed*: a publisher has a window of messages under way, so the broker is asked for all that it can do and never for more. A
//! message is under way until its subscribers have it or a later one: what is lost does not narrow the window, as long as
//! anything comes. Where nothing does, what is under way is written off (a *stall*), so that the load goes on. *Open*: as fast as
//! the transport takes them. *Paced*: messages are due at equal distances, the publishers in turn, and count from then, however late they leave.

use std::ops::Range;

use hdrhistogram::Histogram;

use super::Nanos;
use super::checker::{Arrival, Reception};
use super::payload::{Stamp, Template};

/// Nothing came for so long while the windows were full.
const STALL: Nanos = 250_000_000;
/// In a closed loop a publisher waits until it may send so many, or a quarter of its window, so that they leave together.
const FLOCK: u64 = 128;
/// Times are counted in steps of 64 ns and up to ten minutes, to three digits.
const TIMES: (Nanos, Nanos, u8) = (100, 600_000_000_000, 3);

/// What a load is.
#[derive(Clone, Debug)]
pub struct Plan {
    pub publishers: usize,
    /// Of each subscriber: the publishers from whom it gets messages.
    pub subscribers: Vec<Range<usize>>,
    pub payload: usize,
    pub qos: u8,
    /// Messages that one publisher may have under way; `None`: open loop.
    pub window: Option<u64>,
    /// Messages a second of all publishers together; `None`: as fast as they may.
    pub rate: Option<f64>,
}

/// What came of it so far. `lost` also has what is still under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub sent: u64,
    /// Copies that came for the first time.
    pub delivered: u64,
    pub lost: u64,
    pub duplicated: u64,
    pub disordered: u64,
    /// What was no message of this load, or not as it was sent.
    pub damaged: u64,
    pub acknowledged: u64,
    /// Messages that the broker answered with a failure.
    pub refused: u64,
    pub stalls: u64,
}

struct Stream {
    subscribers: u64,
    sent: u64,
    /// The copies that its subscribers have, or will never have.
    settled: u64,
}

struct Subscriber {
    first: usize,
    receptions: Vec<Reception>,
}

/// One load as it runs.
pub struct Load {
    plan: Plan,
    streams: Vec<Stream>,
    subscribers: Vec<Subscriber>,
    template: Template,
    /// When it began; `None`: it has not, or is over.
    running: Option<Nanos>,
    counts: Counts,
    /// When something last came, or the windows were written off.
    moved: Nanos,
    latency: Histogram<u64>,
    lateness: Histogram<u64>,
}

impl Load {
    pub fn new(plan: Plan) -> Self {
        let heard = |stream: usize| plan.subscribers.iter().filter(|range| range.contains(&stream)).count();
        let stream = |number| Stream { subscribers: heard(number) as u64, sent: 0, settled: 0 };
        let receptions = |range: &Range<usize>| range.clone().map(|_| Reception::default()).collect();
        let subscriber = |range| Subscriber { first: range_start(range), receptions: receptions(range) };
        Self {
            streams: (0..plan.publishers).map(stream).collect(),
            subscribers: plan.subscribers.iter().map(subscriber).collect(),
            template: Template::new(plan.payload),
            running: None,
            counts: Counts::default(),
            moved: 0,
            latency: histogram(),
            lateness: histogram(),
            plan,
        }
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    // Change

    /// Publishers may send from now on.
    pub fn start(&mut self, now: Nanos) {
        self.running = Some(now);
        self.moved = now;
    }

    /// No publisher may send any more. What is under way still counts when it comes.
    pub fn stop(&mut self) {
        self.running = None;
    }

    /// Times are counted anew.
    pub fn forget_times(&mut self) {
        self.latency.reset();
        self.lateness.reset();
    }

    /// The payload of a publisher's next message, which may be sent now.
    pub fn next_payload(&mut self, stream: usize, now: Nanos) -> &[u8] {
        let due = self.due_at(stream).unwrap_or(now).min(now);
        self.template.stamped(Stamp { due, stream, number: self.streams[stream].sent })
    }

    /// That payload is on its way.
    pub fn note_sent(&mut self, stream: usize, now: Nanos) {
        if let Some(due) = self.due_at(stream) {
            self.lateness.saturating_record(now.saturating_sub(due));
        }
        self.streams[stream].sent += 1;
        self.counts.sent += 1;
    }

    /// The broker answered a publisher.
    pub fn note_answer(&mut self, is_success: bool) {
        *(if is_success { &mut self.counts.acknowledged } else { &mut self.counts.refused }) += 1;
    }

    /// A subscriber received something.
    pub fn note_received(&mut self, subscriber: usize, payload: &[u8], now: Nanos) {
        self.moved = now;
        let Some(stamp) = self.template.read(payload) else {
            self.counts.damaged += 1;
            return;
        };
        let Subscriber { first, receptions } = &mut self.subscribers[subscriber];
        let index = stamp.stream.wrapping_sub(*first);
        let sent = self.streams.get(stamp.stream).map_or(0, |stream| stream.sent);
        let Some(reception) = receptions.get_mut(index).filter(|_| stamp.number < sent) else {
            self.counts.damaged += 1;
            return;
        };
        let reached = reception.reached();
        match reception.note(stamp.number) {
            Arrival::InOrder => {}
            Arrival::Late => self.counts.disordered += 1,
            Arrival::Again => {
                self.counts.duplicated += 1;
                return;
            }
        }
        let stream = &mut self.streams[stamp.stream];
        let most = stream.sent * stream.subscribers;
        stream.settled = most.min(stream.settled + (reception.reached() - reached));
        self.latency.saturating_record(now.saturating_sub(stamp.due));
    }

    /// Writes off what is under way where nothing has come for long. To be called now and then.
    pub fn look(&mut self, now: Nanos) {
        if self.running.is_none() || now.saturating_sub(self.moved) < STALL {
            return;
        }
        self.moved = now;
        if self.plan.window.is_some() && self.streams.iter().all(|stream| self.room(stream) < self.flock()) {
            self.counts.stalls += 1;
            self.streams.iter_mut().for_each(|stream| stream.settled = stream.sent * stream.subscribers);
        }
    }

    // Read

    /// How many messages a publisher may send now.
    pub fn may_send(&self, stream: usize, now: Nanos) -> u64 {
        let Some(start) = self.running else { return 0 };
        let room = self.room(&self.streams[stream]);
        match self.plan.rate {
            None if room >= self.flock() => room,
            None => 0,
            Some(rate) => {
                let passed = now.saturating_sub(start) as f64 * rate / 1e9 - stream as f64;
                let due = if passed < 0.0 { 0 } else { (passed / self.streams.len() as f64) as u64 + 1 };
                room.min(due.saturating_sub(self.streams[stream].sent))
            }
        }
    }

    /// When the next message of a paced load is due; `None`: it is not paced, or windows are full.
    pub fn next_due(&self) -> Option<Nanos> {
        self.plan.rate?;
        let open = self.streams.iter().enumerate().filter(|(_, stream)| self.room(stream) > 0);
        open.filter_map(|(number, _)| self.due_at(number)).min()
    }

    /// Everything that was counted, now.
    pub fn counts(&self) -> Counts {
        let received =
            |subscriber: &Subscriber| -> u64 { subscriber.receptions.iter().map(Reception::received).sum() };
        let delivered = self.subscribers.iter().map(received).sum();
        let copies: u64 = self.streams.iter().map(|stream| stream.sent * stream.subscribers).sum();
        Counts { delivered, lost: copies.saturating_sub(delivered), ..self.counts.clone() }
    }

    /// Of messages: from when they were due to when their subscribers had them.
    pub fn latency(&self) -> &Histogram<u64> {
        &self.latency
    }

    /// Of messages of a paced load: from when they were due to when they left.
    pub fn lateness(&self) -> &Histogram<u64> {
        &self.lateness
    }

    fn flock(&self) -> u64 {
        self.plan.window.map_or(1, |window| (window / 4).clamp(1, FLOCK))
    }

    fn room(&self, stream: &Stream) -> u64 {
        let Some(window) = self.plan.window else { return u64::MAX };
        let under_way = stream.sent * stream.subscribers - stream.settled;
        window.saturating_sub(under_way.div_ceil(stream.subscribers.max(1)))
    }

    /// When the next message of a publisher is due; `None`: the load is not paced, or not running.
    fn due_at(&self, stream: usize) -> Option<Nanos> {
        let (start, rate) = (self.running?, self.plan.rate?);
        let number = self.streams[stream].sent * self.streams.len() as u64 + stream as u64;
        Some(start + (number as f64 * 1e9 / rate) as Nanos)
    }
}

fn range_start(range: &Range<usize>) -> usize {
    range.start
}

fn histogram() -> Histogram<u64> {
    let (least, most, digits) = TIMES;
    Histogram::new_with_bounds(least, most, digits).expect("the bounds are valid")
}
