//! Two ends of a link in virtual time, over a pipe that loses, delays, reorders and duplicates from a seed.

mod idle;
mod pipe;
mod throughput;

use std::collections::HashMap;

use bytes::Bytes;
use rand::Rng;

use self::pipe::{Faults, Pair, body, config};
use super::*;

const MILLISECOND: Micros = 1_000;
const SECOND: Micros = 1_000_000;

/// Queues `count` packets at one end, over some chains, some of them together, mixed with unreliable ones.
fn queue(pair: &mut Pair, end: usize, count: u64, first_id: u64) {
    let mut id = first_id;
    while id < first_id + count {
        let chain = pair.rng.random_range(0..8);
        let chain = if chain == 0 { Chain::Control } else { Chain::Topic(chain) };
        let together = if pair.rng.random_bool(0.2) { pair.rng.random_range(2..30) } else { 1 };
        let last = (id + together).min(first_id + count);
        let packets: Vec<_> = (id..last).map(|id| (id, pair.rng.random_range(0..600))).collect();
        pair.queue_batch(end, chain, &packets);
        id = last;
        if pair.rng.random_bool(0.3) {
            pair.links[end].queue_unreliable(&body(1_000_000 + id, 50), None).unwrap();
        }
    }
}

/// Every reliable packet came once and in the order of its chain; unreliable ones came at most once.
fn assert_delivered(pair: &Pair, seed: u64) {
    for end in 0..2 {
        let (sent, received) = (&pair.queued[end], &pair.received[1 - end]);
        let mut of_chain: HashMap<Chain, Vec<u64>> = HashMap::new();
        for id in received.iter().filter(|&&id| id < 1_000_000) {
            let chain = sent.iter().find(|(_, sent)| sent == id).expect("it was sent").0;
            of_chain.entry(chain).or_default().push(*id);
        }
        for (chain, ids) in &of_chain {
            let expected: Vec<_> = sent.iter().filter(|(of, _)| of == chain).map(|(_, id)| *id).collect();
            assert_eq!(ids, &expected, "seed {seed}, chain {chain:?}");
        }
        assert_eq!(of_chain.values().map(Vec::len).sum::<usize>(), sent.len(), "seed {seed}");
        let mut unreliable: Vec<_> = received.iter().filter(|&&id| id >= 1_000_000).collect();
        let count = unreliable.len();
        unreliable.sort_unstable();
        unreliable.dedup();
        assert_eq!(unreliable.len(), count, "seed {seed}: an unreliable packet came twice");
        let mut acknowledged = pair.pubacks[end].clone();
        acknowledged.sort_unstable();
        acknowledged.dedup();
        assert_eq!(acknowledged, (1..=sent.len() as u64).collect::<Vec<_>>(), "seed {seed}: PUBACKs");
    }
}

#[test]
fn all_is_delivered_once_and_in_order_whatever_the_faults() {
    for seed in 0..300 {
        let faults = Faults {
            loss: f64::from(u32::try_from(seed % 31).unwrap()) / 100.0,
            duplication: 0.05,
            delay: 200 + 700 * (seed % 40),
            jitter: 100 * (seed % 50),
        };
        let mut pair = Pair::new(seed, faults);
        queue(&mut pair, 0, 150, 0);
        queue(&mut pair, 1, 100, 1_000);
        pair.run_until_idle(600 * SECOND);
        queue(&mut pair, 0, 50, 2_000);
        pair.run_until_idle(1_200 * SECOND);
        assert_delivered(&pair, seed);
    }
}

#[test]
fn a_path_without_faults_repeats_nothing() {
    for seed in 0..50 {
        let mut pair = Pair::new(seed, Faults { delay: 5_000, ..Faults::default() });
        queue(&mut pair, 0, 400, 0);
        queue(&mut pair, 1, 10, 1_000);
        pair.run_until_idle(60 * SECOND);
        assert_delivered(&pair, seed);
        for link in &pair.links {
            let stats = link.stats();
            assert_eq!((stats.retransmits, stats.lost), (0, 0), "seed {seed}");
            assert!((5_000..25_000).contains(&link.recovery.rtt()), "{}", link.recovery.rtt());
        }
    }
}

