//! A client of hbroker's own protocol in a load. It has the engine and the socket of any client; the load is
//! its application.
//!
//! The application runs at the end of each iteration of the worker. So received messages, their
//! acknowledgements and the next messages to publish belong to one iteration, and leave together. Events for
//! the control go to Python, as with any client. Events about published messages stay here.

use std::collections::VecDeque;
use std::hint::black_box;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mio::{Registry, Token};

use super::port::{BURST, Bench, LoadRole, Port, Shared, Turn, register_worker};
use crate::Micros;
use crate::association;
use crate::bench::load::Load;
use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::endpoint::machine::Machine;
use crate::endpoint::worker::{Step, Worker};
use crate::engine::transport::event::Event;
use crate::engine::transport::outbound::Handoff;
use crate::engine::{self, Engine};
use crate::schema::reason;
use crate::sink::DatagramSink;
use crate::wire::PublishOut;

/// How many events may wait for the control here. More wait in the engine, within its own limit.
const MOST_EVENTS: usize = 4_096;

/// The socket and the methods of such a client.
pub type LoadEndpoint = Endpoint<LoadEngine>;

/// An engine whose application is the load.
pub struct LoadEngine {
    pub engine: Engine,
    shared: Shared,
    role: LoadRole,
    topics: Box<[String]>,
    events: VecDeque<Event>,
    /// How its last attempt to publish ended.
    published: Turn,
}

impl LoadEngine {
    fn new(config: Config, shared: Shared, role: LoadRole, topics: Vec<String>) -> Self {
        let common = engine::Shared::new(&config, 1);
        let engine = Engine::new(config, 0, 1, common);
        Self {
            engine,
            shared,
            role,
            topics: topics.into(),
            events: VecDeque::new(),
            published: Turn::default(),
        }
    }

    /// Events for the control.
    pub fn take_events(&mut self, limit: usize) -> Vec<Event> {
        let count = self.events.len().min(limit);
        self.events.drain(..count).collect()
    }

    fn take_in(&mut self, now: Micros, load: &mut Load) {
        let received_at = self.shared.now();
        for item in self.engine.take_inbox_items(now, usize::MAX) {
            if let Some(subscriber) = self.role.subscribes {
                item.tell_payloads(|payload| load.note_received(subscriber, payload, received_at));
            }
        }
        while self.engine.has_events() && self.events.len() < MOST_EVENTS {
            for event in self.engine.take_events(now, MOST_EVENTS) {
                match event {
                    Event::Published { count, reason, .. } => {
                        if let Some(stream) = self.role.publishes {
                            load.note_answers(stream, count, is_success(reason));
                        }
                    }
                    event => self.events.push_back(event),
                }
            }
        }
    }

    fn publish(&mut self, now: Micros, load: &mut Load) {
        self.published = Turn::default();
        let Some(stream) = self.role.publishes else { return };
        let sent_at = self.shared.now();
        let allowed = load.may_send(stream, sent_at);
        let qos = load.plan().qos;
        for _ in 0..allowed.min(BURST) {
            let topic = &self.topics[load.next_topic(stream)];
            let payload = load.next_payload(stream, sent_at);
            let message = message(topic, payload, qos, now);
            let published = self.engine.publish(now, &message, || Bytes::copy_from_slice(payload));
            // Only the size of the message can be invalid, and the maker of the plan has checked it.
            if !matches!(published, Ok(Some(_))) {
                self.published.is_blocked = true;
                return;
            }
            load.note_sent(stream, sent_at);
        }
        self.published.has_more = allowed > BURST;
    }
}

/// How long a client needs to find these topics in its cache of zones, `rounds` times each.
pub fn time_look_ups(endpoint: &LoadEndpoint, topics: &[String], rounds: u32) -> Duration {
    endpoint.with_machine(0, |load_engine, now| {
        let begun = Instant::now();
        for topic in (0..rounds).flat_map(|_| topics) {
            black_box(load_engine.engine.zone(now, black_box(topic)));
        }
        begun.elapsed()
    })
}

impl Machine for LoadEngine {
    type Handoff = Handoff;

    fn handle_datagram(&mut self, now: Micros, source: SocketAddr, datagram: &[u8]) {
        self.engine.handle_datagram(now, source, datagram);
    }

    fn handle_timeout(&mut self, now: Micros) {
        self.engine.handle_timeout(now);
    }

    fn handle_handoff(&mut self, now: Micros, handoff: Handoff) {
        self.engine.handle_handoff(now, handoff);
    }

    fn end_turn(&mut self, now: Micros) {
        let shared = self.shared.clone();
        let mut load = shared.load.lock();
        self.take_in(now, &mut load);
        self.publish(now, &mut load);
    }

    fn poll_transmit(&mut self, now: Micros, sink: &mut impl DatagramSink) {
        self.engine.poll_transmit(now, sink);
    }

    fn poll_handoff(&mut self) -> Option<(u8, Handoff)> {
        self.engine.poll_handoff()
    }

    fn has_handoff(&self) -> bool {
        self.engine.has_handoff()
    }

    fn poll_timeout(&self) -> Option<Micros> {
        self.engine.poll_timeout()
    }

    fn has_output(&self) -> bool {
        !self.events.is_empty()
    }

    fn is_drained(&self) -> bool {
        self.engine.is_drained()
    }
}

/// The socket and the worker of a load's client, as the thread drives them.
pub struct ClientPort {
    worker: Worker<LoadEngine>,
    endpoint: Arc<Endpoint<LoadEngine>>,
    role: LoadRole,
}

impl ClientPort {
    /// Binds a socket. Returns the port for the thread, and the endpoint for the control.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn open(
        config: Config,
        listen: SocketAddr,
        shared: Shared,
        role: LoadRole,
        topics: Vec<String>,
    ) -> io::Result<(Self, Arc<LoadEndpoint>)> {
        let associations = association::table::Shared::of(&config);
        let load_engine = LoadEngine::new(config, shared, role, topics);
        let (endpoint, worker) = Endpoint::without_thread(load_engine, listen, associations)?;
        let endpoint = Arc::new(endpoint);
        Ok((Self { worker, endpoint: Arc::clone(&endpoint), role }, endpoint))
    }
}

impl Port for ClientPort {
    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        register_worker(&self.worker, registry, token)
    }

    fn turn(&mut self, bench: &mut Bench) -> io::Result<Turn> {
        let Step { has_more, due } = self.worker.step(&mut bench.arrivals)?;
        let published = self.endpoint.inspect(0, |load_engine| load_engine.published);
        let due = bench.due_in(due);
        Ok(Turn { has_more: has_more || published.has_more, is_blocked: published.is_blocked, due })
    }

    fn role(&self) -> LoadRole {
        self.role
    }
}

fn message<'a>(topic: &'a str, payload: &'a [u8], qos: u8, now: Micros) -> PublishOut<'a> {
    PublishOut { topic, payload, qos, published_at_us: now, ..PublishOut::default() }
}

fn is_success(reason: i32) -> bool {
    matches!(reason, reason::SUCCESS | reason::NO_MATCHING_SUBSCRIBERS)
}
