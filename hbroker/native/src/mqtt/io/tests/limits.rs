//! Limits: of connections, of their rate, and what they become when they are changed.

use super::echo::{Bench, exchange, expect, expect_end};
use crate::mqtt::io::admission::Limits;
use crate::mqtt::io::listener::Settings;

#[test]
fn who_finds_it_full_is_told_and_others_stay() {
    let settings = Settings { limits: Limits { connections: 2, connect_rate: 0 }, ..Settings::default() };
    let bench = Bench::new(settings.clone());
    let (mut first, mut second) = (bench.connect(), bench.connect());
    exchange(&mut first, b"in");
    exchange(&mut second, b"in");
    let mut third = bench.connect();
    std::io::Write::write_all(&mut third, b"in").unwrap();
    expect(&mut third, b"full");
    expect_end(&mut third);
    bench.listener.set(Settings { limits: Limits { connections: 3, connect_rate: 0 }, ..settings });
    exchange(&mut bench.connect(), b"in now");
    exchange(&mut first, b"still in");
}

#[test]
fn who_comes_too_fast_is_told() {
    let limits = Limits { connections: 100, connect_rate: 3 };
    let bench = Bench::new(Settings { limits, ..Settings::default() });
    let mut told = 0;
    for _ in 0..20 {
        let mut client = bench.connect();
        std::io::Write::write_all(&mut client, b"12345678").unwrap();
        let mut answer = [0; 8];
        std::io::Read::read_exact(&mut client, &mut answer).unwrap();
        told += usize::from(&answer == b"too fast");
    }
    assert!((1..=17).contains(&told), "{told}");
    bench.wait_empty();
}

#[test]
fn a_crowd_at_a_closed_door_costs_nothing_lasting() {
    let limits = Limits { connections: 0, connect_rate: 0 };
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
