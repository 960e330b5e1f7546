//! Connects the workers' clients with the client pool. The first pool client publishes the clients' messages.
//! The messages that pool clients receive go to the dispatcher.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::Micros;
use crate::client_pool::ClientPool;
use crate::client_pool::core::ClientPoolCore;
use crate::client_pool::messages::{Mailbox, MessageSink};
use crate::endpoint::machine::TurnHook;
use crate::endpoint::worker_handle;
use crate::engine::Unpublishable;
use crate::engine::subscriber::batch::{InboxItem, ReceivedBatch};
use crate::engine::transport::event::Message as Arrived;
use crate::link_id::PoolClientId;
use crate::load::latency::{Rate, Sample};
use crate::load::spans::{SpanKind, SpanLog, TraceContext, Traced};
use crate::mqtt::Key;
use crate::mqtt::codec::publish::Publish;
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::distribution::ack_guard::Ticket;
use crate::mqtt::distribution::batch::MessageBatch;
use crate::mqtt::distribution::fanout::Incoming;
use crate::mqtt::distribution::message::Message;
use crate::mqtt::gateway::dispatcher::{Dispatcher, Round};
use crate::mqtt::gateway::worker_event::SessionHandle;
use crate::wire::{PublishOut, PublishView};
use crate::workspace;

/// The pool client that publishes everything.
const SHARED: PoolClientId = PoolClientId(0);

/// Options of a client's messages that come from its session, not from its packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct PublishOptions {
    /// The client's origin (No Local), once it has a subscription with No Local; 0 before.
    pub origin: u64,
    /// The owner acknowledges a message as soon as it is queued, not when it is distributed.
    pub ack_queued: bool,
}

/// A worker's access to the client pool in one iteration. When it is dropped the messages are sent.
pub type PoolGuard<'a> = worker_handle::Guard<'a, ClientPool>;

/// Waits for the lock of the client pool's worker. A worker does so at most once in an iteration.
pub fn enter(client_pool: &ClientPoolCore) -> PoolGuard<'_> {
    client_pool.endpoint().guard(0)
}

impl PoolGuard<'_> {
    /// Publishes a message. Returns its sequence number, which the network's answer names (at `QoS` 0 there
    /// is no answer); `None`: there is no room.
    ///
    /// # Errors
    /// The message is refused permanently.
    pub fn publish(&mut self, publish: &Publish<'_>, options: PublishOptions) -> Result<Option<u64>, Reason> {
        let now = self.now;
        let user_properties: Vec<_> =
            publish.user_properties().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let out = PublishOut {
            topic: publish.topic,
            payload: publish.payload,
            qos: publish.qos,
            retain: publish.retain,
            ack_queued: options.ack_queued,
            published_at_us: now,
            expiry_s: publish.expiry_s,
            content_type: publish.content_type,
            // `PayloadFormat` of the wire protocol: 0 bytes, 1 text.
            payload_format: publish.is_text.map(i32::from),
            response_topic: publish.response_topic,
            correlation_data: publish.correlation_data,
            user_properties: &user_properties,
            origin: options.origin,
            ..PublishOut::default()
        };
        let share = || Bytes::copy_from_slice(publish.payload);
        let engine = self.machine().engine(SHARED).ok_or(Reason::UNSPECIFIED)?;
        let sequence = engine.publish(now, &out, share).map_err(|why| match why {
            Unpublishable::InvalidTopic => Reason::TOPIC_NAME_INVALID,
            Unpublishable::TooLarge => Reason::QUOTA_EXCEEDED,
            Unpublishable::InvalidQos | Unpublishable::NotOwned => Reason::IMPLEMENTATION_SPECIFIC,
        })?;
        if let Some(sequence) = sequence
            && let Some((log, publisher)) = engine.span_log()
            && let Some(context) = TraceContext::among(publish.user_properties())
        {
            let traced = Traced {
                log: Arc::clone(log),
                context,
                publisher,
                sequence,
                topic: publish.topic.into(),
                qos: publish.qos,
                is_from_gateway: false,
                started: now,
            };
            match publish.qos {
                0 => Arc::new(traced).end(SpanKind::Gateway, now, None),
                _ => log.await_answer(Arc::new(traced)),
            }
        }
        Ok(sequence)
    }

    /// Acknowledges these messages to their owners: all clients have acknowledged them, or never will.
    pub fn handled(&mut self, tickets: &[Ticket]) {
        for of_pool_client in tickets.chunk_by(|one, other| one.pool_client == other.pool_client) {
            let ids: Vec<_> = of_pool_client.iter().map(|ticket| ticket.message).collect();
            if let Some(engine) = self.machine().engine(PoolClientId(of_pool_client[0].pool_client)) {
                engine.handled(&ids);
            }
        }
    }
}

