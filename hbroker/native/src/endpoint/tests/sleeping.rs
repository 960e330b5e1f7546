//! When a worker sleeps, and what wakes it.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::echo::is_readable;
use super::*;

#[test]
fn no_wake_up_is_lost() {
    for seed in 0..4 {
        let endpoint = start(echoes(2));
        thread::scope(|scope| {
            for caller in 0..3u64 {
                let endpoint = &endpoint;
                scope.spawn(move || publish_and_wait(endpoint, seed * 10 + caller));
            }
        });
    }
}

/// One datagram after the other, each after a pause that sometimes lets the worker fall asleep, sometimes just not.
fn publish_and_wait(endpoint: &Endpoint<Echo>, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let client = std_client();
    let to = client.local_addr().unwrap();
    let mut buffer = [0; 16];
    for number in 0..3_000u64 {
        (0..rng.random_range(0..2_000)).for_each(|_| std::hint::spin_loop());
        let worker = rng.random_range(0..2);
        endpoint.with_machine(worker, |m, _| m.outgoing.push_back((to, number.to_be_bytes().to_vec())));
        let length = client.recv(&mut buffer).unwrap_or_else(|_| panic!("seed {seed}: {number} never left"));
        assert_eq!(buffer[..length], number.to_be_bytes());
    }
}

#[test]
fn a_new_deadline_gets_the_worker_up_in_time() {
    let endpoint = start(echoes(1));
    for _ in 0..300 {
        endpoint.with_machine(0, |machine, now| machine.due = Some(now + 500));
        assert!(endpoint.wait(SOON));
        assert_eq!(endpoint.with_machine(0, |machine, _| std::mem::take(&mut machine.output)), 1);
    }
}

#[test]
fn the_descriptor_is_readable_exactly_while_there_is_output() {
    let endpoint = start(echoes(3));
    assert!(!endpoint.wait(Duration::ZERO));
    endpoint.with_machine(0, |machine, _| machine.output = 1);
    assert!(is_readable(&endpoint));
    endpoint.with_machine(1, |machine, _| machine.output = 1);
    endpoint.with_machine(0, |machine, _| machine.output = 0);
    assert!(is_readable(&endpoint) && endpoint.wait(Duration::ZERO));
    endpoint.with_machine(1, |machine, _| machine.output = 0);
    assert!(!is_readable(&endpoint) && !endpoint.wait(Duration::ZERO));
    endpoint.with_machine(2, |machine, _| machine.output = 2);
    assert!(is_readable(&endpoint) && endpoint.wait(Duration::ZERO));
}

#[test]
fn an_idle_worker_uses_no_time() {
    let endpoint = start(echoes(1));
    endpoint.with_machine(0, |machine, now| machine.due = Some(now));
    assert!(endpoint.wait(SOON));
    let before = endpoint.with_machine(0, |machine, now| {
        machine.output = 0;
        machine.due = Some(now + 300_000);
        machine.turns
    });
    assert!(endpoint.wait(SOON));
    let (turns, cpu) = endpoint.inspect(0, |machine| (machine.turns - before, machine.cpu.clone()));
    assert!(turns <= 4, "{turns} turns with nothing to do");
    assert!(cpu[1] - cpu[0] < 5_000_000, "{} ns of CPU in 300 ms", cpu[1] - cpu[0]);
}

#[test]
fn a_worker_that_had_much_holds_off_before_it_listens_again() {
    let endpoint = start(echoes(1));
    let (client, mut buffer) = (std_client(), [0; 8_192]);
    for (size, holds_off) in [(1_000, false), (4_096, true)] {
        for _ in 0..200 {
            client.send_to(&vec![7; size], endpoint.address()).unwrap();
            assert_eq!(client.recv(&mut buffer).unwrap(), size);
            let waker = &endpoint.worker_handles[0].waker;
            let deadline = Instant::now() + SOON;
            while !waker.is_sleeping() {
                assert!(Instant::now() < deadline, "it does not sleep");
                thread::yield_now();
            }
        }
        assert_eq!(counter(&endpoint, "socket.hold_offs") > 0, holds_off, "{size}");
    }
}

#[test]
fn who_takes_one_datagram_in_asks_the_kernel_once_for_it() {
    let endpoint = start(echoes(1));
    let client = std_client();
    client.connect(endpoint.address()).unwrap();
    let before = counter(&endpoint, "socket.receive_calls");
    let asleep = |worker_handle: &WorkerHandle<Echo>| worker_handle.waker.is_sleeping();
    for _ in 0..200 {
        client.send(b"hello").unwrap();
        assert_eq!(client.recv(&mut [0; 16]).unwrap(), 5);
        let deadline = Instant::now() + SOON;
        while !asleep(&endpoint.worker_handles[0]) {
            assert!(Instant::now() < deadline);
            thread::yield_now();
        }
    }
    let calls = counter(&endpoint, "socket.receive_calls") - before;
    assert!((200..=210).contains(&calls), "{calls} calls for 200 datagrams that came one by one");
}
