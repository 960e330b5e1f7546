//! A client's incoming messages: from a delivery to the application (§7).
//!
//! A message waits here until the application reads it, and only then is it acknowledged to its owner (§7.3): what the application never took
//! over comes again. The inbox is bounded in bytes. When it is full (`is_full`), messages of
//! `QoS` 0 are dropped and counted; the engine leaves the others unacknowledged, so that their owner keeps them.

use std::collections::VecDeque;

use crate::Micros;
use crate::engine::counters::{Counters, Drop};
use crate::engine::event::Message;
use crate::engine::fragment::{Limits, Part, Reassembler};
use crate::link_id::{LinkId, SessionKey};
use crate::tables::match_set::MatchSet;
use crate::tables::trie::{Subscriber, SubscriptionTrie};
use crate::tables::window::DuplicateWindow;
use crate::wire::PublishView;

/// Publishers that are remembered for recognising their messages when they come again, and how many of each.
const WINDOW_PUBLISHERS: usize = 16_384;
const WINDOW_SPAN: usize = 65_536;
/// How long a message may wait for its missing parts.
const PATIENCE: Micros = 30_000_000;

/// What became of a PUBLISH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It waits for the application, which acknowledges it by reading it.
    Queued,
    /// It is to be acknowledged now: a repeat, a part of a message, or nobody here wants it.
    Done,
}

pub struct Inbox {
    listeners: SubscriptionTrie,
    matches: MatchSet,
    window: DuplicateWindow,
    reassembler: Reassembler,
    abandoned: u64,
    queue: VecDeque<Message>,
    bytes: usize,
    limit: usize,
}

impl Inbox {
    pub fn new(limit: usize, seed: u64) -> Self {
        let limits =
            Limits { publisher_bytes: limit / 2, total_bytes: limit, messages: 1024, patience: PATIENCE };
        Self {
            listeners: SubscriptionTrie::new(seed),
            matches: MatchSet::default(),
            window: DuplicateWindow::new(WINDOW_PUBLISHERS, WINDOW_SPAN, seed),
            reassembler: Reassembler::new(limits, seed),
            abandoned: 0,
            queue: VecDeque::new(),
            bytes: 0,
            limit,
        }
    }

    /// Has messages that match handed to this listener, at this `QoS` at most.
    pub fn listen(&mut self, listener: u64, filter: &str, qos: u8) {
        let subscriber =
            Subscriber { session: SessionKey(listener), qos, no_local: false, retain_as_published: false };
        self.listeners.insert(filter, subscriber);
    }

    pub fn unlisten(&mut self, listener: u64) {
        self.listeners.remove_session(SessionKey(listener));
    }

    /// Takes a message in. `receipt`: the link and the delivery to acknowledge it by; `None` at `QoS` 0.
    pub fn take(
        &mut self,
        now: Micros,
        publish: &PublishView<'_>,
        retained: bool,
        receipt: Option<(LinkId, u64)>,
        counters: &mut Counters,
    ) -> Taken {
        if self.is_full() {
            counters.drop(Drop::InboxFull);
            return Taken::Done;
        }
        self.listeners.collect_matches(publish.topic, &mut self.matches);
        if self.matches.subscribers().is_empty() {
            return Taken::Done;
        }
        // A retained message comes once for each subscription made, under the id that it always had.
        let once = receipt.is_some() && publish.qos == 2 && !retained;
        if once && !self.window.first_seen(publish.publisher, publish.sequence) {
            counters.drop(Drop::DuplicateMessage);
            return Taken::Done;
        }
        let whole = match publish.fragment {
            None => None,
            Some(fragment) => {
                let part = Part {
                    publisher: publish.publisher,
                    sequence: publish.sequence,
                    index: fragment.index,
                    count: fragment.count,
                    total: fragment.total,
                    bytes: publish.payload,
                };
                let whole = self.reassembler.add(now, part);
                self.count_abandoned(counters);
                if whole.is_none() {
                    return Taken::Done;
                }
                whole
            }
        };
        counters.messages_in += 1;
        self.push(publish, whole, retained, receipt);
        Taken::Queued
    }

    /// The next messages for the application.
    pub fn read(&mut self, limit: usize) -> Vec<Message> {
        let count = self.queue.len().min(limit);
        let read: Vec<Message> = self.queue.drain(..count).collect();
        self.bytes -= read.iter().map(Message::bytes).sum::<usize>();
        read
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Forgets the receipts of a link that is gone: its deliveries come again under other numbers.
    pub fn forget_link(&mut self, link: LinkId) {
        for message in &mut self.queue {
            message.receipt.take_if(|(from, _)| *from == link);
        }
    }

    /// Gives up messages whose parts did not all come in time; true if others still wait.
    pub fn expire(&mut self, now: Micros, counters: &mut Counters) -> bool {
        self.reassembler.expire(now);
        self.count_abandoned(counters);
        self.is_waiting_for_parts()
    }

    pub fn is_waiting_for_parts(&self) -> bool {
        self.reassembler.bytes() > 0
    }

    /// Whether there is no room for another message.
    pub fn is_full(&self) -> bool {
        self.bytes >= self.limit
    }

    fn push(
        &mut self,
        publish: &PublishView<'_>,
        whole: Option<Vec<u8>>,
        retained: bool,
        receipt: Option<(LinkId, u64)>,
    ) {
        let wanted = self.matches.subscribers();
        let granted = wanted.iter().map(|listener| listener.qos).max().unwrap_or(0);
        let message = Message {
            publish: publish.field().into_owned().into(),
            whole,
            retained,
            qos: if receipt.is_some() { publish.qos.min(granted) } else { 0 },
            subscriptions: wanted.iter().map(|listener| listener.session.0).collect(),
            receipt,
        };
        self.bytes += message.bytes();
        self.queue.push_back(message);
    }

    fn count_abandoned(&mut self, counters: &mut Counters) {
        let abandoned = self.reassembler.abandoned();
        counters.drop_many(Drop::Incomplete, abandoned - self.abandoned);
        self.abandoned = abandoned;
    }
}
