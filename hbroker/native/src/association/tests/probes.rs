//! Peers that are not heard: they only listen, or have lost their keys.

use super::*;

/// How long an end goes on to send.
const LONG: Micros = 60 * SECOND;

/// Node to client, one datagram each `every`; the client answers nothing. Returns what it opened.
fn send_one_way(net: &mut Net, every: Micros) -> Vec<Vec<u8>> {
    for _ in 0..LONG / every {
        net.send(NODE, 1, b"news");
        net.settle();
        net.advance(every);
        net.settle();
    }
    net.opened(1)
}

#[test]
fn who_only_listens_keeps_its_keys() {
    for every in [20 * MS, 900 * MS, 3_500 * MS, 20 * SECOND] {
        let mut net = Net::pair();
        net.send(1, NODE, b"hello");
        net.settle();
        let opened = send_one_way(&mut net, every);
        assert_eq!(opened, vec![b"news".to_vec(); (LONG / every) as usize], "each {every}");
        assert_eq!(net.opened(NODE), [b"hello"], "each {every}");
        let counters = net.end(NODE).associations.counters();
        assert_eq!((counters.handshakes, net.end(NODE).shared.len()), (1, 1), "each {every}");
    }
}

#[test]
fn probes_are_few() {
    let mut net = Net::pair();
    net.send(1, NODE, b"hello");
    net.settle();
    net.seen.clear();
    send_one_way(&mut net, 20 * MS);
    let answers = net.seen.iter().filter(|(from, ..)| *from == 1).count();
    assert!((100..=120).contains(&answers), "two in a second: {answers}");
}

/// Also the last one, after which the peer counts as silent.
#[test]
fn each_probe_is_sealed() {
    for every in [100 * MS, 1_700 * MS, 3_500 * MS] {
        let mut net = Net::pair();
        net.send(1, NODE, b"hello");
        net.settle();
        net.opened(1);
        let mut sent = Vec::new();
        while net.now < BEGIN + 30 * SECOND {
            net.send(NODE, 1, b"news");
            sent.append(&mut net.flying);
            net.advance(every);
        }
        let probes = sent.iter().filter(|(.., bytes)| bytes.len() == packet::PROBE.len() + OVERHEAD);
        let probes: Vec<&[u8]> = probes.map(|(.., bytes)| &bytes[..]).collect();
        assert_eq!(probes.len(), 3, "each {every}");
        for probe in probes {
            net.deliver(NODE, 1, probe);
        }
        let answers = net.flying.iter().filter(|(from, _, bytes)| *from == 1 && bytes.len() == OVERHEAD);
        assert_eq!(answers.count(), 3, "each {every}");
    }
}

/// The client is another process now, and somebody on the path drops its resets.
#[test]
fn a_peer_that_has_lost_its_keys_gets_others() {
    for every in [100 * MS, 3 * SECOND] {
        let mut net = Net::pair();
        net.send(1, NODE, b"hello");
        net.settle();
        net.ends.insert(1, End::new(client(), 77));
        let mut sent = 0;
        while net.end(1).opened.is_empty() {
            assert!(sent * every < 20 * SECOND, "each {every}");
            sent += 1;
            net.send(NODE, 1, b"news");
            while let Some((from, to, bytes)) = net.flying.pop() {
                if bytes.len() != packet::RESET_BYTES {
                    net.deliver(from, to, &bytes);
                }
            }
            net.advance(every);
        }
        assert!(sent * every > 5 * SECOND, "each {every}: {sent}");
    }
}

/// The client's process was suspended. A node has asked it for new keys meanwhile, less and less often.
#[test]
fn a_peer_that_is_back_is_sent_what_is_for_it() {
    for away in [6 * SECOND, 12 * SECOND, 30 * SECOND] {
        let mut net = Net::pair();
        net.send(1, NODE, b"hello");
        net.settle();
        for _ in 0..away / (300 * MS) {
            net.send(NODE, 1, b"lost");
            net.flying.clear();
            net.advance(300 * MS);
            net.flying.clear();
        }
        for _ in 0..40 {
            net.send(NODE, 1, b"news");
            net.settle();
            net.advance(100 * MS);
        }
        let opened = net.opened(1);
        assert!(opened.ends_with(&[b"news".to_vec(), b"news".to_vec()]), "away for {away}: {opened:?}");
        assert_eq!((net.end(NODE).shared.len(), net.end(1).shared.len()), (1, 1), "away for {away}");
    }
}

/// The node is another process now, which the client cannot know: it does not believe its resets.
#[test]
fn a_node_that_has_lost_its_keys_and_speaks_first_gets_others() {
    let mut net = Net::pair();
    net.send(1, NODE, b"hello");
    net.settle();
    net.ends.insert(NODE, End::new(node(), 77));
    let mut sent = 0;
    while net.end(1).opened.is_empty() {
        assert!(sent < 40);
        sent += 1;
        net.send(NODE, 1, b"news");
        net.settle();
        net.advance(500 * MS);
        net.settle();
    }
}
