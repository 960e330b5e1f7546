//! Limits: of connections, of their rate, and what they become when they are changed.

use std::io::Write;
use std::sync::atomic::Ordering;

use super::echo::{Bench, exchange, expect, expect_end};
use crate::mqtt::io::admission::Limits;
use crate::mqtt::io::listener::Settings;

#[test]
fn who_finds_it_full_is_told_and_others_stay() {
    let settings = Settings { limits: Limits { connections: 2, ..Limits::default() }, ..Settings::default() };
    let bench = Bench::new(settings.clone());
    let (mut first, mut second) = (bench.connect(), bench.connect());
    exchange(&mut first, b"in");
    exchange(&mut second, b"in");
    let mut third = bench.connect();
    third.write_all(b"in").unwrap();
    expect(&mut third, b"full");
    expect_end(&mut third);
    bench.listener.set(Settings { limits: Limits { connections: 3, ..Limits::default() }, ..settings });
    exchange(&mut bench.connect(), b"in now");
    exchange(&mut first, b"still in");
}

#[test]
fn many_connections_at_a_full_listener_cost_nothing_lasting() {
    let limits = Limits { connections: 0, ..Limits::default() };
    let bench = Bench::new(Settings { limits, ..Settings::default() });
    let crowd: Vec<_> = (0..600).map(|_| bench.connect()).collect();
    let deadline = std::time::Instant::now() + super::echo::PATIENCE;
    while bench.counter("mqtt.turned_away") < 600 {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
    assert_eq!(bench.counter("mqtt.accepted"), 256, "these are told");
    drop(crowd);
    bench.wait_empty();
}

#[test]
fn while_there_is_no_room_inside_those_who_come_wait_in_the_kernel() {
    let bench = Bench::new(Settings::default());
    let mut inside = bench.connect();
    exchange(&mut inside, b"in");
    bench.journal.is_full.store(true, Ordering::Relaxed);
    let mut crowd: Vec<_> = (0..50).map(|_| bench.connect()).collect();
    crowd.iter_mut().for_each(|client| client.write_all(b"later").unwrap());
    let held = bench.counter("mqtt.accepts_held");
    let deadline = std::time::Instant::now() + super::echo::PATIENCE;
    while bench.counter("mqtt.accepts_held") < held + 20 {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
    assert_eq!(bench.counter("mqtt.accepted"), 1);
    exchange(&mut inside, b"still in");
    bench.journal.is_full.store(false, Ordering::Relaxed);
    crowd.iter_mut().for_each(|client| expect(client, b"later"));
}
