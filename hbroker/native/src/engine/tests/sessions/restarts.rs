//! A link that one end has lost, and the other speaks in still: what it says there belongs to none that follows (§3.6).

use super::{OWN, add_persistent, check, go_offline, link_to, publish_many, status};
use crate::core::Datagrams;
use crate::engine::tests::network::{Network, SECOND};
use crate::wire::{self, AckOut, HeaderOut};

/// Of a run that is none of the hosts of the network.
const INCARNATION: u64 = 1 << 60;

fn puback(first: u64, last: u64) -> Vec<u8> {
    let mut body = Vec::new();
    wire::put_puback_field(&mut body, [(first, last)], 0, "", None);
    body
}

fn ping() -> Vec<u8> {
    let mut body = Vec::new();
    wire::put_ping_field(&mut body, 1);
    body
}

fn datagram(header: &HeaderOut<'_>, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    wire::put_header(&mut out, header);
    wire::put_packet(&mut out, 0, 0, None, body);
    out
}

#[test]
fn what_answers_a_link_that_is_gone_answers_nothing_of_the_next() {
    let acknowledged = AckOut { delay_us: 0, ranges: &[(1, 5)] };
    for (first, ack) in [(puback(1, 3), None), (ping(), Some(acknowledged))] {
        let (mut network, node) = Network::with_node(1, 1);
        let subscriber = add_persistent(&mut network, node, "a/#", 1, OWN);
        let publisher = network.add_client();
        go_offline(&mut network, node, subscriber);
        publish_many(&mut network, publisher, 5, 1);
        network.run(SECOND);
        let (now, session, address) =
            (network.now, network.hosts[subscriber].session, network.hosts[subscriber].address);
        let engine = &mut network.hosts[node].engines[0];
        let token = engine.token_for(now, address);
        for (number, body, ack) in [(7, first, ack), (8, puback(1, 3), None)] {
            let header =
                HeaderOut { session, incarnation: INCARNATION, number, ack, token: &token, ack_every: 0 };
            engine.handle_datagram(now, address, &datagram(&header, &body));
            engine.poll_transmit(now, &mut Datagrams::default());
        }
        let before = status(&network, node, subscriber);
        assert!(before.is_connected, "the other end learns from the new link that its own is gone");
        assert_eq!((before.session_counters.delivered, before.queued), (0, 5));
        network.connect(subscriber, node);
        network.run_until_drained();
        check(&network, node);
        assert_eq!(network.sequences(subscriber, "a/b"), [1, 2, 3, 4, 5]);
    }
}

#[test]
fn what_an_owner_says_in_a_link_that_is_gone_begins_none() {
    let (mut network, node) = Network::with_node(1, 1);
    let subscriber = add_persistent(&mut network, node, "a/#", 1, OWN);
    let (now, session, address) =
        (network.now, network.hosts[subscriber].session, network.hosts[node].address);
    let token = network.hosts[node].engines[0].token_for(now, network.hosts[subscriber].address);
    let incarnation = INCARNATION;
    let acknowledged = Some(AckOut { delay_us: 0, ranges: &[(1, 5)] });
    let late = HeaderOut { session, incarnation, number: 1, ack: None, token: &[], ack_every: 0 };
    for header in [late, HeaderOut { ack: acknowledged, token: &token, ..late }] {
        for number in 1..4 {
            let header = HeaderOut { number, ..header };
            let engine = &mut network.hosts[subscriber].engines[0];
            engine.handle_datagram(now, address, &datagram(&header, &ping()));
            assert_eq!(link_to(&network, subscriber, node), None, "number {number}");
        }
    }
    let other = HeaderOut { incarnation: 1 << 61, token: &token, ..late };
    network.hosts[subscriber].engines[0].handle_datagram(now, address, &datagram(&other, &ping()));
    assert!(link_to(&network, subscriber, node).is_some(), "a node opens one with a token");
}

#[test]
fn what_an_owner_answers_late_in_a_link_that_was_never_heard_settles_nothing_of_the_next() {
    let acknowledged = Some(AckOut { delay_us: 0, ranges: &[(1, 3)] });
    for (body, ack) in [(puback(1, 3), None), (puback(1, 3), acknowledged), (ping(), acknowledged)] {
        let (mut network, node) = Network::with_node(1, 1);
        let subscriber = add_persistent(&mut network, node, "a/#", 1, OWN);
        let publisher = network.add_client();
        network.parted = Some((publisher, node));
        publish_many(&mut network, publisher, 3, 1);
        while network.hosts[publisher].downs == 0 {
            network.run(SECOND);
        }
        network.run(SECOND);
        assert!(link_to(&network, publisher, node).is_some(), "it goes on in another link");
        let (session, address) = (network.hosts[publisher].session, network.hosts[node].address);
        for number in 1..4 {
            let header =
                HeaderOut { session, incarnation: INCARNATION, number, ack, token: &[], ack_every: 0 };
            let engine = &mut network.hosts[publisher].engines[0];
            engine.handle_datagram(network.now, address, &datagram(&header, &body));
        }
        network.run(SECOND);
        assert!(network.hosts[publisher].published.is_empty(), "the owner has got none of them");
        assert_eq!(network.counter(publisher, "drop.unknown_session"), 3);
        network.parted = None;
        network.run_until_drained();
        network.assert_all_published(publisher, 3);
        assert_eq!(network.sequences(subscriber, "a/b"), [1, 2, 3]);
        assert_eq!(network.hosts[publisher].downs, 1);
    }
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_is_dropped_with_all_that_comes_with_it() {
    let (mut network, node) = Network::with_node(1, 1);
    add_persistent(&mut network, node, "a/#", 1, OWN);
    let publisher = network.add_client();
    publish_many(&mut network, publisher, 3, 1);
    network.run_until_drained();
    network.parted = Some((publisher, node));
    publish_many(&mut network, publisher, 3, 1);
    let (session, address) = (network.hosts[publisher].session, network.hosts[node].address);
    let link = link_to(&network, publisher, node).expect("it is open");
    let engine = &mut network.hosts[publisher].engines[0];
    let incarnation =
        engine.out.links.awake(link).and_then(|entry| entry.link.peer_incarnation()).expect("it was heard");
    let ack = Some(AckOut { delay_us: 0, ranges: &[(1, 1 << 20)] });
    let header = HeaderOut { session, incarnation, number: 1 << 10, ack, token: &[], ack_every: 0 };
    engine.handle_datagram(network.now, address, &datagram(&header, &puback(1, 9)));
    network.run(SECOND);
    assert_eq!(network.counter(publisher, "drop.unsent_acknowledged"), 1);
    network.assert_all_published(publisher, 3);
    network.parted = None;
    network.run_until_drained();
    network.assert_all_published(publisher, 6);
}
