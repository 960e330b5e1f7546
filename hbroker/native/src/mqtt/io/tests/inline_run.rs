//! Other threads that do a worker's work while its own sleeps.

use std::time::Instant;

use bytes::Bytes;

use super::echo::{Bench, Command, PATIENCE, exchange, expect, expect_end};
use crate::mqtt::io::listener::Settings;
use crate::mqtt::io::worker_handle::CommandSink;

#[test]
fn whoever_obeys_a_command_it_is_obeyed_once_and_in_order() {
    const NUMBERS: u32 = 30_000;
    let bench = Bench::with(1, Settings::default(), None);
    let mut client = bench.connect();
    let id = bench.journal.wait_opened();
    let mut other = bench.connect();
    let worker_handle = &bench.server.worker_handles()[0];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..NUMBERS {
                let write = Command::Write(id, Bytes::copy_from_slice(&number.to_be_bytes()));
                match number % 4 {
                    0 => worker_handle.post(write),
                    left => {
                        worker_handle.post_without_wake(write);
                        // What is left is attended to with what comes next, at the latest.
                        if left > 1 {
                            worker_handle.run_pending(left == 2);
                        }
                    }
                }
            }
        });
        // Somebody else who attends, and clients that keep the thread up now and then.
        scope.spawn(|| (0..NUMBERS).for_each(|_| worker_handle.run_pending(true)));
        scope.spawn(|| (0..500).for_each(|_| exchange(&mut other, b"meanwhile")));
        let expected: Vec<u8> = (0..NUMBERS).flat_map(u32::to_be_bytes).collect();
        expect(&mut client, &expected);
    });
    assert_eq!(bench.server.fault(), None);
}

#[test]
fn who_stands_in_wakes_the_thread_for_what_is_due_sooner_than_it_sleeps() {
    let bench = Bench::with(1, Settings::default(), None);
    let worker_handle = &bench.server.worker_handles()[0];
    let deadline = Instant::now() + PATIENCE;
    let mut stood_in = 0;
    while stood_in == 0 {
        assert!(Instant::now() < deadline, "the thread never slept");
        let mut client = bench.connect();
        exchange(&mut client, b"here");
        let id = bench.journal.last_opened().unwrap();
        let before = bench.counter("mqtt.stand_ins");
        worker_handle.post_without_wake(Command::Close(id));
        worker_handle.run_pending(true);
        stood_in = bench.counter("mqtt.stand_ins") - before;
        // The server's side is closed, and forgotten though the client's is not.
        expect_end(&mut client);
        bench.wait_empty();
    }
}

#[test]
fn a_worker_that_has_ended_is_left_alone() {
    let bench = Bench::with(1, Settings::default(), None);
    bench.server.shutdown(PATIENCE);
    let worker_handle = &bench.server.worker_handles()[0];
    worker_handle.post_without_wake(Command::CloseAll);
    worker_handle.run_pending(true);
    assert_eq!(bench.server.fault(), None);
}
