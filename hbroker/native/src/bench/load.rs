//! A load: how many messages each publisher may send now, and what its subscribers received.
//!
//! A group of publishers sends in one of these ways:
//!
//! - *Closed*: each publisher has a window of messages in flight, so the broker gets as much as it can take
//!   and never more. A message is in flight until its subscribers have received it or a later one, so a lost
//!   message does not narrow the window while others arrive. If nothing arrives any more, the messages in
//!   flight are written off (a *stall*), so that the load goes on.
//! - *Open*: each publisher sends as fast as the transport takes messages.
//! - *Paced*: messages are due at equal distances, and the publishers take turns. The latency of a message
//!   counts from when it is due, however late it leaves.
//!
//! A publisher uses its topics in rotation, so the number of a message determines its topic. Loss and order
//! are counted for each topic.

use std::iter::Sum;
use std::ops::Range;

use hdrhistogram::Histogram;

use super::Nanos;
use super::checker::{Arrival, Reception};
use super::pace::{Group, Pace};
use super::payload::{Stamp, Template};

/// When full windows count as stalled: nothing has arrived for `STALL`, plus `COPY` for each copy in flight.
/// That is the time of a broker that sends a million copies a second, and receives all messages in flight
/// before it sends the first copy. (One message may have 64,000 copies.)
const STALL: Nanos = 250_000_000;
const COPY: Nanos = 1_000;
/// `look` is called more often than this. If more time has passed, the thread itself was delayed and has not
/// seen what arrived meanwhile.
const HELD_UP: Nanos = 100_000_000;
/// The range and precision of the recorded times: from 100 ns to ten minutes, with three digits.
const TIMES: (Nanos, Nanos, u8) = (100, 600_000_000_000, 3);

/// The definition of a load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Groups of publishers. The publishers are numbered across the groups.
    pub groups: Vec<Group>,
    /// For each subscriber: the publishers whose messages it receives.
    pub subscribers: Vec<Range<usize>>,
    /// The number of topics of each publisher; at least 1.
    pub topics: u64,
    pub payload: usize,
    pub qos: u8,
    /// The thread polls without sleeping: it uses a whole CPU, and needs no time to wake up.
    pub polls: bool,
}

impl Plan {
    pub fn publishers(&self) -> usize {
        self.groups.iter().map(|group| group.publishers).sum()
    }

    /// Which of its publisher's topics a message has, and its number in that topic.
    fn topic_and_number(&self, number: u64) -> (usize, u64) {
        // Most loads have one topic, and a division would cost as much as the check.
        if self.topics == 1 { (0, number) } else { ((number % self.topics) as usize, number / self.topics) }
    }
}

/// The counters of a group. `lost` includes messages in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub sent: u64,
    /// Copies that were received for the first time.
    pub delivered: u64,
    pub lost: u64,
    pub duplicated: u64,
    pub disordered: u64,
    /// Payloads that are not of this load, or were altered.
    pub damaged: u64,
    pub acknowledged: u64,
    /// Messages that the broker answered with a failure.
    pub refused: u64,
    pub stalls: u64,
}

impl<'a> Sum<&'a Self> for Counts {
    fn sum<I: Iterator<Item = &'a Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, one| Self {
            sent: sum.sent + one.sent,
            delivered: sum.delivered + one.delivered,
            lost: sum.lost + one.lost,
            duplicated: sum.duplicated + one.duplicated,
            disordered: sum.disordered + one.disordered,
            damaged: sum.damaged + one.damaged,
            acknowledged: sum.acknowledged + one.acknowledged,
            refused: sum.refused + one.refused,
            stalls: sum.stalls + one.stalls,
        })
    }
}

/// The times of a group's messages.
#[derive(Clone)]
pub struct Times {
    /// From when a message was due, or sent, until a subscriber received it.
    pub latency: Histogram<u64>,
    /// Of a paced group: from when a message was due until it was sent.
    pub lateness: Histogram<u64>,
}

impl Times {
    fn new() -> Self {
        Self { latency: histogram(), lateness: histogram() }
    }

    /// The times of all groups together.
    pub fn merged<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut merged = Self::new();
        for one in all {
            // All histograms have the same range.
            let _ = merged.latency.add(&one.latency);
            let _ = merged.lateness.add(&one.lateness);
        }
        merged
    }
}

struct Stream {
    group: usize,
    pace: Pace,
    subscribers: u64,
    sent: u64,
    /// The copies that its subscribers have received, or will never receive.
    settled: u64,
}

impl Stream {
    fn under_way(&self) -> u64 {
        (self.sent * self.subscribers - self.settled).div_ceil(self.subscribers.max(1))
    }
}

