//! A client publishes where its rights let it, alone and in batches, at each `QoS` (§4.6).

use std::sync::Arc;

use crate::engine::tests::network::{Network, SECOND, message};
use crate::rights::{Rights, WriteRights};
use crate::schema::reason;
use crate::wire::PublishOut;

/// The key of the rights to nothing.
const NOTHING: u64 = 99;

fn rights(key: u64, filters: &[&str], retain: bool) -> Arc<Rights> {
    let filters = filters.iter().map(ToString::to_string).collect();
    let is_empty = key == NOTHING;
    Arc::new(Rights { key, blocks: vec![WriteRights { filters, retain }], is_empty })
}

impl Network {
    /// From now on all that comes to a node is of somebody with these rights.
    fn limit(&mut self, node: usize, rights: &Arc<Rights>) {
        self.hosts[node].engines.iter_mut().for_each(|engine| engine.note_rights(Some(rights)));
    }
}

#[test]
fn only_messages_to_allowed_topics_are_taken() {
    for (workers, qos) in [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)] {
        let (mut network, node) = Network::with_node(1, workers);
        let subscriber = network.add_subscriber(node, "#", qos);
        let publisher = network.add_client();
        network.limit(node, &rights(5, &["home/+/state", "attic/#"], false));
        for topic in ["home/oven/state", "home/oven/set", "attic", "attic/x/y", "cellar"] {
            network.publish_times(publisher, 100, &message(topic, b"x", qos));
            network.run_until_drained();
        }
        let read = &network.hosts[subscriber].read;
        assert_eq!(read.len(), 300, "{workers} workers, QoS {qos}");
        assert!(read.iter().all(|read| !["home/oven/set", "cellar"].contains(&&*read.topic)));
        assert_eq!(network.counter(node, "drop.not_authorized"), 200);
        if qos > 0 {
            let results = network.hosts[publisher].published.values();
            assert_eq!(results.filter(|&&why| why == reason::NOT_AUTHORIZED).count(), 200);
        }
    }
}

#[test]
fn retained_messages_need_a_right_of_their_own() {
    for (retain, expected) in [(false, 0), (true, 1)] {
        let (mut network, node) = Network::with_node(1, 1);
        let publisher = network.add_client();
        network.limit(node, &rights(5, &["a"], retain));
        network.publish(publisher, &message("a", b"plain", 1));
        network.publish(publisher, &PublishOut { retain: true, ..message("a", b"kept", 1) });
        network.run_until_drained();
        let taken = network.hosts[publisher].published.values().filter(|&&why| why == reason::NOT_AUTHORIZED);
        assert_eq!(taken.count(), 1 - expected);
    }
}

#[test]
fn other_rights_hold_from_the_next_datagram_on() {
    let (mut network, node) = Network::with_node(1, 1);
    let subscriber = network.add_subscriber(node, "#", 1);
    let publisher = network.add_client();
    for (key, filters, expected) in [(5, &["a"][..], 1), (6, &["b"], 1), (7, &["a", "b"], 2), (8, &[], 2)] {
        network.limit(node, &rights(key, filters, false));
        network.publish(publisher, &message("a", b"", 1));
        network.run_until_drained();
        assert_eq!(network.hosts[subscriber].read.len(), expected, "{filters:?}");
    }
}

#[test]
fn who_has_no_rights_gets_no_session() {
    let (mut network, node) = Network::with_node(1, 1);
    network.limit(node, &rights(NOTHING, &[], true));
    let client = network.add_client();
    network.publish(client, &message("a", b"", 1));
    network.run(5 * SECOND);
    assert_eq!(network.hosts[node].engines[0].out.links.len(), 0);
    assert!(network.counter(node, "drop.not_authorized") > 0);
}

/// A persistent session with a message that waits, and a client that knows the session's id and has other rights.
#[test]
fn a_session_goes_on_under_other_rights_only_if_that_is_allowed() {
    for is_allowed in [false, true] {
        let (mut network, node) = Network::with_node(1, 1);
        network.hosts[node].engines[0].config.requires_tokens = true;
        let publisher = network.add_client();
        network.limit(node, &rights(5, &["#"], false));
        let subscriber = network.add_subscriber(node, "a", 1);
        let session = network.hosts[subscriber].session;
        network.open_session(subscriber, node, true);
        network.run(SECOND);
        network.close(node, subscriber);
        network.close(subscriber, subscriber);
        network.publish(publisher, &message("a", b"secret", 1));
        network.run(SECOND);
        network.limit(node, &rights(6, &["#"], false));
        if is_allowed {
            network.hosts[node].engines[0].allow_session(session, 6);
        }
        let (address, to) = (network.hosts[subscriber].address, network.hosts[node].address);
        let (token, now) = (network.hosts[node].engines[0].token_for(network.now, address), network.now);
        network.hosts[subscriber].engines[0].connect(now, to, token);
        network.run(5 * SECOND);
        assert_eq!(network.hosts[subscriber].read.len(), usize::from(is_allowed), "{is_allowed}");
    }
}