#[test]
fn idle_ends_send_nothing_but_the_keep_alive() {
    let mut pair = Pair::new(1, Faults { delay: 1_000, ..Faults::default() });
    queue(&mut pair, 0, 20, 0);
    pair.run_until_idle(10 * SECOND);
    let (start, before) = (pair.now, pair.datagrams);
    pair.run_until(start + 60 * SECOND);
    assert!(pair.links.iter().all(|link| !link.keep_alive_timer.is_over()));
    let per_ping = (pair.datagrams - before) as f64 / 30.0;
    assert!((2.0..=3.0).contains(&per_ping), "PING, PONG and their acknowledgements: {per_ping}");
}

#[test]
fn a_loss_holds_back_its_own_chain_only() {
    let mut pair = Pair::new(1, Faults { delay: 1_000, ..Faults::default() });
    pair.queue_reliable(0, Chain::Topic(1), 0, 1_000);
    pair.lose_next = 1;
    pair.transmit(0);
    for id in 1..=8 {
        pair.queue_reliable(0, Chain::Topic(id % 2 + 1), id, 1_000);
    }
    pair.run_until_idle(10 * SECOND);
    let (one, two): (Vec<u64>, Vec<u64>) = pair.received[1].iter().partition(|&&id| id == 0 || id % 2 == 0);
    assert_eq!((one, two), (vec![0, 2, 4, 6, 8], vec![1, 3, 5, 7]));
    let lost = pair.received[1].iter().position(|&id| id == 0).unwrap();
    assert_eq!(lost, 4, "the other chain is through: {:?}", pair.received[1]);
    assert_eq!(pair.links[0].stats().retransmits, 1);
}

#[test]
fn the_token_is_sent_until_the_first_acknowledgement() {
    let mut pair = Pair::new(1, Faults { delay: 1_000, ..Faults::default() });
    assert!(!pair.links[0].is_established() && pair.links[1].is_established());
    pair.queue_reliable(0, Chain::Control, 0, 10);
    pair.lose_next = 1;
    pair.run_until_idle(10 * SECOND);
    assert!(pair.links[0].is_established());
    let with_token = pair.tokens_seen;
    assert!(with_token >= 1);
    pair.queue_reliable(0, Chain::Control, 1, 10);
    pair.run_until_idle(20 * SECOND);
    assert_eq!(pair.tokens_seen, with_token);
}

#[test]
fn a_renewed_token_sends_all_again_at_once() {
    let mut pair = Pair::new(1, Faults { delay: 1_000, ..Faults::default() });
    pair.queue_reliable(0, Chain::Control, 0, 10);
    pair.lose_next = 1;
    pair.transmit(0);
    pair.links[0].renew_token(b"fresh".to_vec());
    pair.transmit(0);
    pair.run_until(pair.now + 2 * MILLISECOND);
    assert_eq!(pair.received[1], [0]);
}

#[test]
fn an_adopted_link_sends_one_small_datagram_until_its_address_is_proved() {
    let mut pair = Pair::new(1, Faults { delay: 1_000, ..Faults::default() });
    pair.links[1] = Link::new(config(1, Role::Adopter), pair.links[0].peer(), vec![9; 21], 0);
    pair.links[1].peer = pipe::address(0);
    pair.links[0].begun_by_peer();
    assert!(!pair.links[1].is_established());
    pair.queue_reliable(1, Chain::Control, 0, 10);
    let sizes = pipe::built(&mut pair.links[1], 0);
    assert!(matches!(sizes[..], [1..=60]), "{sizes:?}");
    while let Some(at) = pair.links[1].poll_timeout() {
        pair.links[1].handle_timeout(at);
        assert!(pipe::built(&mut pair.links[1], at).is_empty(), "at {at}");
    }
    assert!(pair.links[1].keep_alive_timer.is_over(), "nobody answered");

    pair.links[1] = Link::new(config(1, Role::Adopter), pair.links[0].peer(), Vec::new(), 0);
    pair.links[1].peer = pipe::address(0);
    pair.queue_reliable(1, Chain::Control, 0, 10);
    pair.run_until(10_000);
    assert!(pair.received[0].is_empty());
    pair.links[1].prove();
    pair.run_until_idle(10 * SECOND);
    assert!(pair.links[1].is_established());
    assert_eq!(pair.received[0], [0]);
    pair.run_until(pair.now + 60 * SECOND);
    assert!(!pair.links[1].keep_alive_timer.is_over(), "the initiator keeps it alive");
}

