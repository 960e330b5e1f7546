//! A node with its one worker, and a client pool.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::client_pool::*;
use crate::core::Datagrams;
use crate::engine::owner::subscriptions::Opened;
use crate::engine::sessions::bounds::Bounds;
use crate::engine::subscriber::batch::InboxItem;
use crate::engine::tests::network::{GRANT, config};
use crate::engine::transport::event::{Event, Message};
use crate::link_id::LinkId;
use crate::tables::subscriber::Subscriber;
use crate::wire::{MessageId, PublishOut};

pub const NODE: ([u8; 4], u16) = ([192, 0, 2, 1], 7_000);
pub const GATEWAY: ([u8; 4], u16) = ([192, 0, 2, 2], 7_000);

/// How many messages may lie in the sinks.
#[derive(Clone)]
pub struct Room(Arc<AtomicUsize>);

impl Room {
    pub fn store(&self, room: usize) {
        self.0.store(room, Ordering::Relaxed);
    }
}

type Taken = Arc<Mutex<Vec<(PoolClientId, Message)>>>;

struct Sink {
    room: Room,
    taken: Taken,
}

impl MessageSink for Sink {
    fn take(&mut self, _now: Micros, pool_client: PoolClientId, items: Vec<InboxItem>) {
        let messages = items.into_iter().flat_map(InboxItem::into_messages);
        self.taken.lock().extend(messages.map(|message| (pool_client, message)));
    }

    fn is_full(&self) -> bool {
        self.taken.lock().len() >= self.room.0.load(Ordering::Relaxed)
    }
}

pub struct Stage {
    pub now: Micros,
    pub node: Engine,
    pub client_pool: ClientPool,
    pub mailboxes: Room,
    taken: Taken,
    /// What was read and not handled.
    unhandled: Vec<(PoolClientId, MessageId)>,
    read: Vec<(PoolClientId, String)>,
    notified: Vec<PoolClientId>,
    heard: Vec<Event>,
}

impl Stage {
    pub fn new() -> Self {
        let mut node = Engine::new(config(true, 1), 0, 1, Shared::new(&config(true, 1), 1));
        node.grant("", GRANT);
        let (room, taken) = (Room(Arc::new(AtomicUsize::new(usize::MAX))), Taken::default());
        let sink = Box::new(Sink { room: room.clone(), taken: Arc::clone(&taken) });
        let client_pool = ClientPool::new(config(false, 2), sink);
        assert_eq!(client_pool.by_session[&client_pool.config.session], PoolClientId(0));
        Self {
            now: 1_000_000_000,
            node,
            client_pool,
            mailboxes: room,
            taken,
            unhandled: Vec::new(),
            read: Vec::new(),
            notified: Vec::new(),
            heard: Vec::new(),
        }
    }

    // Members

    pub fn open(&mut self, session: u64) -> PoolClientId {
        self.try_open(session).expect("nobody has the session")
    }

    pub fn try_open(&mut self, session: u64) -> Option<PoolClientId> {
        let identity = Identity { session, persistent: false, incarnation: session << 40 };
        self.client_pool.open_pool_client(identity)
    }

    /// A member with a link to the node, and a subscription there.
    pub fn subscriber(&mut self, session: u64, filter: &str, qos: u8) -> PoolClientId {
        let id = self.open(session);
        let now = self.now;
        self.with(id, |engine| engine.listen(now, 1, ("", filter), qos, false));
        self.connect(id);
        self.subscribe(session, filter, qos);
        id
    }

    pub fn connect(&mut self, id: PoolClientId) {
        let (now, token) = (self.now, self.node.token_for(self.now, GATEWAY.into()));
        self.with(id, |engine| {
            let link = engine.connect(now, NODE.into(), token).expect("there is room");
            // A link comes up with the first packet.
            assert!(engine.send(link, b"\x72\x00".to_vec()));
        });
        self.step();
    }

    pub fn subscribe(&mut self, session: u64, filter: &str, qos: u8) {
        let bounds = Bounds { messages: 0, bytes: 0 };
        assert_eq!(self.node.open_session(self.now, session, false, bounds, 0), Opened::Here);
        let key = self.node.session_key(session).expect("it was opened");
        self.node.subscribe(filter, "", Subscriber::new(key, qos));
    }

    pub fn with<R>(&mut self, id: PoolClientId, act: impl FnOnce(&mut Engine) -> R) -> R {
        act(self.client_pool.engine(id).expect("it is there"))
    }

    /// Says of all that was read that it was handled.
    pub fn handle_all(&mut self) {
        self.collect();
        for (id, message) in std::mem::take(&mut self.unhandled) {
            self.with(id, |engine| engine.handled(&[message]));
        }
    }

    /// What was read: whose, and on which topic.
    pub fn read(&mut self) -> Vec<(PoolClientId, String)> {
        self.collect();
        std::mem::take(&mut self.read)
    }

