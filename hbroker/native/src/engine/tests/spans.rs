//! Messages with a sampled `traceparent` have spans, each its own, and others have none.

use std::sync::Arc;

use rand::Rng;

use crate::engine::tests::network::{Faults, MILLISECOND, Network, SECOND, message};
use crate::load::spans::{Span, SpanKind, SpanLog};

const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Has a node record spans.
fn record(network: &mut Network, node: usize) -> Arc<SpanLog> {
    let log = Arc::new(SpanLog::default());
    for engine in &mut network.hosts[node].engines {
        engine.out.spans = Some(Arc::clone(&log));
    }
    log
}

fn traced(value: &str) -> Vec<(String, String)> {
    vec![("unit".into(), "celsius".into()), ("traceparent".into(), value.into())]
}

fn count(spans: &[Span], kind: SpanKind, sequence: u64) -> usize {
    spans.iter().filter(|span| span.kind == kind && span.traced.sequence == sequence).count()
}

#[test]
fn each_message_has_one_span_at_its_owner_and_one_for_each_subscriber() {
    for seed in 0..6 {
        for workers in [1, 3] {
            let faults = Faults { loss: 0.05, duplication: 0.05, jitter: 1_000 };
            let (mut network, node) = Network::with_faults(seed, faults, workers);
            let log = record(&mut network, node);
            (0..3).for_each(|_| _ = network.add_subscriber(node, "t/#", 2));
            let publisher = network.add_client();
            let (sampled, not_sampled) = (traced(SAMPLED), traced(&SAMPLED.replace("-01", "-00")));
            let (mut with_spans, mut without) = (Vec::new(), Vec::new());
            for _ in 0..100 {
                let qos = network.rng.random_range(1..=2);
                let mut out = message("t/a", b"x", qos);
                let is_traced = network.rng.random_bool(0.5);
                out.user_properties = if is_traced { &sampled } else { &not_sampled };
                let sequence = network.publish(publisher, &out);
                if is_traced { &mut with_spans } else { &mut without }.push((sequence, qos));
                network.publish(publisher, &message("t/a", b"plain", qos));
                network.run(MILLISECOND);
            }
            network.run_until_drained();
            let (spans, dropped) = log.take();
            assert_eq!(dropped, 0);
            for (sequence, qos) in with_spans.iter().filter(|(_, qos)| *qos == 2) {
                let counted =
                    (count(&spans, SpanKind::Owner, *sequence), count(&spans, SpanKind::Delivery, *sequence));
                assert_eq!(counted, (1, 3), "seed {seed}, {workers} workers, QoS {qos}");
            }
            // At QoS 1 a message that comes again is another one to its owner.
            for (sequence, _) in &with_spans {
                assert!(
                    count(&spans, SpanKind::Owner, *sequence) >= 1
                        && count(&spans, SpanKind::Delivery, *sequence) >= 3
                );
            }
            assert!(
                without
                    .iter()
                    .all(|(sequence, _)| spans.iter().all(|span| span.traced.sequence != *sequence))
            );
            assert!(
                spans.iter().all(|span| span.ended >= span.traced.started && &*span.traced.topic == "t/a")
            );
        }
    }
}

#[test]
fn the_span_of_the_owner_ends_when_the_message_is_distributed() {
    let (mut network, node) = Network::with_node(1, 1);
    let log = record(&mut network, node);
    let reader = network.add_subscriber(node, "t", 1);
    network.parted = Some((reader, node));
    let publisher = network.add_client();
    let properties = traced(SAMPLED);
    let mut out = message("t", b"x", 1);
    out.user_properties = &properties;
    network.publish(publisher, &out);
    network.run(SECOND / 10);
    let kinds =
        |log: &SpanLog| log.take().0.iter().map(|span| (span.kind, span.peer.is_some())).collect::<Vec<_>>();
    assert_eq!(kinds(&log), [(SpanKind::Delivery, true)], "the reader has not acknowledged it");
    network.parted = None;
    network.run_until_drained();
    assert_eq!(kinds(&log), [(SpanKind::Owner, false)]);
    let mut nobody = message("other", b"x", 0);
    nobody.user_properties = &properties;
    network.publish(publisher, &nobody);
    network.run_until_drained();
    assert_eq!(kinds(&log), [(SpanKind::Owner, false)], "nobody has subscribed");
}

#[test]
fn a_message_of_a_gateway_is_known_as_one() {
    let (mut network, node) = Network::with_node(1, 1);
    let log = record(&mut network, node);
    let properties = traced(SAMPLED);
    for for_many in [true, false] {
        let publisher = network.add_client_with(|config| config.for_many = for_many);
        let mut out = message("t", b"x", 1);
        out.user_properties = &properties;
        network.publish(publisher, &out);
        network.run_until_drained();
        let from_gateway: Vec<_> = log.take().0.iter().map(|span| span.traced.is_from_gateway).collect();
        assert_eq!(from_gateway, [for_many]);
    }
}