#[test]
fn a_dead_peer_is_noticed_at_both_ends_after_the_idle_timeout() {
    for has_something_to_send in [false, true] {
        let mut pair = Pair::new(1, Faults { delay: 1_000, ..Faults::default() });
        queue(&mut pair, 0, 5, 0);
        pair.run_until_idle(10 * SECOND);
        let start = pair.now;
        pair.faults.loss = 1.0;
        if has_something_to_send {
            queue(&mut pair, 0, 5, 100);
            queue(&mut pair, 1, 5, 200);
        }
        pair.run_until(start + 14 * SECOND);
        assert!(pair.links.iter().all(|link| !link.keep_alive_timer.is_over()));
        pair.run_until(start + 18 * SECOND);
        assert!(
            pair.links.iter().all(|link| link.keep_alive_timer.is_over() && link.poll_timeout().is_none())
        );
    }
}

#[test]
fn a_deadline_always_lies_ahead_even_if_nothing_is_sent() {
    for seed in 0..50 {
        let mut pair =
            Pair::new(seed, Faults { loss: 0.3, delay: 3_000, jitter: 2_000, ..Faults::default() });
        queue(&mut pair, 0, 50, 0);
        queue(&mut pair, 1, 50, 1_000);
        let until = pair.rng.random_range(1..200) * MILLISECOND;
        pair.run_until(until);
        for link in &mut pair.links {
            let mut now = pair.now;
            for _ in 0..500 {
                let Some(deadline) = link.poll_timeout() else {
                    break;
                };
                now = now.max(deadline) + pair.rng.random_range(0..2_000);
                link.handle_timeout(now);
                assert!(link.poll_timeout().is_none_or(|next| next > now), "seed {seed}");
            }
            assert!(link.queued_bytes() < 100_000, "what is not sent does not pile up");
        }
    }
}

#[test]
fn a_new_incarnation_ends_the_link_and_a_new_address_does_not() {
    let mut link = Link::new(config(1, Role::Acceptor), pipe::address(0), Vec::new(), 0);
    let mut header = Header { session: 7, incarnation: 5, number: 1, ..Header::default() };
    assert_eq!(link.handle_header(0, &header, pipe::address(0)), Arrival::Fresh);
    link.finish_datagram(0, 1, 100, true, true);
    assert_eq!(link.handle_header(0, &header, pipe::address(0)), Arrival::Duplicate);
    header.number = 3;
    assert_eq!(link.handle_header(0, &header, pipe::address(9)), Arrival::Moved);
    link.finish_datagram(0, 3, 100, true, true);
    link.move_to(pipe::address(9));
    assert_eq!(link.peer(), pipe::address(9));
    header.number = 2;
    assert_eq!(link.handle_header(0, &header, pipe::address(0)), Arrival::Fresh, "a late one moves nothing");
    header.incarnation = 6;
    assert_eq!(link.handle_header(0, &header, pipe::address(0)), Arrival::Restarted);
}

#[test]
fn what_the_receiver_cannot_keep_comes_again() {
    let mut pair = Pair::new(1, Faults { delay: 1_000, ..Faults::default() });
    pair.inbox_is_full = true;
    queue(&mut pair, 0, 10, 0);
    pair.run_until(5 * SECOND);
    assert!(pair.received[1].iter().all(|&id| id >= 1_000_000));
    assert!(!pair.links[0].is_drained());
    pair.inbox_is_full = false;
    pair.run_until_idle(20 * SECOND);
    assert_eq!(pair.received[1].iter().filter(|&&id| id < 1_000_000).count(), 10);
}

