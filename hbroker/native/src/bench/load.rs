//! One load: how many messages each publisher may send now, and what its subscribers received.
//!
//! *Closed*: a publisher has a window of messages under way, so the broker is asked for all that it can do and never for more. A
//! message is under way until its subscribers have it or a later one: what is lost does not narrow the window, as long as
//! anything comes. Where nothing does, what is under way is written off (a *stall*), so that the load goes on. *Open*: as fast as
//! the transport takes them. *Paced*: messages are due at equal distances, the publishers in turn, and count from then, however late they leave.
//!
//! A publisher's topics come in turn, so the number of a message says which it is of. Loss and order are those of each topic.

use std::iter::Sum;
use std::ops::Range;

use hdrhistogram::Histogram;

use super::Nanos;
use super::checker::{Arrival, Reception};
use super::pace::Pace;
use super::payload::{Stamp, Template};

/// Nothing came for so long while the windows were full: and for as long as a broker takes that passes on a million copies a second, and
/// all that is under way before the first of them. (One message may have 64,000.)
const STALL: Nanos = 250_000_000;
const COPY: Nanos = 1_000;
/// Looks are no further apart, unless whoever looks was held up himself: what came meanwhile he has still to see.
const HELD_UP: Nanos = 100_000_000;
/// Times are counted in steps of 64 ns and up to ten minutes, to three digits.
const TIMES: (Nanos, Nanos, u8) = (100, 600_000_000_000, 3);

/// What a load is.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The publishers, numbered through.
    pub groups: Vec<Group>,
    /// Of each subscriber: the publishers from whom it gets messages.
    pub subscribers: Vec<Range<usize>>,
    /// Of each publisher; 1 at least.
    pub topics: u64,
    pub payload: usize,
    pub qos: u8,
    /// Its thread asks for news without sleeping: it takes all of a CPU, and no time to be woken.
    pub polls: bool,
}

/// Publishers that have one pace, and are counted together.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    pub publishers: usize,
    /// Messages that each may have under way; `None`: open loop.
    pub window: Option<u64>,
    /// Messages a second of all together; `None`: as fast as they may.
    pub rate: Option<f64>,
}

impl Plan {
    pub fn publishers(&self) -> usize {
        self.groups.iter().map(|group| group.publishers).sum()
    }

    /// Which of its publisher's topics a message is of, and its number among those of the topic.
    fn topic_and_number(&self, number: u64) -> (usize, u64) {
        // Most loads have one, and a division costs as much as the check.
        if self.topics == 1 { (0, number) } else { ((number % self.topics) as usize, number / self.topics) }
    }
}

/// What came of a group so far. `lost` also has what is still under way.
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

/// How long messages of a group took.
#[derive(Clone)]
pub struct Times {
    /// From when they were due, or were sent, to when their subscribers had them.
    pub latency: Histogram<u64>,
    /// Of a paced group: from when they were due to when they left.
    pub lateness: Histogram<u64>,
}

impl Times {
    fn new() -> Self {
        Self { latency: histogram(), lateness: histogram() }
    }

    /// Those of all groups.
    pub fn merged<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut merged = Self::new();
        for one in all {
            // They have one range.
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
    /// The copies that its subscribers have, or will never have.
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

/// What one subscriber has of one publisher.
struct Received {
    /// One more than the highest number that came.
    reached: u64,
    topics: Box<[Reception]>,
}

/// What is known of a group but for what its subscribers have.
struct GroupState {
    counts: Counts,
    times: Times,
    /// When something last came, or the windows were written off.
    moved: Nanos,
    /// How long it may take until something comes.
    patience: Nanos,
}

/// One load as it runs.
pub struct Load {
    plan: Plan,
    streams: Vec<Stream>,
    subscribers: Vec<Subscriber>,
    group_states: Vec<GroupState>,
    template: Template,
    /// When it began; `None`: it has not, or is over.
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

    /// Publishers may send from now on.
    pub fn start(&mut self, now: Nanos) {
        self.running = Some(now);
        self.looked = now;
        self.group_states.iter_mut().for_each(|group_state| group_state.moved = now);
    }

    /// No publisher may send any more. What is under way still counts when it comes.
    pub fn stop(&mut self) {
        self.running = None;
    }

    /// Times are counted anew.
    pub fn forget_times(&mut self) {
        for GroupState { times, .. } in &mut self.group_states {
            times.latency.reset();
            times.lateness.reset();
        }
    }

    /// Which of its topics a publisher's next message is of.
    pub fn next_topic(&self, stream: usize) -> usize {
        self.plan.topic_and_number(self.streams[stream].sent).0
    }

    /// The payload of a publisher's next message, which may be sent now.
    pub fn next_payload(&mut self, stream: usize, now: Nanos) -> &[u8] {
        let due = self.due_at(stream).unwrap_or(now).min(now);
        self.template.stamped(Stamp { due, stream, number: self.streams[stream].sent })
    }

    /// That payload is on its way.
    pub fn note_sent(&mut self, stream: usize, now: Nanos) {
        let due = self.due_at(stream);
        let group_state = &mut self.group_states[self.streams[stream].group];
        if let Some(due) = due {
            group_state.times.lateness.saturating_record(now.saturating_sub(due));
        }
        group_state.counts.sent += 1;
        self.streams[stream].sent += 1;
    }

    /// The broker answered so many of a publisher's messages.
    pub fn note_answers(&mut self, stream: usize, count: u64, is_success: bool) {
        let counts = &mut self.group_states[self.streams[stream].group].counts;
        *(if is_success { &mut counts.acknowledged } else { &mut counts.refused }) += count;
    }

    /// A subscriber received something.
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

    /// Writes off what is under way where nothing has come for long. To be called every 50 ms.
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

    /// Whether a publisher, or else a subscriber, is of a group that keeps to a rate beside others that do not.
    pub fn is_prompt(&self, stream: Option<usize>, subscriber: Option<usize>) -> bool {
        let received = |subscriber: usize| self.subscribers.get(subscriber).map(|one| one.first);
        let stream = stream.or_else(|| received(subscriber?)).and_then(|stream| self.streams.get(stream));
        stream.is_some_and(|one| one.pace.is_paced()) && !self.streams.iter().all(|one| one.pace.is_paced())
    }

    /// When the next message of a paced publisher is due; `None`: none is paced, or their windows are full.
    pub fn next_due(&self) -> Option<Nanos> {
        let start = self.running?;
        let due = |stream: &Stream| {
            let due = stream.pace.due(stream.sent)?;
            (stream.pace.room(stream.under_way()) > 0).then_some(start + due)
        };
        self.streams.iter().filter_map(due).min()
    }

    /// Everything that was counted, now, of each group.
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

    /// How long messages took, of each group.
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
