//! What a worker does in a turn: with a thread of its own, or step by step.

use std::sync::mpsc;

use super::*;
use crate::endpoint::machine::TurnHook;
use crate::endpoint::socket::{self, Arrivals};
use crate::endpoint::worker::Step;

#[test]
fn a_worker_without_a_thread_does_what_is_due_step_by_step_and_says_when_the_next_is() {
    let (endpoint, mut worker) =
        Endpoint::without_thread(Echo::default(), LOCAL.parse().unwrap(), None).unwrap();
    let mut arrivals = Arrivals::new();
    let mut step = |worker: &mut Worker<Echo>| worker.step(&mut arrivals).unwrap();
    // Which of the two is readable: the socket, and the event descriptor.
    let readable = |worker: &Worker<Echo>, timeout| {
        let (socket, event_fd) = worker.descriptors();
        [socket, event_fd].map(|one| socket::wait_readable(one.as_raw_fd(), timeout).unwrap())
    };
    assert_eq!(step(&mut worker), Step { has_more: false, due: None });
    assert_eq!(readable(&worker, Duration::ZERO), [false, false]);

    let client = std_client();
    client.connect(endpoint.address()).unwrap();
    client.send(b"hello").unwrap();
    assert!(socket::wait_readable(worker.descriptors().0.as_raw_fd(), SOON).unwrap());
    assert_eq!(step(&mut worker), Step { has_more: false, due: None }, "it took all that waited");
    assert_eq!(client.recv(&mut [0; 16]).unwrap(), 5);
    (0..40).for_each(|_| assert!(client.send(b"many").is_ok()));
    assert!(step(&mut worker).has_more, "who took as many as it may looks again before it sleeps");
    while step(&mut worker).has_more {}
    (0..40).for_each(|_| assert_eq!(client.recv(&mut [0; 16]).unwrap(), 4));

    // A caller's deadline is sooner than none: the worker is woken from its sleep between steps.
    endpoint.with_machine(0, |machine, now| machine.due = Some(now + 60_000_000));
    assert_eq!(readable(&worker, Duration::ZERO), [false, true]);
    let Step { has_more, due } = step(&mut worker);
    assert!(
        !has_more && due.is_some_and(|due| due > Duration::from_secs(50) && due <= Duration::from_secs(60))
    );
    assert_eq!(readable(&worker, Duration::ZERO), [false, false], "it has seen the descriptor");
    // One that comes no sooner does not ring.
    endpoint.with_machine(0, |machine, now| machine.due = Some(now + 90_000_000));
    assert_eq!(readable(&worker, Duration::ZERO), [false, false]);

    endpoint.with_machine(0, |machine, now| machine.due = Some(now));
    assert!(readable(&worker, Duration::ZERO)[1]);
    assert_eq!(step(&mut worker), Step { has_more: false, due: None }, "it was due");
    assert_eq!(endpoint.inspect(0, |machine| machine.output), 1);

    // Somebody has work for it while it is at work.
    let worker_handle = worker.worker_handle();
    endpoint.with_machine(0, |machine, now| {
        machine.due = Some(now);
        machine.meanwhile = Some(Box::new(move || worker_handle.waker.wake()));
    });
    assert!(step(&mut worker).has_more);
    assert_eq!(step(&mut worker), Step { has_more: false, due: None });
    drop(worker);
}

/// Says who runs it, and looks at the machine while it does.
struct Reporter {
    worker_handle: Mutex<Option<Arc<WorkerHandle<Echo>>>>,
    said: mpsc::Sender<(bool, usize)>,
}

impl TurnHook for Reporter {
    fn run(&self, is_worker: bool) {
        let turns =
            self.worker_handle.lock().as_ref().map(|worker_handle| worker_handle.inspect(|echo| echo.turns));
        if let Some(turns) = turns {
            let _ = self.said.send((is_worker, turns));
        }
    }
}

#[test]
fn a_turn_hook_is_run_after_each_turn_with_the_machine_free() {
    let (said, heard) = mpsc::channel();
    let turn_hook = Arc::new(Reporter { worker_handle: Mutex::new(None), said });
    let endpoint = start(vec![Echo { turn_hook: Some(Arc::clone(&turn_hook) as _), ..Echo::default() }]);
    *turn_hook.worker_handle.lock() = Some(Arc::clone(&endpoint.worker_handles[0]));
    endpoint.with_machine(0, |_, _| {});
    let by_caller = |(is_worker, _): &(bool, usize)| !is_worker;
    assert!(std::iter::from_fn(|| heard.recv_timeout(SOON).ok()).any(|said| by_caller(&said)));
    let client = std_client();
    client.send_to(b"x", endpoint.address()).unwrap();
    client.recv(&mut [0; 8]).unwrap();
    assert!(
        std::iter::from_fn(|| heard.recv_timeout(SOON).ok()).any(|(is_worker, turns)| is_worker && turns > 0)
    );
    *turn_hook.worker_handle.lock() = None;
}
