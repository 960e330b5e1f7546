//! Between the workers' clients and the hive: what clients publish goes to its first member, what its members get comes to the office.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::Micros;
use crate::client_pool::Hive;
use crate::client_pool::core::HiveCore;
use crate::client_pool::messages::{Mailbox, MessageSink};
use crate::endpoint::mailbox;
use crate::endpoint::worker::Errand;
use crate::engine::Unpublishable;
use crate::engine::subscriber::batch::{Bunch, Letter};
use crate::engine::transport::event::Message as Arrived;
use crate::link_id::MemberId;
use crate::load::latency::{Rate, Sample};
use crate::mqtt::Key;
use crate::mqtt::claim::Ticket;
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::distribution::batch::Series;
use crate::mqtt::distribution::fanout::Incoming;
use crate::mqtt::distribution::message::Message;
use crate::mqtt::distribution::network::{Network, Outgoing, Visit};
use crate::mqtt::mailbox::{Office, Round};
use crate::mqtt::worker_event::SessionHandle;
use crate::wire::{PublishOut, PublishView};

/// The member that publishes everything.
const SHARED: MemberId = MemberId(0);
/// The hive's only worker: all that clients publish goes through one member, and so one engine.
const WORKER: usize = 0;

impl Network for HiveCore {
    type Visit<'a> = mailbox::Visit<'a, Hive>;

    fn enter(&self) -> Self::Visit<'_> {
        self.endpoint().visit(WORKER)
    }
}

impl Visit for mailbox::Visit<'_, Hive> {
    fn publish(&mut self, message: &Outgoing<'_>) -> Result<Option<u64>, Reason> {
        let now = self.now;
        let publish = message.publish;
        let user_properties: Vec<_> =
            publish.user_properties().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let out = PublishOut {
            topic: publish.topic,
            payload: publish.payload,
            qos: publish.qos,
            retain: publish.retain,
            ack_queued: message.ack_queued,
            published_at_us: now,
            expiry_s: publish.expiry_s,
            content_type: publish.content_type,
            // `PayloadFormat` of the wire protocol: 0 bytes, 1 text.
            payload_format: publish.is_text.map(i32::from),
            response_topic: publish.response_topic,
            correlation_data: publish.correlation_data,
            user_properties: &user_properties,
            origin: message.origin,
            ..PublishOut::default()
        };
        let share = || Bytes::copy_from_slice(publish.payload);
        let engine = self.machine().engine(SHARED).ok_or(Reason::UNSPECIFIED)?;
        engine.publish(now, &out, share).map_err(|why| match why {
            Unpublishable::InvalidTopic => Reason::TOPIC_NAME_INVALID,
            Unpublishable::TooLarge => Reason::QUOTA_EXCEEDED,
            Unpublishable::InvalidQos | Unpublishable::NotOwned => Reason::IMPLEMENTATION_SPECIFIC,
        })
    }

    fn handled(&mut self, tickets: &[Ticket]) {
        for of_member in tickets.chunk_by(|one, other| one.member == other.member) {
            let ids: Vec<_> = of_member.iter().map(|ticket| ticket.message).collect();
            if let Some(engine) = self.machine().engine(MemberId(of_member[0].member)) {
                engine.handled(&ids);
            }
        }
    }
}

/// Where the hive's messages go: to clients, and what no client listens for to the gateway itself.
pub struct Sorter {
    office: Arc<Office>,
    own: Mailbox,
    /// What this gateway publishes.
    publisher: u64,
    /// The topic of the last message: it often is the next one's, too.
    topic: Arc<str>,
    /// What the network said in this turn to messages of clients.
    answers: Vec<(SessionHandle, Key, Reason)>,
    timed: Rate,
}

impl Sorter {
    pub fn new(office: Arc<Office>, own: Mailbox, publisher: u64) -> Self {
        Self { office, own, publisher, topic: Arc::from(""), answers: Vec::new(), timed: Rate::new(0) }
    }
}

