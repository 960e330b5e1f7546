//! Clients that send more than they read, and what that costs the others.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::echo::{Bench, Command, Entry, exchange, expect};
use crate::mqtt::io::listener::Settings;

#[test]
fn many_clients_get_back_what_they_sent() {
    let bench = Bench::new(Settings::default());
    let client = |seed: u64| {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut stream = bench.connect();
        for _ in 0..20 {
            let mut bytes = vec![0; random.random_range(1..200_000)];
            random.fill(&mut bytes[..]);
            let mut writer = stream.try_clone().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| writer.write_all(&bytes).unwrap());
                expect(&mut stream, &bytes);
            });
        }
    };
    std::thread::scope(|scope| (0..8).for_each(|seed| _ = scope.spawn(move || client(seed))));
    assert_eq!(bench.server.fault(), None);
}

/// Writes without reading, until TCP says that the other side takes no more.
fn fill(client: &mut TcpStream, most: usize) -> usize {
    client.set_nonblocking(true).unwrap();
    let (mut sent, mut since) = (0_usize, Instant::now());
    while sent < most && since.elapsed().as_millis() < 300 {
        let piece = vec![(sent / 4_096) as u8; 4_096 - sent % 4_096];
        match client.write(&piece) {
            Ok(count) => (sent, since) = (sent + count, Instant::now()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
    client.set_nonblocking(false).unwrap();
    sent
}

#[test]
fn who_does_not_read_is_not_read_and_stalls_alone() {
    const MOST: usize = 256 << 20;
    let bench = Bench::with(1, Settings::default(), None);
    let (mut stalls, mut lives) = (bench.connect(), bench.connect());
    let sent = fill(&mut stalls, MOST);
    assert!(sent < MOST, "the server took all, and must have kept it");
    (0..100).for_each(|_| exchange(&mut lives, b"undisturbed"));
    let mut got = vec![0; sent / 4_096 * 4_096];
    stalls.read_exact(&mut got).unwrap();
    assert!(got.chunks(4_096).enumerate().all(|(number, piece)| piece.iter().all(|at| *at == number as u8)));
    bench.journal.wait(|entry| matches!(entry, Entry::Drained(_)).then_some(()));
}

#[test]
fn a_pause_holds_and_ends() {
    let bench = Bench::with(1, Settings::default(), None);
    let mut client = bench.connect();
    let id = bench.journal.wait_opened();
    bench.command(id, Command::Pause(id, true));
    // The pause was obeyed before this is sent: the worker takes its mail in order.
    bench.command(id, Command::Write(id, Bytes::from_static(b"paused")));
    expect(&mut client, b"paused");
    client.write_all(b"later").unwrap();
    let mut other = bench.connect();
    (0..50).for_each(|_| exchange(&mut other, b"x"));
    client.set_nonblocking(true).unwrap();
    assert_eq!(client.read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    client.set_nonblocking(false).unwrap();
    bench.command(id, Command::Pause(id, false));
    expect(&mut client, b"later");
}

#[test]
fn commands_from_many_threads_reach_everybody_once() {
    let bench = Bench::new(Settings::default());
    let mut clients: Vec<TcpStream> = (0..100).map(|_| bench.connect()).collect();
    clients.iter_mut().for_each(|client| exchange(client, b"here"));
    let large = Bytes::from(vec![3; 10_000]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    (0..2).for_each(|worker| bench.post(worker, Command::Everybody(large.clone())));
                }
            });
        }
    });
    for client in &mut clients {
        expect(client, &[3; 400_000]);
        exchange(client, b"and nothing else");
    }
    assert!(bench.counter("mqtt.writes") < 100 * 40 * 2, "what comes together leaves together");
    clients.truncate(0);
    bench.wait_empty();
}