/// Receives the client pool's messages. A message for a client's listener goes to the dispatcher, any other
/// to the gateway itself.
pub struct InboxSorter {
    dispatcher: Arc<Dispatcher>,
    own: Mailbox,
    /// The publisher number of this gateway.
    publisher: u64,
    /// The topic of the last message. The next message often has the same.
    topic: Arc<str>,
    /// The network's answers of this iteration to messages of clients.
    answers: Vec<(SessionHandle, Key, Reason)>,
    timed: Rate,
    /// For messages that have spans; `None`: none has.
    spans: Option<Arc<SpanLog>>,
}

impl InboxSorter {
    pub fn new(
        dispatcher: Arc<Dispatcher>,
        own: Mailbox,
        publisher: u64,
        spans: Option<Arc<SpanLog>>,
    ) -> Self {
        let (topic, answers, timed) = (Arc::from(""), Vec::new(), Rate::new(0));
        Self { dispatcher, own, publisher, topic, answers, timed, spans }
    }
}

impl MessageSink for InboxSorter {
    fn take(&mut self, now: Micros, pool_client: PoolClientId, items: Vec<InboxItem>) {
        let mut own = Vec::new();
        self.timed.set(self.dispatcher.timed.load(Ordering::Relaxed));
        let mut round = self.dispatcher.round(now, true);
        for item in items {
            let item = match item {
                InboxItem::ReceivedBatch(received_batch)
                    if received_batch.origin.is_some()
                        && round.fanout.has_any(&received_batch.subscriptions) =>
                {
                    if workspace::local_at(received_batch.topic()).is_none() {
                        continue; // No client knows the topic. At `QoS` 0 no owner waits for an answer.
                    }
                    let timed = self.timed.due_among(received_batch.len() as u32);
                    let samples = timed.map(|position| (position, Arc::new(Sample::new(now))));
                    hand_batch_on(&mut round, &mut self.topic, received_batch, samples);
                    continue;
                }
                other => other,
            };
            for message in item.into_messages() {
                if round.fanout.has_any(&message.subscriptions) {
                    let fields = message.view();
                    if workspace::local_at(fields.topic).is_none() {
                        if message.qos > 0 {
                            round.decline(ticket(pool_client, &message, &fields));
                        }
                        continue;
                    }
                    let timed = self.timed.is_due().then(|| Sample::new(now));
                    let traced = traced(self.spans.as_ref(), now, &message, &fields);
                    let sample = traced.map(Sample::traced).or(timed).map(Arc::new);
                    hand_on(&mut round, &mut self.topic, pool_client, &message, sample);
                    continue;
                }
                let fields = message.view();
                // A retained message of the gateway itself tells it that it has all retained messages before it.
                let is_wanted = message.id(&fields).0 != self.publisher || message.is_retained();
                if pool_client == SHARED && is_wanted {
                    own.push(InboxItem::Message(message));
                } else if message.qos > 0
                    && (pool_client == SHARED || !round.fanout.was_removed(&message.subscriptions))
                {
                    // The gateway published it itself, or its listener was removed. If a session that was
                    // removed here had the listener, no client has received the message: it stays
                    // unacknowledged, and its owner keeps it.
                    round.decline(ticket(pool_client, &message, &fields));
                }
            }
        }
        drop(round);
        if !own.is_empty() {
            self.own.take(now, pool_client, own);
        }
    }

