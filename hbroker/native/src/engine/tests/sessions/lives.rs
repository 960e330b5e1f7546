//! Whatever a few sessions do, each message is answered once and accounted for, in order (§7.7).

use rand::Rng;

use super::{check, dropped, firsts, go_offline, status, subscribe};
use crate::Micros;
use crate::engine::metrics::counters::Drop;
use crate::engine::sessions::bounds::Bounds;
use crate::engine::tests::network::{Faults, Network, SECOND, message};
use crate::link_id::SessionKey;
use crate::tables::subscriber::Subscriber;
use crate::wire::PublishOut;

/// One life of a few sessions, at random. What must hold is looked at after each step.
struct Life {
    network: Network,
    node: usize,
    publishers: Vec<usize>,
    /// Client, whether its session outlives its links, and the bounds of its queue.
    subscribers: Vec<(usize, bool, Bounds)>,
    published: u64,
    payload: &'static [u8],
}

impl Life {
    /// `memory`: for all queues of each worker. `payload`: of each message.
    fn new(seed: u64, memory: usize, payload: &'static [u8]) -> Self {
        let mut network = Network::new(seed, Faults { loss: 0.1, duplication: 0.05, jitter: 2_000 });
        let workers = 1 + (seed % 3) as u8;
        let node =
            network.add_node_with("", workers, |config| config.queue_memory = memory * usize::from(workers));
        let mut subscribers = Vec::new();
        for (index, persistent) in [true, true, false].into_iter().enumerate() {
            let bounds = Bounds { messages: [30, 10_000, 50][index], bytes: 0 };
            let client = network.add_client();
            network.listen(client, 1, "a/#", 2);
            subscribers.push((client, persistent, bounds));
        }
        let publishers = (0..2).map(|_| network.add_client()).collect();
        let mut life = Self { network, node, publishers, subscribers, published: 0, payload };
        (0..3).for_each(|index| life.come(index));
        life
    }

    /// Brings a subscriber back, with its subscription.
    fn come(&mut self, index: usize) {
        let Self { network, node, .. } = self;
        let (client, persistent, bounds) = self.subscribers[index];
        network.parted = None;
        go_offline(network, *node, client);
        network.connect(client, *node);
        let session = network.open_bounded(client, *node, persistent, bounds);
        subscribe(network, *node, "a/#", "", Subscriber::new(session, 2));
    }

    fn step(&mut self) {
        let choice = self.network.rng.random_range(0..100);
        let index = self.network.rng.random_range(0..3);
        let (client, persistent, _) = self.subscribers[index];
        match choice {
            0..60 => {
                let publisher = self.publishers[index % 2];
                for _ in 0..self.network.rng.random_range(1..20) {
                    let (qos, ack_queued) =
                        (self.network.rng.random_range(1..3), self.network.rng.random_bool(0.1));
                    let sent = PublishOut { ack_queued, ..message("a/b", self.payload, qos) };
                    self.network.publish(publisher, &sent);
                    self.published += 1;
                }
            }
            60..70 => self.network.hosts[client].reads ^= true,
            70..78 if persistent => go_offline(&mut self.network, self.node, client),
            78..90 => self.come(index),
            90..93 => self.network.parted = Some((self.node, client)),
            93..97 => self.network.parted = None,
            97 if !persistent => {
                let (now, session) = (self.network.now, self.network.hosts[client].session);
                for engine in &mut self.network.hosts[self.node].engines {
                    if let Some(key) = engine.session_key(session) {
                        engine.end_session(now, key, Drop::SessionEnded);
                    }
                }
            }
            _ => {}
        }
        let time: Micros = match self.network.rng.random_range(0..10) {
            0..7 => self.network.rng.random_range(0..20_000),
            7..9 => SECOND / 2,
            _ => 3 * SECOND,
        };
        self.network.run(time);
        self.check();
    }

    fn check(&self) {
        check(&self.network, self.node);
        for &(client, _, bounds) in &self.subscribers {
            let id = self.network.hosts[client].session;
            for engine in &self.network.hosts[self.node].engines {
                let session = engine.session_key(id).and_then(|key: SessionKey| engine.out.sessions.get(key));
                assert!(session.is_none_or(|session| session.queue.size().messages <= bounds.messages));
            }
        }
    }

    fn end(mut self, seed: u64) {
        self.network.parted = None;
        for index in 0..3 {
            self.network.hosts[self.subscribers[index].0].reads = true;
            self.come(index);
        }
        self.network.run(5 * SECOND);
        self.network.run_until_drained();
        self.check();
        let told: u64 = self
            .publishers
            .iter()
            .map(|&publisher| self.network.hosts[publisher].published.len() as u64)
            .sum();
        assert_eq!(told, self.published, "seed {seed}: each message is answered once");
        let (patient, ..) = self.subscribers[1];
        let lost = dropped(&status(&self.network, self.node, patient), "queue_full") as usize;
        for &publisher in &self.publishers {
            let id = self.network.hosts[publisher].publisher;
            for &(client, ..) in &self.subscribers {
                let read = &self.network.hosts[client].read;
                let sequences: Vec<u64> =
                    read.iter().filter(|read| read.publisher == id).map(|read| read.sequence).collect();
                let firsts = firsts(&sequences);
                assert!(firsts.is_sorted(), "seed {seed}: out of order: {firsts:?}");
                let count = self.network.hosts[publisher].published.len();
                assert!(
                    client != patient || firsts.len() + lost >= count,
                    "seed {seed}: some of {count} were lost"
                );
            }
        }
    }
}

#[test]
fn whatever_happens_each_message_is_answered_once_and_accounted_for() {
    for seed in 0..12 {
        let mut life = Life::new(seed, 1 << 30, b"x");
        (0..120).for_each(|_| life.step());
        assert_eq!(life.network.counter(life.node, "drop.queues_full"), 0);
        life.end(seed);
    }
}

#[test]
fn and_so_it_is_where_sessions_have_all_of_their_shares_now_and_then() {
    let mut refused = 0;
    for seed in 0..6 {
        let mut life = Life::new(seed, 256 << 10, &[7; 1_000]);
        (0..120).for_each(|_| life.step());
        refused += life.network.counter(life.node, "drop.queues_full");
        life.end(seed);
    }
    assert!(refused > 0);
}