    /// Whose control packets came, each once.
    pub fn notified(&mut self) -> Vec<PoolClientId> {
        self.run(10_000);
        std::mem::take(&mut self.notified)
    }

    pub fn counter(&self, name: &str) -> u64 {
        let mut sum = 0;
        self.client_pool.counters(|known, value| sum += if known == name { value } else { 0 });
        sum
    }

    /// Where the datagrams go that leave in one go of so many.
    pub fn transmit_at_most(&mut self, most: usize) -> Vec<SocketAddr> {
        let mut datagrams = Datagrams::default();
        self.client_pool.poll_transmit(self.now, &mut TurnSink { sink: &mut datagrams, left: most });
        datagrams.sent.into_iter().map(|(destination, _)| destination).collect()
    }

    // The node

    pub fn publish(&mut self, message: &PublishOut<'_>) {
        let sent = self.node.publish(self.now, message, || Bytes::copy_from_slice(message.payload));
        sent.expect("it owns all topics");
    }

    /// A packet from the node, outside of any session.
    pub fn node_sends(&mut self, packet: &[u8]) {
        self.node.send_to((GATEWAY.into(), 0), packet, b"", 0);
        self.step();
    }

    /// The node hears a request from the hive's address, without a token.
    pub fn ask_unproven(&mut self) {
        let mut requester = Engine::new(config(false, 9), 0, 1, Shared::new(&config(false, 9), 1));
        requester.send_to((NODE.into(), 0), b"\x52\x03\x12\x01a", b"", 512);
        let mut datagrams = Datagrams::default();
        requester.poll_transmit(self.now, &mut datagrams);
        for (_, datagram) in datagrams.sent {
            self.node.handle_datagram(self.now, GATEWAY.into(), &datagram);
        }
    }

    pub fn node_gauge(&self, name: &str) -> u64 {
        let mut found = 0;
        self.node.gauges(|known, value| found += if known == name { value } else { 0 });
        if name == "inflight" {
            found = self.node.balance().1;
        }
        found
    }

    /// The node's link of a session.
    pub fn node_link(&self, session: u64) -> Option<LinkId> {
        self.heard.iter().find_map(|event| match event {
            Event::LinkUp(peer) if peer.session == session => Some(peer.link),
            _ => None,
        })
    }

    /// How many control packets it got.
    pub fn node_packets(&self) -> usize {
        self.heard.iter().filter(|event| matches!(event, Event::Control { .. })).count()
    }

    // Time

    pub fn run(&mut self, time: Micros) {
        let until = self.now + time;
        while self.now < until {
            self.now += 1_000;
            self.step();
        }
    }

    /// Everything that is to happen now.
    pub fn step(&mut self) {
        self.node.handle_timeout(self.now);
        self.client_pool.handle_timeout(self.now);
        loop {
            self.client_pool.end_turn(self.now);
            if !self.carry() {
                break;
            }
        }
        let events = self.client_pool.take_events(self.now, usize::MAX);
        let control = events.into_iter().filter(|(_, event)| matches!(event, Event::Control { .. }));
        self.notified.extend(control.map(|(id, _)| id));
        self.heard.extend(self.node.take_events(self.now, usize::MAX));
    }

    /// Takes datagrams where they go; false: there were none.
    fn carry(&mut self) -> bool {
        let mut datagrams = Datagrams::default();
        self.client_pool.poll_transmit(self.now, &mut datagrams);
        // Nobody else is there.
        datagrams.sent.retain(|(destination, _)| *destination == NODE.into());
        for (_, datagram) in &datagrams.sent {
            self.node.handle_datagram(self.now, GATEWAY.into(), datagram);
        }
        let mut answers = Datagrams::default();
        self.node.poll_transmit(self.now, &mut answers);
        for (destination, datagram) in &answers.sent {
            assert_eq!(*destination, GATEWAY.into());
            self.client_pool.handle_datagram(self.now, NODE.into(), datagram);
        }
        !datagrams.sent.is_empty() || !answers.sent.is_empty()
    }

    fn collect(&mut self) {
        for (id, message) in self.taken.lock().drain(..) {
            self.read.push((id, message.view().topic.to_owned()));
            if message.qos > 0 {
                self.unhandled.push((id, message.id(&message.view())));
            }
        }
    }
}

/// PUBACCEPT, the answer to this request.
pub fn pub_accept(request: u64) -> Vec<u8> {
    [&b"\x5a\x09\x09"[..], &request.to_le_bytes()].concat()
}

/// LEAVE: this session was taken over.
pub fn leave_of(session: u64) -> Vec<u8> {
    [&b"\x9a\x01\x0b\x20\x14\x31"[..], &session.to_le_bytes()].concat()
}
