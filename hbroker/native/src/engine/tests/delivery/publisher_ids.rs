//! A publisher id is its session's alone (§7.9), and what is known of its messages is known to all workers of a node (§7.4).

use crate::engine::tests::network::{Faults, Forgery, Network, SECOND, message};
use crate::publisher_id::publisher_id;
use crate::schema::reason;
use crate::wire::{self, HeaderOut, PublishOut};

/// Has an attacker send under a victim's id.
fn forge(network: &mut Network, attacker: usize, victim: usize, percent: u32) {
    let (own, other) = (network.hosts[attacker].publisher, network.hosts[victim].publisher);
    network.forgery = Some((attacker, Forgery { own, other, percent }));
}

fn reasons(network: &Network, client: usize, wanted: i32) -> usize {
    network.hosts[client].published.values().filter(|&&why| why == wanted).count()
}

#[test]
fn nobody_uses_up_the_numbers_of_another() {
    for workers in [1, 2] {
        let (mut network, node) = Network::with_node(1, workers);
        let subscriber = network.add_subscriber(node, "home/#", 2);
        let (victim, attacker) = (network.add_client(), network.add_client());
        network.publish(victim, &message("home/door", b"open", 2));
        network.run_until_drained();
        forge(&mut network, attacker, victim, 100);
        network.publish_times(attacker, 300, &message("mine", b"", 2));
        network.run_until_drained();
        assert_eq!(reasons(&network, attacker, reason::NOT_AUTHORIZED), 300);
        assert_eq!(network.counter(node, "drop.foreign_publisher"), 300);
        network.publish_times(victim, 200, &message("home/door", b"alarm", 2));
        network.run_until_drained();
        network.assert_all_published(victim, 201);
        assert_eq!(network.sequences(subscriber, "home/door"), (1..=201).collect::<Vec<_>>());
    }
}

/// Messages come alone and in runs, over links that were a publisher's before and that were not.
#[test]
fn no_message_under_a_foreign_id_is_taken_and_every_other_is() {
    for seed in 0..30 {
        let (mut network, qos) = (Network::new(seed, Faults::default()), (seed % 3) as u8);
        let node = network.add_node("", 1 + (seed % 2) as u8);
        let subscriber = network.add_subscriber(node, "t", qos);
        let (victim, attacker) = (network.add_client(), network.add_client());
        network.publish(victim, &message("elsewhere", b"", qos));
        if seed % 4 < 2 {
            network.publish(attacker, &message("elsewhere", b"", qos));
        }
        network.run(SECOND);
        forge(&mut network, attacker, victim, 30);
        let mut sent = 0;
        for together in [1, 3, 60, 200, 1, 40] {
            (0..together).for_each(|_| _ = network.publish(attacker, &message("t", &[7; 20], qos)));
            sent += together;
            network.run(SECOND);
        }
        let id = network.hosts[attacker].publisher;
        let dropped = network.counter(node, "drop.foreign_publisher");
        let read = &network.hosts[subscriber].read;
        assert!(read.iter().all(|read| read.publisher == id), "seed {seed}");
        assert!(dropped > 0 && !read.is_empty());
        // A message of QoS 0 that is said to be like one that is dropped is dropped with it, and each is counted.
        assert_eq!(read.len() as u64 + dropped, sent, "seed {seed}, QoS {qos}");
        if qos > 0 {
            assert_eq!(reasons(&network, attacker, reason::NOT_AUTHORIZED) as u64, dropped);
        }
    }
}

/// Sends one retained message with the highest sequence number there is, in a session of its own; `publisher`: of that session and run.
fn send_last_of_all(network: &mut Network, node: usize, publisher: impl FnOnce(u64, u64) -> u64) {
    let (session, incarnation) = (77, 5 << 32);
    let (now, source) = (network.now, ([10, 9, 9, 9], 9).into());
    let engine = &mut network.hosts[node].engines[0];
    let token = engine.token_for(now, source);
    let forged = PublishOut {
        publisher: publisher(session, incarnation),
        sequence: u64::MAX,
        retain: true,
        ..message("home/mode", b"last of all", 1)
    };
    let (mut field, mut bytes) = (Vec::new(), Vec::new());
    wire::put_publish_field(&mut field, &forged);
    let header = HeaderOut { session, incarnation, number: 1, ack: None, token: &token, ack_every: 0 };
    wire::put_header(&mut bytes, &header);
    wire::put_packet(&mut bytes, 1, 0, None, &field);
    engine.handle_datagram(now, source, &bytes);
}

fn retained(network: &Network, node: usize) -> String {
    let found = network.hosts[node].engines[0].shared.retained.lock().found("home/mode");
    let payload = |field: &[u8]| wire::publish_of(field).map(|whole| whole.payload.to_vec());
    let payloads = found.iter().flat_map(|(_, field)| payload(field).expect("it was valid"));
    String::from_utf8_lossy(&payloads.collect::<Vec<_>>()).into_owned()
}

