//! Runs: messages of `QoS` 0 on one topic that came one behind the other in a datagram.
//!
//! A publisher under load fills its datagrams with messages of few topics. What is the same for all of a run, its route, its subscribers'
//! links, the place where it is counted, is looked up once; for each message what is left is to copy its bytes into the bundle
//! that it leaves in. A run is only a shorter way to what [`Engine::forward`] does for each message by itself, and whatever is not plain (a message
//! that is retained, that may expire, that is a part of a larger one, a shared group, a session of another worker) goes that way.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Engine, Side};
use crate::Micros;
use crate::engine::counters::Drop;
use crate::engine::forward::{Forwarder, wants};
use crate::engine::load::Docket;
use crate::engine::outlet::Outlet;
use crate::engine::routes::Route;
use crate::link_id::{LinkId, SessionKey};
use crate::load::latency::Sample;
use crate::load::topics::Mark;
use crate::tables::match_set::Subscriber;
use crate::wire::{Body, PacketView, PublishView};

/// What the telemetry notes of a run (see [`Docket`](crate::engine::load::Docket)).
#[derive(Default)]
pub(super) struct Notes {
    mark: Mark,
    /// Those that are timed, by their place in the run.
    timed: SmallVec<[(usize, Arc<Sample>); 2]>,
}

impl Engine {
    /// Forwards the run that these packets begin with; how many messages that were. 0: they begin with none, or it is not plain.
    pub(super) fn forward_run(&mut self, now: Micros, id: LinkId, packets: &[PacketView<'_>]) -> usize {
        let Side::Node(forwarder) = &mut self.side else {
            return 0;
        };
        let length = run_length(packets);
        // The first message of a link makes its session a publisher's.
        let entry = self.out.links.get(id).filter(|entry| length > 1 && entry.inbound && entry.published);
        let Some(entry) = entry else {
            return 0;
        };
        let source = entry.subscriber;
        if forwarder.forward_run(now, &packets[..length], source, &mut self.out) { length } else { 0 }
    }
}

impl Forwarder {
    /// Takes the messages of a run over, and offers them to all who want them. False: each is to be forwarded by itself.
    fn forward_run(
        &mut self,
        now: Micros,
        run: &[PacketView<'_>],
        source: Option<SessionKey>,
        out: &mut Outlet,
    ) -> bool {
        let worker = self.worker();
        let Some(topic) = messages(run).next().map(|publish| publish.topic) else {
            return false;
        };
        let Ok(route) = self.routes.find(now, topic) else {
            return false;
        };
        if !is_plain(&route, worker) {
            return false;
        }
        out.counters.messages_in += run.len() as u64;
        let notes = Notes::of(run, now, route.mark, out);
        for subscriber in route.subscribers.iter().filter(|subscriber| wants(subscriber, source)) {
            out.offer_run(subscriber.session, run, &notes);
        }
        true
    }
}

impl Outlet {
    /// Offers a session the messages of a run, as [`Outlet::offer_copy`] does each.
    pub(super) fn offer_run(&mut self, key: SessionKey, run: &[PacketView<'_>], notes: &Notes) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        session.accept_copies(run.len() as u64);
        let Some((id, entry)) = session.link.and_then(|id| Some((id, self.links.get_mut(id)?))) else {
            session.refuse_copies(Drop::Away, run.len() as u64);
            return self.counters.drop_many(Drop::Away, run.len() as u64);
        };
        let mut timed = notes.timed.iter().peekable();
        let (mut copies, mut bytes) = (0_u32, 0);
        for (place, publish) in messages(run).enumerate() {
            let sample = timed.next_if(|(due, _)| *due == place);
            if entry.link.queue_unreliable(&publish.field(), None).is_ok() {
                copies += 1;
                bytes += publish.payload.len() as u64;
                sample.inspect(|(_, sample)| entry.timed.add(entry.link.last_unreliable(), sample));
            }
        }
        self.links.touch(id);
        self.counters.messages_out += u64::from(copies);
        let refused = run.len() as u64 - u64::from(copies);
        session.refuse_copies(Drop::QueueFull, refused);
        self.counters.drop_many(Drop::QueueFull, refused);
        if let Some(load) = &mut self.load {
            load.topics.count_out(notes.mark, copies, bytes);
        }
    }
}

impl Notes {
    /// Counts the messages of a run as taken over. `known`: their route's mark.
    pub(super) fn of(
        run: &[PacketView<'_>],
        now: Micros,
        known: Option<&std::cell::Cell<Mark>>,
        out: &mut Outlet,
    ) -> Self {
        let (Some(load), Some(first)) = (&mut out.load, messages(run).next()) else {
            return Self::default();
        };
        let mark = load.mark_of(first.topic, known);
        let bytes = messages(run).map(|publish| publish.payload.len() as u64).sum();
        load.topics.count_in(mark, run.len() as u32, bytes);
        let timed = (0..run.len()).filter_map(|place| Some((place, load.latency.begin(now)?)));
        Self { mark, timed: timed.collect() }
    }

    /// For each message of the run, where its copies are counted.
    pub(super) fn dockets<'a>(&'a self, run: &'a [PacketView<'_>]) -> impl Iterator<Item = Docket> + 'a {
        let mut timed = self.timed.iter().peekable();
        messages(run).enumerate().map(move |(place, publish)| {
            let sample = timed.next_if(|(due, _)| *due == place).map(|(_, sample)| Arc::clone(sample));
            Docket::new(self.mark, publish, sample)
        })
    }
}

/// Whether a route leads to sessions of this worker alone.
pub(super) fn is_plain(route: &Route<'_>, worker: u8) -> bool {
    let is_elsewhere = |subscriber: &Subscriber| subscriber.session.worker() != worker;
    !route.reserved && route.groups.iter().next().is_none() && !route.subscribers.iter().any(is_elsewhere)
}

/// How many plain messages of one topic these packets begin with.
fn run_length(packets: &[PacketView<'_>]) -> usize {
    let mut topics = packets.iter().map_while(|packet| match &packet.body {
        Body::Publish(publish) if packet.is_bare() && publish.is_plain() => Some(publish.topic),
        _ => None,
    });
    topics.next().map_or(0, |first| 1 + topics.take_while(|other| *other == first).count())
}

/// The messages of a run.
pub(super) fn messages<'a, 'b>(run: &'a [PacketView<'b>]) -> impl Iterator<Item = &'a PublishView<'b>> {
    run.iter().filter_map(|packet| match &packet.body {
        Body::Publish(publish) => Some(publish),
        _ => None,
    })
}