impl MessageSink for Sorter {
    fn take(&mut self, now: Micros, member: MemberId, letters: Vec<Letter>) {
        let mut own = Vec::new();
        self.timed.set(self.office.timed.load(Ordering::Relaxed));
        let mut round = self.office.network_round(now);
        for letter in letters {
            let letter = match letter {
                Letter::Bunch(bunch) if bunch.origin.is_some() && round.has_any(&bunch.subscriptions) => {
                    let timed = self.timed.due_among(bunch.len() as u32);
                    let samples = timed.map(|place| (place, Arc::new(Sample::new(now))));
                    hand_bunch_on(&mut round, &mut self.topic, bunch, samples);
                    continue;
                }
                other => other,
            };
            for message in letter.into_messages() {
                if round.has_any(&message.subscriptions) {
                    let sample = self.timed.is_due().then(|| Arc::new(Sample::new(now)));
                    hand_on(&mut round, &mut self.topic, member, &message, sample);
                    continue;
                }
                let fields = message.view();
                if member == SHARED && message.id(&fields).0 != self.publisher {
                    own.push(Letter::Message(message));
                } else if message.qos > 0 && (member == SHARED || !round.has_left(&message.subscriptions)) {
                    // The gateway itself said it, or its listener has gone. Where the session has gone with it nobody has had the
                    // message: its owner keeps it.
                    round.decline(ticket(member, &message, &fields));
                }
            }
        }
        drop(round);
        if !own.is_empty() {
            self.own.take(now, member, own);
        }
    }

    fn answered(&mut self, _now: Micros, sequence: u64, reason: i32) -> bool {
        let expected = self.office.take_expected(sequence);
        self.answers.extend(expected.map(|(session, key)| (session, key, reason_of(reason))));
        expected.is_some()
    }

    fn flush(&mut self, now: Micros) {
        if self.answers.is_empty() {
            return;
        }
        let mut round = self.office.network_round(now);
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

    fn errand(&self) -> Option<Arc<dyn Errand>> {
        Some(Arc::clone(&self.office) as _)
    }
}

fn ticket(member: MemberId, message: &Arrived, fields: &PublishView<'_>) -> Ticket {
    Ticket { member: member.0, message: message.copy_id(fields) }
}

fn hand_on(
    round: &mut Round<'_>,
    topic: &mut Arc<str>,
    member: MemberId,
    arrived: &Arrived,
    sample: Option<Arc<Sample>>,
) {
    let fields = arrived.view();
    turn_to(topic, fields.topic);
    let ticket = ticket(member, arrived, &fields);
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

fn hand_bunch_on(
    round: &mut Round<'_>,
    topic: &mut Arc<str>,
    bunch: Bunch,
    samples: impl Iterator<Item = (u32, Arc<Sample>)>,
) {
    turn_to(topic, bunch.topic());
    let (origin, listeners) = (bunch.origin.unwrap_or(0), bunch.subscriptions.clone());
    round.series(Series::new(Arc::clone(topic), bunch, samples), origin, &listeners);
}

fn turn_to(topic: &mut Arc<str>, to: &str) {
    if **topic != *to {
        *topic = Arc::from(to);
    }
}

/// What the network's `Reason` is in PUBACK and PUBREC (§3.4.2.1).
fn reason_of(reason: i32) -> Reason {
    match reason {
        0 => Reason::SUCCESS,
        // NO_MATCHING_SUBSCRIBERS; MESSAGE_EXPIRED, before its owner had it.
        1 | 18 => Reason::NO_MATCHING_SUBSCRIBERS,
        5 => Reason::NOT_AUTHORIZED,
        9 => Reason::TOPIC_NAME_INVALID,
        // QUOTA_EXCEEDED, PACKET_TOO_LARGE.
        11 | 14 => Reason::QUOTA_EXCEEDED,
        _ => Reason::UNSPECIFIED,
    }
}
