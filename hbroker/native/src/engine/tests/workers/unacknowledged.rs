//! Messages of `QoS` 0 whose subscriber is another worker's.

use super::Apart;
use crate::engine::tests::network::{MILLISECOND, Network, SECOND, message};
use crate::engine::transport::copy_batch::MOST_BYTES;
use crate::engine::transport::outbound::Handoff;
use crate::load::topics::Traffic;
use crate::wire::PublishOut;

/// A subscriber of all below `t`, too. What goes to its worker stays where it is.
fn apart(qos: u8) -> Apart {
    let mut apart = Apart::new(qos, 4_096);
    let Apart { network, node, subscriber, .. } = &mut apart;
    network.listen(*subscriber, 2, "t/#", qos);
    network.subscribe(*subscriber, *node, "t/#", qos, false);
    network.holds_handoffs = true;
    apart
}

/// Hands all over, and runs until it has arrived.
fn hand_over(apart: &mut Apart, handed: Vec<Handoff>) {
    handed.into_iter().for_each(|handoff| apart.take(handoff));
    apart.network.holds_handoffs = false;
    apart.network.run(SECOND);
}

fn kind(handoff: &Handoff) -> &'static str {
    match handoff {
        Handoff::Copies(_) => "copies",
        Handoff::Deliver { .. } => "deliver",
        _ => "another",
    }
}

fn read(network: &Network, subscriber: usize) -> Vec<u64> {
    network.hosts[subscriber].read.iter().map(|read| read.sequence).collect()
}

#[test]
fn what_comes_in_one_turn_goes_in_few_pieces_and_each_is_counted_and_timed() {
    let mut apart = apart(0);
    // More than one datagram, and more than a piece holds.
    let sent = apart.publish(400, &message("t", &[7; 50], 0));
    let handed = apart.handed();
    let bytes = 400_usize * (50 + 30);
    assert!(handed.len() <= 1 + bytes.div_ceil(MOST_BYTES), "{} pieces", handed.len());
    hand_over(&mut apart, handed);
    assert_eq!(apart.network.sequences(apart.subscriber, "t"), sent);
    let (counted, timed) = apart.network.counted(apart.node, "t");
    let expected = Traffic::of_small(401, 20_005, 401, 20_005);
    assert_eq!((counted, timed), (expected, 1 + 64), "as many as a link keeps");
}

#[test]
fn topics_in_turn_go_together_too() {
    let mut apart = apart(0);
    let mut sent = Vec::new();
    for number in 0..60 {
        // Some of them twice: a run among single ones.
        let topic = format!("t/{}", number % 7 / 2);
        sent.push(apart.network.publish(apart.publisher, &message(&topic, &[7; 10], 0)));
    }
    apart.network.run(100 * MILLISECOND);
    let handed = apart.handed();
    assert_eq!(handed.iter().map(kind).collect::<Vec<_>>(), ["copies"]);
    hand_over(&mut apart, handed);
    assert_eq!(read(&apart.network, apart.subscriber), sent);
    let mut all = 0;
    for number in 0..4 {
        let (counted, timed) = apart.network.counted(apart.node, &format!("t/{number}"));
        assert_eq!(counted.messages_in, counted.messages_out, "t/{number}");
        assert_eq!(counted.bytes_out, 10 * counted.messages_out);
        assert_eq!(timed, 61);
        all += counted.messages_out;
    }
    assert_eq!(all, 60);
}

#[test]
fn none_passes_what_was_given_before_it() {
    let mut apart = apart(1);
    let mut sent = Vec::new();
    for qos in [0, 0, 1, 0, 1, 1, 0] {
        sent.extend(apart.publish(1, &message("t", b"x", qos)));
    }
    let handed = apart.handed();
    let kinds: Vec<_> = handed.iter().map(kind).collect();
    assert_eq!(kinds, ["copies", "deliver", "copies", "deliver", "deliver", "copies"]);
    for handoff in handed {
        apart.take(handoff);
        apart.network.run(100 * MILLISECOND);
    }
    assert_eq!(apart.network.sequences(apart.subscriber, "t"), sent);
}

#[test]
fn one_that_may_expire_goes_by_itself_and_is_not_delivered_dead() {
    let mut apart = apart(0);
    let published_at_us = apart.network.now;
    let message = message("t", b"x", 0);
    let sent = apart.publish(1, &PublishOut { expiry_s: Some(1), published_at_us, ..message });
    let late = apart.publish(1, &message);
    let handed = apart.handed();
    assert_eq!(handed.iter().map(kind).collect::<Vec<_>>(), ["deliver", "copies"]);
    apart.network.run(2 * SECOND);
    hand_over(&mut apart, handed);
    assert_eq!(apart.network.sequences(apart.subscriber, "t"), late, "{sent:?} has expired");
}
