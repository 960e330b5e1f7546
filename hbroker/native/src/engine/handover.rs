//! What the core does when a subtree moves to another owner (§5.4).
//!
//! At the old owner, once it serves the subtree no more: messages that are *open*, of which a publisher still waits for the PUBACK, are
//! waited for a while, and those that are left are refused with HANDOVER, so that their publishers send them to the new owner, under the
//! same ids. What sessions have, waiting or in flight, and no publisher would send again, moves itself; so does the knowledge of which
//! messages were taken over. At the new owner all of that is taken in before it serves.
//!
//! What was seen is known by publisher, not by topic, so all of it moves with every subtree: a message that is open in another one
//! must not be told as seen, for it may yet be refused and come to the new owner of both. And one that was refused is not seen any
//! more, here or wherever the next subtree goes.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{Engine, Side};
use crate::Micros;
use crate::engine::counters::Drop;
use crate::engine::distribution::Origin;
use crate::engine::forward::Forwarder;
use crate::engine::parcel::{Parcel, publish_of};
use crate::schema::reason;
use crate::tables::jurisdiction::{Cut, Decision};
use crate::tables::match_set::Overflow;
use crate::tables::window::Seen;
use crate::topic::{self, Region};
use crate::wire::{self, QueuedRecord, SeenRecord};

/// A publisher that was silent for longer has no messages under way that may come again: its links timed out long ago.
const SEEN_FOR: Micros = 300_000_000;
/// Words of bits in one record: it fits a packet of TRANSFER with others (§3.4).
const RECORD_WORDS: usize = 64;

impl Engine {
    /// Messages of a region that are open, or that connected subscribers have without an answer yet: those would come to them again.
    pub fn unanswered_within(&mut self, region: Region<'_>) -> usize {
        let open = self.node(|node| node.distribution.open_within(region)).unwrap_or(0);
        let ready = self.out.sessions.watched().filter(|session| session.is_ready());
        open + ready.map(|session| session.loose_in_flight(|parcel| is_of(parcel, region))).sum::<usize>()
    }

    /// Refuses the open messages of a region. Those that come again are new here, too.
    pub fn refuse_open(&mut self, now: Micros, region: Region<'_>) {
        let taken = self.node(|node| node.distribution.take_within(region)).unwrap_or_default();
        for (origin, id, topic) in taken {
            if let Some((publisher, sequence)) = id {
                self.node(|node| node.window.take_back(now, publisher, sequence));
            }
            self.refuse_taken(now, origin, &topic);
        }
    }

    /// Takes out what this worker's sessions have of a region's messages and no publisher would send again, serialised. What a
    /// refused publisher sends again is dropped, unless it would come behind one of its topic that moves.
    pub fn export_queued(&mut self, now: Micros, region: Region<'_>) -> Vec<Vec<u8>> {
        let sessions: Vec<_> = self.out.sessions.iter().map(|session| (session.id, session.key())).collect();
        let mut records = Vec::new();
        for (id, key) in sessions {
            let moving = self.out.take(key, Drop::Moved, |parcel| is_of(parcel, region));
            self.out.loose.tickets.extend(moving.iter().filter_map(|parcel| parcel.ticket));
            records.extend(with_those_before(moving).iter().map(|parcel| record_of(id, parcel)));
        }
        records.extend(self.pass_barrier(region).iter().map(|(id, parcel)| record_of(*id, parcel)));
        self.tie_up(now);
        records
    }