struct Subscriber {
    first: usize,
    received: Vec<Received>,
}

/// What one subscriber received of one publisher.
struct Received {
    /// One more than the highest number that was received.
    reached: u64,
    topics: Box<[Reception]>,
}

/// The state of a group, without what its subscribers received.
struct GroupState {
    counts: Counts,
    times: Times,
    /// When a message was last received, or the windows were written off.
    moved: Nanos,
    /// How long the group may receive nothing before it counts as stalled.
    patience: Nanos,
}

/// A running load.
pub struct Load {
    plan: Plan,
    streams: Vec<Stream>,
    subscribers: Vec<Subscriber>,
    group_states: Vec<GroupState>,
    template: Template,
    /// When it began; `None`: it has not begun, or is over.
    running: Option<Nanos>,
    looked: Nanos,
}

impl Load {
    pub fn new(plan: Plan) -> Self {
        let received =
            || Received { reached: 0, topics: (0..plan.topics).map(|_| Reception::default()).collect() };
        let subscriber = |range: &Range<usize>| Subscriber {
            first: range.start,
            received: range.clone().map(|_| received()).collect(),
        };
        let streams = streams(&plan);
        let group_state = |(group, settings): (usize, &Group)| {
            let copies: u64 =
                streams.iter().filter(|one| one.group == group).map(|one| one.subscribers).sum();
            let under_way = settings.window.unwrap_or(0).saturating_mul(copies);
            let patience = STALL.saturating_add(under_way.saturating_mul(COPY));
            GroupState { counts: Counts::default(), times: Times::new(), moved: 0, patience }
        };
        Self {
            subscribers: plan.subscribers.iter().map(subscriber).collect(),
            group_states: plan.groups.iter().enumerate().map(group_state).collect(),
            streams,
            template: Template::new(plan.payload),
            running: None,
            looked: 0,
            plan,
        }
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    // Change

    /// Starts the load: publishers may send from now on.
    pub fn start(&mut self, now: Nanos) {
        self.running = Some(now);
        self.looked = now;
        self.group_states.iter_mut().for_each(|group_state| group_state.moved = now);
    }

    /// Stops the publishers. Messages in flight still count when they are received.
    pub fn stop(&mut self) {
        self.running = None;
    }

    /// Clears the recorded times.
    pub fn forget_times(&mut self) {
        for GroupState { times, .. } in &mut self.group_states {
            times.latency.reset();
            times.lateness.reset();
        }
    }

    /// The index of the topic of a publisher's next message.
    pub fn next_topic(&self, stream: usize) -> usize {
        self.plan.topic_and_number(self.streams[stream].sent).0
    }

    /// The payload of a publisher's next message. The caller has checked that it may be sent now.
    pub fn next_payload(&mut self, stream: usize, now: Nanos) -> &[u8] {
        let due = self.due_at(stream).unwrap_or(now).min(now);
        self.template.stamped(Stamp { due, stream, number: self.streams[stream].sent })
    }

    /// Records that the payload was sent.
    pub fn note_sent(&mut self, stream: usize, now: Nanos) {
        let due = self.due_at(stream);
        let group_state = &mut self.group_states[self.streams[stream].group];
        if let Some(due) = due {
            group_state.times.lateness.saturating_record(now.saturating_sub(due));
        }
        group_state.counts.sent += 1;
        self.streams[stream].sent += 1;
    }

    /// Records answers of the broker to a publisher's messages.
    pub fn note_answers(&mut self, stream: usize, count: u64, is_success: bool) {
        let counts = &mut self.group_states[self.streams[stream].group].counts;
        *(if is_success { &mut counts.acknowledged } else { &mut counts.refused }) += count;
    }

    /// Records a payload that a subscriber received.
    pub fn note_received(&mut self, subscriber: usize, payload: &[u8], now: Nanos) {
        let Subscriber { first, received } = &mut self.subscribers[subscriber];
        let group_state = &mut self.group_states[self.streams[*first].group];
        group_state.moved = now;
        let Some(stamp) = self.template.read(payload) else {
            group_state.counts.damaged += 1;
            return;
        };
        let sent = self.streams.get(stamp.stream).map_or(0, |stream| stream.sent);
        let received = received.get_mut(stamp.stream.wrapping_sub(*first));
        let Some(received) = received.filter(|_| stamp.number < sent) else {
            group_state.counts.damaged += 1;
            return;
        };
        let stream = &mut self.streams[stamp.stream];
        let group_state = &mut self.group_states[stream.group];
        group_state.moved = now;
        let (topic, number) = self.plan.topic_and_number(stamp.number);
        match received.topics[topic].note(number) {
            Arrival::InOrder => {}
            Arrival::Late => group_state.counts.disordered += 1,
            Arrival::Again => {
                group_state.counts.duplicated += 1;
                return;
            }
        }
        let before = received.reached;
        received.reached = before.max(stamp.number + 1);
        let most = stream.sent * stream.subscribers;
        stream.settled = most.min(stream.settled + (received.reached - before));
        group_state.times.latency.saturating_record(now.saturating_sub(stamp.due));
    }

    /// Writes off the messages in flight of groups that have stalled. To be called every 50 ms.
    pub fn look(&mut self, now: Nanos) {
        if self.running.is_none() {
            return;
        }
        let passed = now.saturating_sub(std::mem::replace(&mut self.looked, now));
        for (group, group_state) in self.group_states.iter_mut().enumerate() {
            if passed > HELD_UP {
                group_state.moved += passed;
            }
            if now.saturating_sub(group_state.moved) < group_state.patience {
                continue;
            }
            group_state.moved = now;
            let of_group = |stream: &Stream| stream.group == group;
            let mut streams = self.streams.iter().filter(|stream| of_group(stream));
            if streams.all(|stream| stream.pace.is_full(stream.under_way())) {
                group_state.counts.stalls += 1;
                let streams = self.streams.iter_mut().filter(|stream| of_group(stream));
                streams.for_each(|stream| stream.settled = stream.sent * stream.subscribers);
            }
        }
    }

    // Read

    /// How many messages a publisher may send now.
    pub fn may_send(&self, stream: usize, now: Nanos) -> u64 {
        let Some(start) = self.running else { return 0 };
        let stream = &self.streams[stream];
        stream.pace.allows(now.saturating_sub(start), stream.sent, stream.under_way())
    }

    /// Whether the group of a publisher, or else of a subscriber, keeps to a rate in a load in which others
    /// do not.
    pub fn is_prompt(&self, stream: Option<usize>, subscriber: Option<usize>) -> bool {
        let received = |subscriber: usize| self.subscribers.get(subscriber).map(|one| one.first);
        let stream = stream.or_else(|| received(subscriber?)).and_then(|stream| self.streams.get(stream));
        stream.is_some_and(|one| one.pace.is_paced()) && !self.streams.iter().all(|one| one.pace.is_paced())
    }

    /// When the next message of a paced publisher is due; `None`: there is no paced publisher with room in
    /// its window.
    pub fn next_due(&self) -> Option<Nanos> {
        let start = self.running?;
        let due = |stream: &Stream| {
            let due = stream.pace.due(stream.sent)?;
            (stream.pace.room(stream.under_way()) > 0).then_some(start + due)
        };
        self.streams.iter().filter_map(due).min()
    }

    /// The counters of each group.
    pub fn counts(&self) -> Vec<Counts> {
        let mut counts: Vec<_> =
            self.group_states.iter().map(|group_state| group_state.counts.clone()).collect();
        for Subscriber { first, received } in &self.subscribers {
            for (received, stream) in received.iter().zip(&self.streams[*first..]) {
                counts[stream.group].delivered +=
                    received.topics.iter().map(Reception::received).sum::<u64>();
            }
        }
        for stream in &self.streams {
            counts[stream.group].lost += stream.sent * stream.subscribers;
        }
        counts.iter_mut().for_each(|one| one.lost = one.lost.saturating_sub(one.delivered));
        counts
    }

    /// The times of each group.
    pub fn times(&self) -> impl Iterator<Item = &Times> {
        self.group_states.iter().map(|group_state| &group_state.times)
    }

    /// When the next message of a publisher is due; `None`: it is not paced, or the load is not running.
    fn due_at(&self, stream: usize) -> Option<Nanos> {
        let stream = &self.streams[stream];
        self.running.and_then(|start| Some(start + stream.pace.due(stream.sent)?))
    }
}

fn streams(plan: &Plan) -> Vec<Stream> {
    let mut streams: Vec<Stream> = Vec::new();
    for (group, settings) in plan.groups.iter().enumerate() {
        let stream = |position| Stream {
            group,
            pace: Pace::of(settings, position),
            subscribers: 0,
            sent: 0,
            settled: 0,
        };
        streams.extend((0..settings.publishers).map(stream));
    }
    for range in &plan.subscribers {
        streams[range.clone()].iter_mut().for_each(|stream| stream.subscribers += 1);
    }
    streams
}

fn histogram() -> Histogram<u64> {
    let (least, most, digits) = TIMES;
    Histogram::new_with_bounds(least, most, digits).expect("the bounds are valid")
}