#[test]
fn what_was_lost_waits_for_credit_and_nothing_else_does() {
    let mut pair = Pair::new(1, Faults { delay: 1_000, ..Faults::default() });
    pair.links[0].budget.spend(0, 62_000);
    pair.lose_next = 1;
    (0..8).for_each(|id| pair.queue_reliable(0, Chain::Topic(id), id, 1_000));
    pair.run_until(3 * SECOND);
    assert_eq!(pair.received[1], [1, 2, 3, 4, 5, 6, 7]);
    pair.run_until_idle(5 * SECOND);
    assert_eq!((pair.received[1].last(), pair.links[0].stats().retransmits), (Some(&0), 1));
}

#[test]
fn a_refusal_arrives_whatever_is_lost() {
    for seed in 0..50 {
        let mut pair = Pair::new(seed, Faults { loss: 0.3, delay: 1_000, ..Faults::default() });
        let mut refusal = Vec::new();
        wire::put_puback_field(&mut refusal, [(7, 7)], 9, "a/topic", None);
        pair.links[1].refuse(refusal.into()).unwrap();
        pair.run_until_idle(60 * SECOND);
        assert!(pair.refused[0].contains(&7), "seed {seed}");
    }
}

#[test]
fn the_queues_are_bounded_and_control_has_a_reserve() {
    let mut link = Link::new(config(1, Role::Acceptor), pipe::address(0), Vec::new(), 0);
    let limit = link.config.queue_bytes;
    while link.queue_unreliable(&[0; 1_000], None).is_ok() {}
    while link.queue_reliable(Chain::Topic(1), Bytes::from_static(&[0; 1_000]), None).is_ok() {}
    assert!((2 * limit - 10_000..=2 * limit).contains(&link.queued_bytes()));
    assert!(link.queue_reliable(Chain::Control, Bytes::from_static(&[0; 1_000]), None).is_ok());
    let mut empty = 0;
    while link.queue_reliable(Chain::Control, Bytes::new(), None).is_ok() {
        empty += 1;
    }
    assert!(empty <= CONTROL_RESERVE / 32, "empty packets are not free: {empty}");
    assert_eq!(link.queue_unreliable(&[0; MOST_BODY + 1], None), Err(QueueFull));
}

#[test]
fn a_large_packet_leaves_alone() {
    let mut pair = Pair::new(1, Faults { delay: 1_000, ..Faults::default() });
    pair.largest_allowed = 41_000;
    pair.queue_reliable(0, Chain::Control, 0, 10);
    pair.queue_reliable(0, Chain::Control, 1, 40_000);
    pair.queue_reliable(0, Chain::Control, 2, 10);
    pair.run_until_idle(10 * SECOND);
    assert_eq!(pair.received[1], [0, 1, 2]);
    assert_eq!(pair.links[0].recovery.next_number() - 1, 3);
}

#[test]
fn a_full_body_fits_a_bundle_beside_the_largest_header() {
    let token = vec![9; 21];
    let mut link = Link::new(config(u64::MAX, Role::Initiator), pipe::address(1), token, 0);
    link.begun_by_peer();
    for gap in 1..=64 {
        let header = Header { number: gap << 57, ..Header::default() };
        assert_eq!(link.handle_header(0, &header, pipe::address(1)), Arrival::Fresh);
        link.finish_datagram(0, header.number, 100, true, true);
    }
    let full = Bytes::from(vec![0; 1_200 - DATAGRAM_OVERHEAD]);
    link.queue_reliable(Chain::Topic(1), full.clone(), None).unwrap();
    link.queue_reliable(Chain::Topic(1), full, Some(MeantFor::Listener(u64::MAX))).unwrap();
    let sizes = pipe::built(&mut link, SECOND);
    assert_eq!(sizes.len(), 2);
    assert!(sizes.iter().all(|size| (1_100..=1_200).contains(size)), "{sizes:?}");
    assert_eq!(link.recovery.next_number() - 1, 2);
}

/// What a link sends now.
fn sent(link: &mut Link, now: Micros) -> Vec<Vec<u8>> {
    let mut out = crate::core::Datagrams::default();
    link.poll_transmit(now, &mut out);
    out.sent.into_iter().map(|(_, datagram)| datagram).collect()
}