#[test]
fn a_retained_message_is_frozen_by_nobody() {
    for is_forged in [true, false] {
        let (mut network, node) = Network::with_node(2, 1);
        let victim = network.add_client();
        let publish = |network: &mut Network, payload| {
            network.publish(victim, &PublishOut { retain: true, ..message("home/mode", payload, 1) });
            network.run_until_drained();
        };
        publish(&mut network, b"one");
        let known = network.hosts[victim].publisher;
        let is_its_own = !is_forged;
        send_last_of_all(
            &mut network,
            node,
            |session, run| {
                if is_forged { known } else { publisher_id(session, run) }
            },
        );
        assert_eq!(retained(&network, node), if is_its_own { "last of all" } else { "one" });
        assert_eq!(network.counter(node, "drop.foreign_publisher"), u64::from(is_forged));
        // Who uses up its own numbers harms itself alone.
        publish(&mut network, b"two");
        assert_eq!(retained(&network, node), "two");
        publish(&mut network, b"three");
        assert_eq!(retained(&network, node), "three");
    }
}

/// Lets a link of a client break, and gives the client another port, so that the kernel gives it to another worker.
fn come_by_another_worker(network: &mut Network, client: usize, node: usize) {
    network.parted = Some((client, node));
    network.run(20 * SECOND);
    let address = network.hosts[client].address;
    network.hosts[client].address = (address.ip(), address.port() + 1_001).into();
    network.parted = None;
}

/// A message arrives, and the publisher's path breaks before it hears of that.
fn publish_unheard(network: &mut Network, publisher: usize, node: usize, topic: &str) -> u64 {
    let before = network.counter(node, "messages_in");
    let sequence = network.publish(publisher, &message(topic, b"once", 2));
    while network.counter(node, "messages_in") == before {
        network.run(100);
    }
    network.parted = Some((publisher, node));
    sequence
}

#[test]
fn a_group_gets_a_message_once_whatever_worker_it_comes_to() {
    for workers in 1..=4 {
        let (mut network, node) = Network::with_node(3, workers);
        let members: Vec<usize> = (0..2).map(|_| network.add_member(node, "a", "g", 2)).collect();
        let publisher = network.add_client();
        network.publish(publisher, &message("a", b"warm", 2));
        network.run_until_drained();
        let sequence = publish_unheard(&mut network, publisher, node, "a");
        network.run(5 * SECOND);
        let shares = |network: &Network| -> Vec<usize> {
            let of =
                |member: &usize| network.sequences(*member, "a").iter().filter(|&&s| s == sequence).count();
            members.iter().map(of).collect()
        };
        let first = shares(&network);
        // Who had it leaves: the other one gets what comes from now on.
        let had = members[first.iter().position(|&count| count > 0).expect("one has it")];
        network.close(node, had);
        come_by_another_worker(&mut network, publisher, node);
        network.run(30 * SECOND);
        assert_eq!(shares(&network), first, "{workers} workers");
        assert_eq!(network.counter(node, "drop.duplicate_message"), 1);
        network.publish(publisher, &message("a", b"after", 2));
        network.run(10 * SECOND);
        network.assert_all_published(publisher, 3);
    }
}

#[test]
fn what_comes_again_by_another_worker_is_answered_when_it_is_distributed() {
    for workers in 1..=3 {
        let (mut network, node) = Network::with_node(4, workers);
        let subscriber = network.add_subscriber(node, "a", 2);
        let publisher = network.add_client();
        network.publish(publisher, &message("a", b"warm", 2));
        network.run_until_drained();
        // It says that it is there, but its application takes no message.
        network.hosts[subscriber].reads = false;
        publish_unheard(&mut network, publisher, node, "a");
        let before = network.counter(node, "drop.duplicate_message");
        let (start, address) = (network.now, network.hosts[publisher].address);
        network.close(node, publisher);
        network.hosts[publisher].address = (address.ip(), address.port() + 1_001).into();
        network.parted = None;
        while network.counter(node, "drop.duplicate_message") == before {
            network.run(1_000);
            assert!(network.now < start + 10 * SECOND, "it does not come again");
        }
        assert_eq!(network.hosts[publisher].published.len(), 1, "{workers} workers: nobody has it yet");
        network.read_all(subscriber);
        network.assert_all_published(publisher, 2);
        assert_eq!(network.sequences(subscriber, "a"), [1, 2]);
    }
}

/// §7.4: what one run published says nothing of another's numbers, which begin anew.
#[test]
fn another_run_of_a_session_is_another_publisher() {
    let (mut network, node) = Network::with_node(5, 2);
    let subscriber = network.add_subscriber(node, "a", 2);
    let session = 4_711;
    for run in 1..4 {
        let publisher = network.add_client_with(|config| {
            (config.session, config.named) = (session, true);
            config.incarnation = run << 40;
        });
        network.publish_times(publisher, 5, &message("a", b"x", 2));
        network.run(SECOND);
        network.assert_all_published(publisher, 5);
        let address = network.hosts[publisher].address;
        network.hosts[publisher].address = (address.ip(), 1).into();
        network.parted = Some((publisher, node));
    }
    assert_eq!(network.hosts[subscriber].read.len(), 15);
    assert_eq!(network.counter(node, "drop.duplicate_message"), 0);
}
