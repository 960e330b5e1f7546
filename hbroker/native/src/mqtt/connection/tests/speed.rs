//! What a message costs a connection: from PUBLISH in to the network, and from the network to a thousand clients.
//!
//! `cargo test --release -p hbroker-native mqtt_time -- --ignored --nocapture`

use std::time::Instant;

use super::*;

const MESSAGES: usize = 200_000;
const CLIENTS: usize = 1_000;

struct Network(usize);

impl Upper for Network {
    fn publish(&mut self, publish: &Publish<'_>, _: Option<Key>) -> Taken {
        self.0 += publish.payload.len();
        Taken::Yes
    }

    fn event(&mut self, _: Event) {}
}

/// Nanoseconds for each message that comes in, a read of 64 of them at a time.
fn inward(version: Version, flags: u8) -> f64 {
    let mut bench = Bench::open(version);
    let batch = publish(version, flags, "home/kitchen/oven/temperature", 1, &[], &[5; 100]).repeat(64);
    let mut network = Network(0);
    let start = Instant::now();
    for round in 0..MESSAGES / 64 {
        let mut turn = Turn { now: 0, out: &mut bench.out, counters: &mut bench.counters, load: None };
        bench.connection.handle_bytes(&mut turn, &batch, &mut network);
        if flags > 0 {
            for key in round * 64..(round + 1) * 64 {
                bench.connection.answer(&mut turn, Key(key as u64 + 1), Reason::SUCCESS, &mut network);
            }
        }
        turn.out.clear();
    }
    assert_eq!(network.0, MESSAGES / 64 * 64 * 100);
    start.elapsed().as_nanos() as f64 / MESSAGES as f64
}

/// Nanoseconds for each copy of a message that goes out to all of a thousand clients, acknowledged where they have to.
fn outward(version: Version, qos: u8) -> f64 {
    let mut clients: Vec<Bench> = (0..CLIENTS).map(|_| Bench::open(version)).collect();
    let releases: Arc<Releases> = Arc::default();
    let (mut encoder, mut network) = (Encoder::default(), Network(0));
    let start = Instant::now();
    for sequence in 0..MESSAGES / CLIENTS {
        let message =
            Arc::new(Message::plain(sequence as u64, "home/kitchen/oven/temperature", &[5; 100], qos));
        let ack_guard =
            (qos > 0).then(|| AckGuard::new(Ticket { pool_client: 0, message: message.id }, &releases));
        for bench in &mut clients {
            let mut turn = Turn { now: 0, out: &mut bench.out, counters: &mut bench.counters, load: None };
            let delivery_options = DeliveryOptions { qos, ..DeliveryOptions::default() };
            let delivery =
                Delivery { message: Arc::clone(&message), delivery_options, ack_guard: ack_guard.clone() };
            bench.connection.deliver(&mut turn, delivery, &mut encoder, &mut network);
            if qos > 0 {
                let ack = [0x40, 2, turn.out[34], turn.out[35]];
                bench.connection.handle_bytes(&mut turn, &ack, &mut network);
            }
            turn.out.clear();
        }
    }
    let spent = start.elapsed().as_nanos() as f64 / MESSAGES as f64;
    assert_eq!(releases.take().len(), if qos > 0 { MESSAGES / CLIENTS } else { 0 });
    spent
}

#[test]
#[ignore = "a measurement"]
fn mqtt_time() {
    for version in [Version::V311, Version::V5] {
        println!("{version:?} in: QoS 0 {:.0} ns, QoS 1 {:.0} ns", inward(version, 0), inward(version, 2));
        println!("{version:?} out: QoS 0 {:.0} ns, QoS 1 {:.0} ns", outward(version, 0), outward(version, 1));
    }
}
