//! Real sockets on the loopback interface.

mod batches;
mod echo;
mod sealed;
mod sleeping;
mod turns;

use std::net::UdpSocket;
use std::time::Duration;

use self::echo::{Echo, counter, echoes, start, std_client};
use super::*;

const LOCAL: &str = "127.0.0.1:0";
const SOON: Duration = Duration::from_secs(20);

#[test]
fn shutdown_ends_the_threads_and_frees_the_port() {
    for workers in [1, 3] {
        let endpoint = start(echoes(workers));
        let client = std_client();
        let to = client.local_addr().unwrap();
        endpoint.with_machine(0, |machine, _| machine.outgoing.push_back((to, vec![1])));
        endpoint.shutdown();
        assert!(endpoint.endpoint_state.wait_ended(Instant::now()));
        assert!(client.recv(&mut [0; 8]).is_ok(), "what was queued has left");
        UdpSocket::bind(endpoint.address()).expect("the port is free");
        endpoint.shutdown();
        assert_eq!(endpoint.fault(), None);
        endpoint.with_machine(0, |machine, _| machine.outgoing.push_back((to, vec![1])));
        assert!(!endpoint.drain(SOON), "nobody is there to send");
    }
}

#[test]
fn an_address_in_use_is_refused_to_one_and_to_many() {
    let endpoint = start(echoes(2));
    for workers in [1, 2] {
        let error = Endpoint::new(echoes(workers), endpoint.address(), None).err().expect("it is in use");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}

/// What came for an earlier process waits in its sockets for the next one.
#[test]
fn inherited_sockets_have_the_datagrams_that_wait() {
    let client = std_client();
    let earlier = Socket::bind(LOCAL.parse().unwrap(), Options::default()).unwrap();
    let address = earlier.address().unwrap();
    client.send_to(b"early", address).unwrap();
    let inherited = Socket::inherit(earlier.as_fd().as_raw_fd(), Options::default()).unwrap();
    drop(earlier);
    let endpoint = Endpoint::on_sockets(echoes(1), vec![inherited], None).unwrap();
    assert_eq!(endpoint.address(), address);
    let mut answer = [0; 16];
    let (length, from) = client.recv_from(&mut answer).unwrap();
    assert_eq!((&answer[..length], from), (&b"early"[..], address));
}

#[test]
fn only_bound_udp_sockets_are_inherited() {
    let stream = std::net::TcpListener::bind(LOCAL).unwrap();
    let unbound = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
    for descriptor in [stream.as_raw_fd(), unbound.as_raw_fd(), -1] {
        assert!(Socket::inherit(descriptor, Options::default()).is_err());
    }
}

#[test]
fn closed_ports_and_oversize_do_not_hurt_the_others() {
    let endpoint = start(echoes(1));
    let closed = std_client().local_addr().unwrap();
    let client = std_client();
    let open = client.local_addr().unwrap();
    for _ in 0..200 {
        endpoint.with_machine(0, |machine, _| {
            machine.outgoing.push_back((closed, vec![1; 100]));
            machine.outgoing.push_back((SocketAddr::new(closed.ip(), 0), vec![1; 100]));
            machine.outgoing.push_back((SocketAddr::new(closed.ip(), 0), vec![1; 100]));
            machine.outgoing.push_back((closed, vec![1; 70_000]));
            machine.outgoing.push_back((open, vec![2; 100]));
        });
        assert_eq!(client.recv(&mut [0; 200]).unwrap(), 100);
    }
    assert_eq!(counter(&endpoint, "drop.send_too_large"), 200);
    // Nobody has port 0; systems differ in how they say so.
    assert_eq!(counter(&endpoint, "drop.send_refused") + counter(&endpoint, "drop.send_unreachable"), 400);
    client.send_to(b"still there?", endpoint.address()).unwrap();
    assert_eq!(client.recv(&mut [0; 200]).unwrap(), 12);
    assert_eq!(endpoint.fault(), None);
}

#[test]
fn drain_waits_for_the_last_datagram() {
    let endpoint = start(echoes(2));
    let client = std_client();
    let to = client.local_addr().unwrap();
    for round in 0..200 {
        endpoint.with_machine(round % 2, |machine, _| {
            machine.outgoing.extend((0..100).map(|_| (to, vec![3; 20])));
        });
        assert!(endpoint.drain(SOON));
        client.set_nonblocking(true).unwrap();
        assert_eq!((0..100).filter(|_| client.recv(&mut [0; 32]).is_ok()).count(), 100);
    }
}

#[test]
fn a_worker_that_panics_is_reported_and_the_other_goes_on() {
    let endpoint = start(echoes(2));
    endpoint.with_machine(0, |machine, _| machine.panics = true);
    let clients: Vec<_> = (0..32).map(|_| std_client()).collect();
    for client in &clients {
        client.send_to(b"boo", endpoint.address()).unwrap();
    }
    assert!(endpoint.wait(SOON), "none of 32 peers came to worker 0");
    assert_eq!(endpoint.fault().as_deref(), Some("worker 0: panicked"));
    for client in &clients {
        client.send_to(b"hello", endpoint.address()).unwrap();
        let mut buffer = [0; 8];
        while client.recv(&mut buffer).unwrap() != 5 {}
    }
    endpoint.shutdown();
    assert!(endpoint.endpoint_state.wait_ended(Instant::now()));
}

#[test]
fn ipv6_works_too() {
    let Ok(endpoint) = Endpoint::new(echoes(2), "[::1]:0".parse().unwrap(), None) else {
        return;
    };
    let client = UdpSocket::bind("[::1]:0").unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    client.send_to(b"hello", endpoint.address()).unwrap();
    let (length, source) = client.recv_from(&mut [0; 16]).unwrap();
    assert_eq!((length, source), (5, endpoint.address()));
}

#[test]
fn what_the_kernel_drops_is_counted() {
    let options = Options { buffer_bytes: 1, ..Options::default() };
    let endpoint = Endpoint::with_options(echoes(1), LOCAL.parse().unwrap(), None, options).unwrap();
    let client = std_client();
    // The machine is held while they come, so the worker cannot keep up.
    endpoint.inspect(0, |_| {
        (0..1_000).for_each(|_| assert!(client.send_to(&[1; 64], endpoint.address()).is_ok()));
    });
    // The count comes with the next datagram that finds room.
    client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let deadline = Instant::now() + SOON;
    let mut sent = 1_000;
    let mut back = 0;
    while back != 5 {
        assert!(Instant::now() < deadline);
        client.send_to(b"count", endpoint.address()).unwrap();
        sent += 1;
        back = std::iter::from_fn(|| client.recv(&mut [0; 100]).ok()).find(|&n| n == 5).unwrap_or(0);
    }
    let dropped = counter(&endpoint, "drop.receive_overflow");
    assert!(dropped > 0);
    // A second count may still be on its way.
    assert!((1_001..=sent).contains(&(counter(&endpoint, "socket.datagrams_in") + dropped)));
}

#[test]
fn after_the_resets_what_comes_waits_for_the_next_process() {
    let endpoint = start(echoes(1));
    let client = std_client();
    client.send_to(b"one", endpoint.address()).unwrap();
    assert_eq!(client.recv(&mut [0; 8]).unwrap(), 3);
    let kept = Socket::inherit(endpoint.descriptors()[0], Options::default()).unwrap();
    endpoint.reset_peers();
    client.send_to(b"late", endpoint.address()).unwrap();
    endpoint.shutdown();
    let next = Endpoint::on_sockets(echoes(1), vec![kept], None).unwrap();
    assert_eq!(client.recv(&mut [0; 8]).unwrap(), 4);
    assert_eq!(counter(&next, "socket.datagrams_in"), 1);
}