/// An acknowledgement, as the peer reads it.
fn acknowledgement(incarnation: u64, number: u64, ranges: &[(u64, u64)]) -> Vec<u8> {
    let ack = Some(wire::AckOut { delay_us: 0, ranges });
    let mut out = Vec::new();
    wire::put_header(
        &mut out,
        &wire::HeaderOut { session: 7, incarnation, number, ack, token: &[], ack_every: 0 },
    );
    out
}

#[test]
fn what_may_begin_a_link_tells_whether_its_sender_has_one() {
    let mut link = Link::new(config(1, Role::Initiator), pipe::address(1), vec![9; 21], 0);
    link.begun_by_peer();
    let header = Header { number: 1, ..Header::default() };
    assert_eq!(link.handle_header(0, &header, pipe::address(1)), Arrival::Fresh);
    link.finish_datagram(0, 1, 100, true, true);
    for now in 1..4 {
        link.queue_unreliable(&body(1, 50), None).unwrap();
        let sent = sent(&mut link, now);
        let [datagram] = &sent[..] else { panic!("one datagram") };
        let view = wire::DatagramView::parse(datagram).expect("it is whole");
        assert!(!view.header.token.is_empty() && view.header.ack.is_some(), "{now}");
    }
}

#[test]
fn who_opened_a_link_takes_nothing_before_its_own_datagrams_are_acknowledged() {
    let config = LinkConfig { first_number: 10, ..config(1, Role::Initiator) };
    let mut link = Link::new(config, pipe::address(1), vec![9; 21], 0);
    link.queue_reliable(Chain::Topic(1), body(1, 900).into(), None).unwrap();
    link.queue_reliable(Chain::Topic(1), body(2, 900).into(), None).unwrap();
    let numbers = sent(&mut link, 0)
        .iter()
        .map(|datagram| wire::DatagramView::parse(datagram).unwrap().header.number)
        .collect::<Vec<_>>();
    assert_eq!(numbers, [10, 11]);
    let former: [&[(u64, u64)]; 4] = [&[], &[(1, 9)], &[(11, 11), (9, 9)], &[(10, 12)]];
    for (ranges, number) in former.iter().zip(1..) {
        let datagram = acknowledgement(5, number, ranges);
        let view = wire::DatagramView::parse(&datagram).unwrap();
        assert_eq!(link.handle_header(1, &view.header, pipe::address(1)), Arrival::Past, "{ranges:?}");
        assert_eq!((link.peer_incarnation(), link.recovery.in_flight() > 1_800), (None, true));
    }
    for (number, ranges, arrival) in [(1, (11, 11), Arrival::Fresh), (2, (10, 12), Arrival::Unsent)] {
        let datagram = acknowledgement(6, number, &[ranges]);
        let view = wire::DatagramView::parse(&datagram).unwrap();
        assert_eq!(link.handle_header(2, &view.header, pipe::address(1)), arrival);
        assert_eq!((link.peer_incarnation(), link.is_established()), (Some(6), true));
    }
}

#[test]
fn who_was_called_acknowledges_in_each_datagram_until_it_is_heard() {
    let mut link = Link::new(config(1, Role::Acceptor), pipe::address(0), Vec::new(), 0);
    let header = Header { number: 1, ..Header::default() };
    assert_eq!(link.handle_header(0, &header, pipe::address(0)), Arrival::Fresh);
    link.finish_datagram(0, 1, 100, true, true);
    for (now, is_heard) in [(1, false), (2, false), (3, true)] {
        if is_heard {
            let datagram = acknowledgement(0, 2, &[(1, 2)]);
            let view = wire::DatagramView::parse(&datagram).unwrap();
            assert_eq!(link.handle_header(now, &view.header, pipe::address(0)), Arrival::Fresh);
        }
        link.queue_unreliable(&body(1, 50), None).unwrap();
        let sent = sent(&mut link, now);
        let view = wire::DatagramView::parse(&sent[0]).unwrap();
        assert_eq!(view.header.ack.is_some(), !is_heard);
    }
}
