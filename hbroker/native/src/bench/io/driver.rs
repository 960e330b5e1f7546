//! The thread that drives the connections of a load.
//!
//! In a round it drives each connection that has something to do once; between rounds it polls the kernel
//! once for all. A connection that keeps to a rate, in a load in which others do not, is *prompt*: it is
//! driven after each other connection, so that its measured times do not contain the others' processing here.
//! The thread sleeps if no connection has anything to do (unless it [polls](Plan::polls)). It stays awake
//! just before a paced message is due, so that the message leaves on time.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mio::{Events, Poll, Token, Waker};
use parking_lot::Mutex;

use super::port::{Bench, Port, Shared, Turn};
use crate::bench::Nanos;
use crate::bench::load::{Load, Plan};
use crate::endpoint::socket::{self, Arrivals};

const WAKER: Token = Token(usize::MAX);
/// The most events of one poll.
const EVENTS: usize = 1_024;
/// The longest sleep: the thread must notice that nothing arrives.
const LONGEST_SLEEP: Nanos = 50_000_000;
/// If something is due within this time, the thread stays awake.
const AWAKE: Nanos = 50_000;

/// A load, and the thread that runs it until the generator is shut down or dropped.
pub struct Generator {
    pub shared: Shared,
    ports: Mutex<Sender<Box<dyn Port>>>,
    waker: Waker,
    stop: Arc<AtomicBool>,
    fault: Arc<Mutex<Option<String>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Generator {
    /// Starts the thread. It has no connections yet.
    ///
    /// # Errors
    /// The system cannot create the thread or its poll.
    pub fn new(plan: Plan) -> io::Result<Self> {
        let polls = plan.polls;
        let shared = Shared::new(Load::new(plan));
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let (ports, arriving) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let fault = Arc::default();
        let driver = LoadDriver::new(shared.clone(), polls, poll, arriving);
        let thread = thread::Builder::new().name("hbroker-bench".into()).spawn({
            let (stop, fault) = (Arc::clone(&stop), Arc::clone(&fault));
            move || driver.run(&stop, &fault)
        })?;
        Ok(Self { shared, ports: Mutex::new(ports), waker, stop, fault, thread: Mutex::new(Some(thread)) })
    }

    /// Adds a connection for the thread to drive.
    pub fn add(&self, port: Box<dyn Port>) {
        // If the thread has ended, `fault` contains the reason.
        let _ = self.ports.lock().send(port);
        self.wake();
    }

    /// Starts the load: publishers may send from now on.
    pub fn start(&self) {
        self.shared.load.lock().start(self.shared.now());
        self.wake();
    }

    /// Why the load has failed, if it has.
    pub fn fault(&self) -> Option<String> {
        self.fault.lock().clone()
    }

    /// Ends the thread and closes its connections. Idempotent.
    pub fn shutdown(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.lock().take() {
            // A panic of the thread was printed, and the load is over either way.
            let _ = thread.join();
        }
    }

    fn wake(&self) {
        // The only error is a counter at its limit, and then a wake-up is pending already.
        let _ = self.waker.wake();
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// A connection, and the thread's state of it.
struct DrivenPort {
    port: Box<dyn Port>,
    /// It is driven in the next round.
    is_ready: bool,
    /// The load allows it to send and the transport does not. That changes only when something is received.
    is_blocked: bool,
    /// Its entry in `timers`.
    due: Option<Nanos>,
    /// It is driven after each connection that is not prompt.
    is_prompt: bool,
}

struct LoadDriver {
    bench: Bench,
    polls: bool,
    poll: Poll,
    arriving: Receiver<Box<dyn Port>>,
    driven_ports: Vec<DrivenPort>,
    publishers: Vec<usize>,
    prompt: Vec<usize>,
    ready: Vec<usize>,
    timers: BTreeSet<(Nanos, usize)>,
}

impl LoadDriver {
    fn new(shared: Shared, polls: bool, poll: Poll, arriving: Receiver<Box<dyn Port>>) -> Self {
        Self {
            bench: Bench { shared, arrivals: Arrivals::new(), bytes: Vec::new(), plain: Vec::new() },
            polls,
            poll,
            arriving,
            driven_ports: Vec::new(),
            publishers: Vec::new(),
            prompt: Vec::new(),
            ready: Vec::new(),
            timers: BTreeSet::new(),
        }
    }

    fn run(mut self, stop: &AtomicBool, fault: &Mutex<Option<String>>) {
        let mut events = Events::with_capacity(EVENTS);
        while !stop.load(Ordering::Acquire) {
            if let Err(error) = self.round(&mut events) {
                *fault.lock() = Some(error.to_string());
                self.bench.shared.load.lock().stop();
                return;
            }
        }
    }

    fn round(&mut self, events: &mut Events) -> io::Result<()> {
        self.welcome()?;
        let now = self.bench.shared.now();
        while let Some(&(due, index)) = self.timers.first().filter(|&&(due, _)| due <= now) {
            self.timers.remove(&(due, index));
            self.driven_ports[index].due = None;
            self.mark(index);
        }
        let next_due = self.mark_publishers(now);
        if !self.ready.is_empty() {
            self.turns(events)?;
        } else if !self.polls {
            self.sleep(now, next_due)?;
        }
        self.hear(events)
    }

    /// Polls the kernel.
    fn hear(&mut self, events: &mut Events) -> io::Result<()> {
        self.poll.poll(events, Some(Duration::ZERO))?;
        for token in events.iter().map(mio::event::Event::token).filter(|&token| token != WAKER) {
            self.mark(token.0);
        }
        Ok(())
    }

    /// Takes over the connections that were added.
    fn welcome(&mut self) -> io::Result<()> {
        while let Ok(mut port) = self.arriving.try_recv() {
            let index = self.driven_ports.len();
            port.register(self.poll.registry(), Token(index))?;
            let role = port.role();
            if role.publishes.is_some() {
                self.publishers.push(index);
            }
            let is_prompt = self.bench.shared.load.lock().is_prompt(role.publishes, role.subscribes);
            if is_prompt {
                self.prompt.push(index);
            }
            self.driven_ports.push(DrivenPort {
                port,
                is_ready: false,
                is_blocked: false,
                due: None,
                is_prompt,
            });
            self.mark(index);
        }
        Ok(())
    }

    /// Marks the publishers that may send; returns when the next may.
    fn mark_publishers(&mut self, now: Nanos) -> Option<Nanos> {
        let load = Arc::clone(&self.bench.shared.load);
        let mut load = load.lock();
        load.look(now);
        for position in 0..self.publishers.len() {
            let index = self.publishers[position];
            let driven = &self.driven_ports[index];
            let may_send = |stream| load.may_send(stream, now) > 0;
            if !driven.is_ready && !driven.is_blocked && driven.port.role().publishes.is_some_and(may_send) {
                self.driven_ports[index].is_ready = true;
                self.ready.push(index);
            }
        }
        load.next_due()
    }

    fn turns(&mut self, events: &mut Events) -> io::Result<()> {
        for index in std::mem::take(&mut self.ready) {
            // A prompt connection was driven already.
            if self.driven_ports[index].is_ready {
                self.turn(index)?;
            }
            if !self.prompt.is_empty() && !self.driven_ports[index].is_prompt {
                self.hear(events)?;
                self.prompt_turns()?;
            }
        }
        Ok(())
    }

    fn prompt_turns(&mut self) -> io::Result<()> {
        let now = self.bench.shared.now();
        for position in 0..self.prompt.len() {
            let index = self.prompt[position];
            let driven = &self.driven_ports[index];
            let may_send = |stream| self.bench.shared.load.lock().may_send(stream, now) > 0;
            if driven.is_ready || (!driven.is_blocked && driven.port.role().publishes.is_some_and(may_send)) {
                self.turn(index)?;
            }
        }
        Ok(())
    }

    fn turn(&mut self, index: usize) -> io::Result<()> {
        let driven = &mut self.driven_ports[index];
        driven.is_ready = false;
        let Turn { has_more, is_blocked, due } = driven.port.turn(&mut self.bench)?;
        driven.is_blocked = is_blocked;
        if driven.due != due {
            if let Some(old) = std::mem::replace(&mut driven.due, due) {
                self.timers.remove(&(old, index));
            }
            self.timers.extend(due.map(|new| (new, index)));
        }
        if has_more {
            self.mark(index);
        }
        Ok(())
    }

    fn sleep(&mut self, now: Nanos, next_due: Option<Nanos>) -> io::Result<()> {
        let timer = self.timers.first().map(|&(due, _)| due);
        let wanted = timer.into_iter().chain(next_due.map(|due| due.saturating_sub(AWAKE))).min();
        let until = wanted.unwrap_or(Nanos::MAX).min(now + LONGEST_SLEEP);
        match until.checked_sub(now) {
            None | Some(0) => Ok(()),
            Some(left) => socket::wait_readable(self.poll.as_raw_fd(), Duration::from_nanos(left)).map(drop),
        }
    }

    /// Has a connection driven in the next round.
    fn mark(&mut self, index: usize) {
        let driven = &mut self.driven_ports[index];
        driven.is_blocked = false;
        if !std::mem::replace(&mut driven.is_ready, true) {
            self.ready.push(index);
        }
    }
}