    /// Offers messages that waited at another owner to their sessions, whose home is here; how many found no room.
    pub fn import_queued(&mut self, now: Micros, records: &[QueuedRecord<'_>]) -> usize {
        let mut refused = 0;
        for record in records {
            let session = self.out.sessions.by_id(record.session);
            let Some((key, parcel)) = session.zip(parcel_of(record)) else {
                self.out.counters.drop(Drop::InvalidRecord);
                continue;
            };
            if parcel.expires <= now {
                self.out.bury(key);
                continue;
            }
            let before = self.out.dropped(key);
            self.out.offer(now, key, parcel);
            self.tie_up(now);
            refused += usize::from(self.out.dropped(key) > before);
        }
        refused
    }

    /// What this worker knows of publishers' messages, less those that are open, whatever their topics, serialised. (The open ones of a
    /// publisher are with the worker that knows it. Those of other subtrees come and go meanwhile: so they are looked up here.)
    pub fn export_seen(&mut self, now: Micros) -> Vec<Vec<u8>> {
        let since = now.saturating_sub(SEEN_FOR);
        let export = |node: &mut Forwarder| node.window.export(since, node.distribution.open_ids());
        let seen = self.node(export).unwrap_or_default();
        seen.iter().flat_map(seen_records).collect()
    }

    /// Knows what another owner knew, too. A record that makes no sense is dropped.
    pub fn import_seen(&mut self, now: Micros, records: &[Vec<u8>]) {
        for record in records {
            let Ok(record) = SeenRecord::parse(record) else {
                self.out.counters.drop(Drop::InvalidRecord);
                continue;
            };
            let seen =
                Seen { publisher: record.publisher, floor: record.floor, words: record.words().collect() };
            self.node(|node| node.window.import(now, &seen));
        }
    }

    /// Publishes a client's message, a serialised `Publish`, in its name; the reason why not, as its publisher would be told.
    pub fn publish_raw(&mut self, now: Micros, message: &[u8]) -> i32 {
        let field = wire::field_of(message);
        let (Side::Node(forwarder), Some(publish)) = (&mut self.side, publish_of(&field)) else {
            return reason::PROTOCOL_ERROR;
        };
        let taken = forwarder.forward(now, &publish, None, &mut self.out);
        self.tie_up(now);
        taken.map_or_else(|refusal| refusal.told().1, |()| reason::SUCCESS)
    }

    fn refuse_taken(&mut self, now: Micros, origin: Origin, topic: &str) {
        let cut = self.node(|node| match node.routes.jurisdiction().decide(topic, now) {
            Decision::Elsewhere(cut) => Some(cut.clone()),
            _ => None,
        });
        let cut = cut.flatten();
        let Some(entry) = self.out.links.get_mut(origin.link) else {
            return;
        };
        self.out.counters.drop(Drop::Handover);
        let mut body = Vec::new();
        let (delivery, cut) = (origin.delivery, cut.as_ref().map(Cut::view));
        wire::put_puback_field(&mut body, [(delivery, delivery)], reason::HANDOVER, "", cut.as_ref());
        if entry.link.refuse(body.into()).is_err() {
            self.out.counters.drop(Drop::QueueFull);
        }
        self.out.links.touch(origin.link);
    }
}

fn is_of(parcel: &Parcel, region: Region<'_>) -> bool {
    parcel.topic().is_some_and(|topic| region.holds(topic))
}

/// The messages without a ticket, and of each topic those before the last such.
fn with_those_before(moving: Vec<Parcel>) -> Vec<Parcel> {
    let mut topics = BTreeSet::new();
    let is_kept = |parcel: &Parcel| {
        if parcel.ticket.is_none() {
            topics.insert(parcel.chain);
        }
        topics.contains(&parcel.chain)
    };
    let mut kept: Vec<Parcel> = moving.into_iter().rev().filter(is_kept).collect();
    kept.reverse();
    kept
}

fn record_of(session: u64, parcel: &Parcel) -> Vec<u8> {
    wire::queued_record(&QueuedRecord {
        session,
        publish: &wire::message_of(&parcel.field),
        qos: parcel.qos,
        meant_for: parcel.meant_for,
        group: parcel.group.as_deref().unwrap_or_default(),
        overflow: parcel.overflow.on_wire(),
        launched: parcel.expires == Micros::MAX,
    })
}

/// `None`: the record makes no sense.
fn parcel_of(record: &QueuedRecord<'_>) -> Option<Parcel> {
    let field = Bytes::from(wire::field_of(record.publish));
    let publish = publish_of(&field).filter(|publish| {
        topic::topic_is_valid(publish.topic) && (1..=2).contains(&publish.qos) && record.qos > 0
    })?;
    let (qos, meant_for) = (record.qos.min(publish.qos), record.meant_for);
    let overflow = Overflow::from_wire(record.overflow);
    let group = (!record.group.is_empty()).then(|| record.group.into());
    let waits = Parcel { qos, meant_for, overflow, group, ..Parcel::new(&publish, field.clone()) };
    Some(if record.launched { waits.launched() } else { waits })
}

/// What is known of one publisher, in as many records as it takes.
fn seen_records(seen: &Seen) -> Vec<Vec<u8>> {
    let record = |words: &[(u64, u64)]| wire::seen_record(seen.publisher, seen.floor, words);
    match seen.words.as_slice() {
        [] if seen.floor == 0 => Vec::new(),
        [] => vec![record(&[])],
        words => words.chunks(RECORD_WORDS).map(record).collect(),
    }
}
