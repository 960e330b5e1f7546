//! Who publishes more than is taken is held back, and nobody else is (§7.7).
//!
//! `credit` has what owners tell publishers, `slow_subscribers` floods to one subscriber, and `for_many` one
//! publisher whose subscribers differ. The helpers that make floods are here.

mod credit;
mod for_many;
mod slow_subscribers;

use crate::engine::sessions::bounds::Bounds;
use crate::engine::tests::network::{Faults, MILLISECOND, Network, SECOND};
use crate::engine::tests::sessions::{check, grant, status};
use crate::wire::PublishOut;

pub const BOUNDS: Bounds = Bounds { messages: 200, bytes: 1 << 20 };

/// A node whose queues are short, unless a session asks for less, with so many workers.
pub fn with_node(seed: u64, faults: Faults, workers: u8) -> (Network, usize) {
    let mut network = Network::new(seed, faults);
    let node = network.add_node_with("", workers, |config| {
        (config.queue_messages, config.queue_bytes) = (BOUNDS.messages, BOUNDS.bytes);
    });
    (network, node)
}

/// Publishers that have a message more to send whenever there is room for it.
pub struct Flood {
    pub publishers: Vec<usize>,
    sent: Vec<usize>,
    each: usize,
    /// How many of one may be without an answer.
    window: usize,
}

impl Flood {
    pub fn new(network: &mut Network, publishers: usize, each: usize, window: usize) -> Self {
        Self::of((0..publishers).map(|_| network.add_client()).collect(), each, window)
    }

    pub fn of(publishers: Vec<usize>, each: usize, window: usize) -> Self {
        Self { sent: vec![0; publishers.len()], publishers, each, window }
    }

    pub fn send(&mut self, network: &mut Network, out: &PublishOut<'_>) {
        for (&publisher, sent) in self.publishers.iter().zip(&mut self.sent) {
            while *sent < self.each && *sent < network.hosts[publisher].published.len() + self.window {
                network.publish(publisher, out);
                *sent += 1;
            }
        }
    }

    pub fn answered(&self, network: &Network) -> usize {
        self.publishers.iter().map(|&publisher| network.hosts[publisher].published.len()).sum()
    }

    pub fn assert_all_answered(&self, network: &Network) {
        for &publisher in &self.publishers {
            network.assert_all_published(publisher, self.each);
        }
    }
}

/// Has a host, which does not read by itself, read so many messages.
pub fn read(network: &mut Network, host: usize, count: usize) -> usize {
    read_ids(network, host, count).len()
}

/// As `read`: the publisher and the sequence number of each.
pub fn read_ids(network: &mut Network, host: usize, count: usize) -> Vec<(u64, u64)> {
    let messages = network.take_messages(host, count);
    messages.iter().map(|message| message.id(&message.view())).collect()
}

/// Floods a subscriber that takes 64 messages at once and reads 8,000 a second, less than its publishers send, until all is answered. It does not stall, and nobody is held back in the end. The ids of what it read, and the most that was queued for it.
pub fn flood_one(
    network: &mut Network,
    node: usize,
    subscriber: usize,
    flood: &mut Flood,
    out: &PublishOut<'_>,
) -> (Vec<(u64, u64)>, u64) {
    grant(network, subscriber, node, 64, 1 << 20);
    let total = flood.publishers.len() * flood.each;
    let (mut got, mut most) = (Vec::new(), 0);
    while got.len() < total {
        flood.send(network, out);
        network.run(5 * MILLISECOND);
        got.extend(read_ids(network, subscriber, 40));
        check(network, node);
        let told = status(network, node, subscriber);
        assert!(!told.is_stalled, "it answers eight thousand a second");
        most = most.max(told.queued);
        assert!(network.now < 1_100 * SECOND, "{} came", got.len());
    }
    network.run_until_drained();
    flood.assert_all_answered(network);
    assert!(most > BOUNDS.messages as u64, "it was too much for the queue: {most}");
    assert_let_go(network, node);
    (got, most)
}

/// Nobody holds anybody any more, and every publisher that was told to wait was told to go on.
pub fn assert_let_go(network: &Network, node: usize) {
    for engine in &network.hosts[node].engines {
        assert_eq!(engine.out.throttled_links.len(), 0);
        let links = engine.out.links.iter().filter_map(|position| engine.out.links.awake(position.id()));
        links.for_each(|entry| assert!(entry.throttled_by.is_empty() && !entry.is_throttled));
    }
}

/// Has a client's publisher send as if it had been told nothing.
pub fn ignore_credit(network: &mut Network, client: usize) {
    let engine = &mut network.hosts[client].engines[0];
    let links: Vec<_> = engine.out.links.iter().map(|position| position.id()).collect();
    for link in links {
        if let Some(entry) = engine.out.links.get_mut(link) {
            entry.credit.grant(u32::MAX, u64::MAX);
        }
    }
}
