//! Datagrams between endpoints with security on: sealed on the way, whole at the other end.

use std::collections::BTreeSet;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::association::credentials::Credentials;
use crate::association::packet::OVERHEAD;
use crate::association::tests::{client, node};
use crate::token::TokenKeys;

/// An endpoint whose machines echo, or keep what comes.
fn sealed(machines: Vec<Echo>, credentials: Credentials) -> Endpoint<Echo> {
    let shared = Shared::new(credentials, TokenKeys::new(vec![[7; 16]]), 10_000, 1_000, 5);
    Endpoint::new(machines, LOCAL.parse().unwrap(), Some(Arc::new(shared))).unwrap()
}

fn collector() -> Vec<Echo> {
    vec![Echo { kept: Some(Vec::new()), ..Echo::default() }]
}

fn send(endpoint: &Endpoint<Echo>, to: SocketAddr, datagrams: impl IntoIterator<Item = Vec<u8>>) {
    let datagrams = datagrams.into_iter().map(|datagram| (to, datagram));
    endpoint.with_machine(0, |machine, _| machine.outgoing.extend(datagrams));
}

/// What an endpoint has kept, once it is this much.
fn kept(endpoint: &Endpoint<Echo>, count: usize) -> Vec<Vec<u8>> {
    let deadline = Instant::now() + SOON;
    loop {
        let length = endpoint.inspect(0, |machine| machine.kept.as_ref().map_or(0, Vec::len));
        if length >= count {
            return endpoint.with_machine(0, |machine, _| machine.kept.replace(Vec::new()).unwrap());
        }
        assert!(Instant::now() < deadline, "{length} of {count}");
        thread::yield_now();
    }
}

#[test]
fn what_is_sent_comes_whole_and_once_and_nobody_else_reads_it() {
    for workers in [1, 3] {
        let server = sealed(echoes(workers), node());
        let clients: Vec<_> = (0..4).map(|_| sealed(collector(), client())).collect();
        for (number, client) in clients.iter().enumerate() {
            let mut rng = SmallRng::seed_from_u64(number as u64);
            // The first waits until there are keys. Then come trains of datagrams of one size, and of many.
            for sizes in [20..21, 1_000..1_001, 8..1_400] {
                let sent: Vec<Vec<u8>> = (0..40_u64)
                    .map(|index| {
                        [&index.to_be_bytes()[..], &vec![7; rng.random_range(sizes.clone())]].concat()
                    })
                    .collect();
                send(client, server.address(), sent.clone());
                assert!(client.drain(SOON));
                let came: BTreeSet<_> = kept(client, 40).into_iter().collect();
                assert_eq!(came, sent.into_iter().collect());
            }
            assert_eq!(counter(client, "association.handshakes"), 1);
        }
        assert_eq!(counter(&server, "association.handshakes"), 4);
        assert_eq!(counter(&server, "drop.seal_forged"), 0);
    }
}

#[test]
fn a_stranger_in_the_clear_gets_nothing() {
    let server = sealed(echoes(1), node());
    let (stranger, friend) = (std_client(), sealed(collector(), client()));
    stranger.connect(server.address()).unwrap();
    stranger.send(&[9; 100]).unwrap();
    send(&friend, server.address(), [vec![1; 100]]);
    assert_eq!(kept(&friend, 1), [vec![1; 100]], "handled after the stranger's");
    assert_eq!(counter(&server, "drop.seal_forged"), 1);
    stranger.set_nonblocking(true).unwrap();
    assert!(stranger.recv(&mut [0; 2_000]).is_err());
}

#[test]
fn a_datagram_is_longer_by_the_seal_alone() {
    let (one, other) = (sealed(collector(), node()), sealed(collector(), node()));
    send(&one, other.address(), [vec![1; 100]]);
    kept(&other, 1);
    let before = counter(&other, "socket.bytes_in");
    send(&one, other.address(), (0..50).map(|_| vec![2; 1_100]));
    assert_eq!(kept(&other, 50), vec![vec![2; 1_100]; 50]);
    let received = counter(&other, "socket.bytes_in") - before;
    // The end of the handshake may be among what came.
    assert!((0..200).contains(&(received - 50 * (1_100 + OVERHEAD as u64))), "{received}");
}

#[test]
fn it_is_not_drained_before_there_are_keys() {
    let silent = UdpSocket::bind(LOCAL).unwrap();
    let endpoint = sealed(collector(), client());
    send(&endpoint, silent.local_addr().unwrap(), [vec![1; 100]]);
    assert!(!endpoint.drain(Duration::from_millis(50)));
    let mut first = [0; 2_000];
    let length = silent.recv(&mut first).unwrap();
    assert!(length > 100 && !first[..length].windows(100).any(|bytes| bytes == [1; 100]));
}
