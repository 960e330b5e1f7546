//! Ends: by the client, by the server, by nobody.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::echo::{Bench, Command, Entry, PATIENCE, exchange, expect, expect_end};
use crate::mqtt::io::connection::Ending;
use crate::mqtt::io::listener::Settings;

#[test]
fn a_client_that_ends_its_side_gets_what_is_owed() {
    let bench = Bench::new(Settings::default());
    let mut client = bench.connect();
    client.write_all(&[5; 50_000]).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    expect(&mut client, &[5; 50_000]);
    expect_end(&mut client);
    let id = bench.journal.wait_opened();
    bench.journal.wait(|entry| (*entry == Entry::Closed(id, Ending::Closed)).then_some(()));
    bench.wait_empty();
}

#[test]
fn last_words_arrive_though_the_client_speaks_too() {
    let bench = Bench::new(Settings::default());
    let mut client = bench.connect();
    let id = bench.journal.wait_opened();
    let words = Bytes::from(vec![9; 1 << 20]);
    bench.command(id, Command::Write(id, words.clone()));
    bench.command(id, Command::Close(id));
    // Unread by the server: it must not answer with a reset, which would destroy the words.
    client.write_all(&[1; 10_000]).unwrap();
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    assert!(got == words);
    drop(client);
    bench.wait_empty();
    assert_eq!(bench.journal.count(|entry| matches!(entry, Entry::Closed(..))), 0, "it was closed here");
}

#[test]
fn a_client_that_takes_nothing_does_not_hold_a_closed_connection() {
    let bench = Bench::new(Settings::default());
    let client = bench.connect();
    let id = bench.journal.wait_opened();
    bench.command(id, Command::Write(id, Bytes::from(vec![9; 64 << 20])));
    bench.command(id, Command::Close(id));
    let since = Instant::now();
    bench.wait_empty();
    assert!(since.elapsed() < PATIENCE / 2);
    drop(client);
}

#[test]
fn silence_ends_at_the_deadline_and_speech_puts_it_off() {
    let bench = Bench::with(1, Settings::default(), Some(300_000));
    let since = Instant::now();
    let mut silent = bench.connect();
    let mut speaks = bench.connect();
    while since.elapsed() < Duration::from_millis(400) {
        exchange(&mut speaks, b"still here");
    }
    expect_end(&mut silent);
    assert!(since.elapsed() >= Duration::from_millis(300));
    exchange(&mut speaks, b"still here");
    let first = bench.journal.wait_opened();
    assert_eq!(bench.journal.count(|entry| *entry == Entry::TimedOut(first)), 1);
}

#[test]
fn a_reset_is_told() {
    let bench = Bench::new(Settings::default());
    let mut client = bench.connect();
    exchange(&mut client, b"x");
    socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    bench.journal.wait(|entry| matches!(entry, Entry::Closed(_, Ending::Failed)).then_some(()));
    bench.wait_empty();
}

#[test]
fn shutdown_lets_last_words_out() {
    let bench = Bench::new(Settings::default());
    let mut clients: Vec<TcpStream> = (0..20).map(|_| bench.connect()).collect();
    clients.iter_mut().for_each(|client| exchange(client, b"here"));
    for worker in 0..2 {
        bench.post(worker, Command::CloseAll);
    }
    let readers: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            std::thread::spawn(move || {
                expect(&mut client, b"goodbye");
                expect_end(&mut client);
            })
        })
        .collect();
    bench.server.shutdown(PATIENCE);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    assert!(TcpStream::connect(bench.listener.address).is_err(), "nobody listens any more");
    assert_eq!(bench.server.fault(), None);
}

#[test]
fn clients_that_come_and_go_leave_nothing() {
    let bench = Bench::new(Settings::default());
    let storm = |seed: u64| {
        for round in 0..150 {
            let mut client = bench.connect();
            match (round + seed) % 4 {
                0 => exchange(&mut client, b"hello"),
                1 => client.write_all(b"never read").unwrap(),
                2 => client.shutdown(Shutdown::Write).unwrap(),
                _ => socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap(),
            }
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|seed| _ = scope.spawn(move || storm(seed))));
    bench.wait_empty();
    assert_eq!(bench.server.fault(), None);
}

#[test]
fn both_families_and_a_port_that_is_taken() {
    let bench = Bench::new(Settings::default());
    assert!(bench.server.listen(1, bench.listener.address, Settings::default()).is_err());
    let any = SocketAddr::new("::".parse().unwrap(), 0);
    // A machine without IPv6 has nothing to show here.
    if let Ok(listener) = bench.server.listen(2, any, Settings::default()) {
        for host in ["127.0.0.1", "::1"] {
            let mut client = TcpStream::connect((host, listener.address.port())).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            exchange(&mut client, b"x");
            let local = client.local_addr().unwrap();
            bench.journal.wait(|entry| match entry {
                Entry::Spoke(_, source, None) if *source == local => Some(()),
                _ => None,
            });
        }
    }
}
