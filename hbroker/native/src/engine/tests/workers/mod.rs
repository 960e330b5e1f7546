//! A node of several workers: a message comes to one, and its subscriber's session is another's (§7.3).
//!
//! `several` looks at whole nodes. `unacknowledged` (`QoS` 0) and `acknowledged` (`QoS` 1 and 2) look at what one
//! of two workers hands to the other; [`Apart`] sets that up.

mod acknowledged;
mod several;
mod unacknowledged;

use crate::engine::tests::network::{MILLISECOND, Network, message};
use crate::engine::transport::outbound::Handoff;
use crate::wire::PublishOut;

/// A node with two workers; a subscriber of `t` that takes so many messages unanswered; and a publisher.
pub struct Apart {
    pub network: Network,
    pub node: usize,
    pub subscriber: usize,
    pub publisher: usize,
}

impl Apart {
    /// The publisher's link is not the worker's that has the subscriber's session.
    pub fn new(qos: u8, credit: u32) -> Self {
        for seed in 0..64 {
            let (mut network, node) = Network::with_node(seed, 2);
            let subscriber = network.add_subscriber_with(node, "t", qos, |config| {
                (config.hold, config.receive_messages) = (true, credit);
            });
            let publisher = network.add_client_with(|config| config.max_datagram = 8_952);
            network.publish(publisher, &message("t", b"first", 0));
            // Full datagrams, so that the link finds how large they may be.
            for _ in 0..20 {
                network.publish(publisher, &message("elsewhere", &[0; 1_000], 0));
                network.run(20 * MILLISECOND);
            }
            let mut apart = Self { network, node, subscriber, publisher };
            if apart.at() != apart.home() {
                apart.network.hosts[subscriber].read.clear();
                return apart;
            }
        }
        panic!("64 publishers in a row came to the subscriber's worker");
    }

    /// The worker that has the publisher's link.
    fn at(&self) -> usize {
        let session = self.network.hosts[self.publisher].session;
        usize::from(self.network.hosts[self.node].links[&session].worker())
    }

    /// The worker that has the subscriber's session.
    pub fn home(&self) -> usize {
        usize::from(self.network.session(self.subscriber, self.node).worker())
    }

    /// The publisher's worker gets a datagram from it.
    pub fn receive(&mut self, datagram: &[u8]) {
        let (at, now) = (self.at(), self.network.now);
        let source = self.network.hosts[self.publisher].address;
        self.network.hosts[self.node].engines[at].handle_datagram(now, source, datagram);
    }

    pub fn publish(&mut self, count: usize, out: &PublishOut<'_>) -> Vec<u64> {
        let sent = (0..count).map(|_| self.network.publish(self.publisher, out)).collect();
        self.network.run(100 * MILLISECOND);
        sent
    }

    /// What the publisher's worker has for the subscriber's.
    pub fn handed(&mut self) -> Vec<Handoff> {
        let (at, home) = (self.at(), self.home());
        let engine = &mut self.network.hosts[self.node].engines[at];
        let handed = std::iter::from_fn(|| engine.poll_handoff());
        handed.inspect(|(to, _)| assert_eq!(usize::from(*to), home)).map(|(_, handoff)| handoff).collect()
    }

    /// The subscriber's worker gets it.
    pub fn take(&mut self, handoff: Handoff) {
        let (home, now) = (self.home(), self.network.now);
        self.network.hosts[self.node].engines[home].handle_handoff(now, handoff);
    }

    /// The subscriber's application is done with these.
    fn handle(&mut self, sequences: &[u64]) {
        let id = self.network.hosts[self.publisher].publisher;
        let handled: Vec<_> = sequences.iter().map(|&sequence| (id, sequence)).collect();
        self.network.hosts[self.subscriber].engines[0].handled(&handled);
        self.network.run(100 * MILLISECOND);
    }

    fn acknowledged(&self) -> Vec<u64> {
        self.network.hosts[self.publisher].published.keys().copied().collect()
    }
}