    fn answered(&mut self, now: Micros, sequence: u64, reason: i32) -> bool {
        if let Some(spans) = &self.spans {
            spans.note_answer(sequence, now);
        }
        let expected = self.dispatcher.take_expected(sequence);
        self.answers.extend(expected.map(|(session, key)| (session, key, reason_of(reason))));
        expected.is_some()
    }

    fn flush(&mut self, now: Micros) {
        if self.answers.is_empty() {
            return;
        }
        let mut round = self.dispatcher.round(now, true);
        for (session, key, reason) in self.answers.drain(..) {
            round.answer(session, key, reason);
        }
    }

    fn is_full(&self) -> bool {
        self.own.is_full()
    }

    fn has_output(&self) -> bool {
        self.own.has_output()
    }

    fn turn_hook(&self) -> Option<Arc<dyn TurnHook>> {
        Some(Arc::clone(&self.dispatcher) as _)
    }
}

/// What the spans of a message need; `None`: it has none.
fn traced(
    log: Option<&Arc<SpanLog>>,
    now: Micros,
    arrived: &Arrived,
    fields: &PublishView<'_>,
) -> Option<Arc<Traced>> {
    let log = log.filter(|_| fields.has_properties)?;
    let context = TraceContext::among(fields.user_properties())?;
    let (publisher, sequence) = arrived.id(fields);
    Some(Arc::new(Traced {
        log: Arc::clone(log),
        context,
        publisher,
        sequence,
        topic: fields.topic.into(),
        qos: arrived.qos,
        is_from_gateway: false,
        started: now,
    }))
}

fn ticket(pool_client: PoolClientId, message: &Arrived, fields: &PublishView<'_>) -> Ticket {
    Ticket { pool_client: pool_client.0, message: message.copy_id(fields) }
}

fn hand_on(
    round: &mut Round<'_>,
    topic: &mut Arc<str>,
    pool_client: PoolClientId,
    arrived: &Arrived,
    sample: Option<Arc<Sample>>,
) {
    let fields = arrived.view();
    turn_to(topic, fields.topic);
    let ticket = ticket(pool_client, arrived, &fields);
    let mut message = Message::from_network(&fields, Arc::clone(topic), arrived.payload(&fields));
    (message.id, message.qos, message.sample) = (arrived.id(&fields), arrived.qos, sample);
    round.message(Incoming {
        ticket: Some(ticket),
        message,
        retained: arrived.is_retained(),
        origin: fields.origin,
        listeners: &arrived.subscriptions,
    });
}

fn hand_batch_on(
    round: &mut Round<'_>,
    topic: &mut Arc<str>,
    received_batch: ReceivedBatch,
    samples: impl Iterator<Item = (u32, Arc<Sample>)>,
) {
    turn_to(topic, received_batch.topic());
    let (origin, listeners) = (received_batch.origin.unwrap_or(0), received_batch.subscriptions.clone());
    round.batch(MessageBatch::new(Arc::clone(topic), received_batch, samples), origin, &listeners);
}

fn turn_to(topic: &mut Arc<str>, to: &str) {
    if **topic != *to {
        *topic = Arc::from(to);
    }
}

/// The reason code of PUBACK and PUBREC (§3.4.2.1) for a `Reason` of the network.
fn reason_of(reason: i32) -> Reason {
    match reason {
        0 => Reason::SUCCESS,
        // NO_MATCHING_SUBSCRIBERS; MESSAGE_EXPIRED: the message expired before the owner received it.
        1 | 18 => Reason::NO_MATCHING_SUBSCRIBERS,
        5 => Reason::NOT_AUTHORIZED,
        9 => Reason::TOPIC_NAME_INVALID,
        // QUOTA_EXCEEDED, PACKET_TOO_LARGE.
        11 | 14 => Reason::QUOTA_EXCEEDED,
        _ => Reason::UNSPECIFIED,
    }
}
