//! What the core does when a subtree moves to another owner (§5.4).
//!
//! At the old owner, once it serves the subtree no more: messages that are *open*, of which a publisher still waits for the PUBACK, are
//! waited for a while, and those that are left are refused with HANDOVER, so that their publishers send them to the new owner, under the
//! same ids. What waits for sessions, and no publisher would send again, moves itself; so does the knowledge of which messages were
//! taken over. At the new owner all of that is taken in before it serves.

use super::{Engine, Side};
use crate::Micros;
use crate::engine::counters::Drop;
use crate::engine::distribution::{MessageId, Origin};
use crate::schema::reason;
use crate::tables::jurisdiction::{Cut, Decision};
use crate::tables::window::Seen;
use crate::wire::{self, Body, PacketView, SeenRecord};

/// A publisher that was silent for longer has no messages under way that may come again: its links timed out long ago.
const SEEN_FOR: Micros = 300_000_000;
/// Words of bits in one record: it fits a packet of TRANSFER with others (§3.4).
const RECORD_WORDS: usize = 64;

impl Engine {
    /// Open messages at and below a subtree.
    pub fn open_below(&mut self, subtree: &str) -> usize {
        self.node(|node| node.distribution.open_below(subtree)).unwrap_or(0)
    }

    /// Refuses the open messages at and below a subtree; gives the ids of those of QoS 2.
    pub fn refuse_open(&mut self, now: Micros, subtree: &str) -> Vec<MessageId> {
        let taken = self.node(|node| node.distribution.take_below(subtree)).unwrap_or_default();
        let mut ids = Vec::new();
        for (origin, id, topic) in taken {
            ids.extend(id);
            self.refuse_taken(now, origin, &topic);
        }
        ids
    }

    /// What this worker knows of publishers' messages, less those that are open, serialised.
    pub fn export_seen(&mut self, now: Micros, open: &[MessageId]) -> Vec<Vec<u8>> {
        let since = now.saturating_sub(SEEN_FOR);
        let seen = self.node(|node| node.window.export(since, open.iter().copied())).unwrap_or_default();
        seen.iter().flat_map(seen_records).collect()
    }

    /// Knows what another owner knew, too. A record that makes no sense is dropped.
    pub fn import_seen(&mut self, now: Micros, records: &[Vec<u8>]) {
        for record in records {
            let Ok(record) = SeenRecord::parse(record) else {
                self.out.counters.drop(Drop::Malformed);
                continue;
            };
            let seen =
                Seen { publisher: record.publisher, floor: record.floor, words: record.words().collect() };
            self.node(|node| node.window.import(now, &seen));
        }
    }

    /// Publishes a client's message, a serialised `Publish`, in its name. False: it is none, or its topic is not this node's.
    pub fn publish_raw(&mut self, now: Micros, message: &[u8]) -> bool {
        let field = wire::field_of(message);
        let Side::Node(forwarder) = &mut self.side else {
            return false;
        };
        match PacketView::from_raw(&field) {
            Ok(PacketView { body: Body::Publish(publish), .. }) => {
                forwarder.forward(now, &publish, None, &mut self.out).is_ok()
            }
            _ => false,
        }
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

/// What is known of one publisher, in as many records as it takes.
fn seen_records(seen: &Seen) -> Vec<Vec<u8>> {
    let record = |words: &[(u64, u64)]| wire::seen_record(seen.publisher, seen.floor, words);
    match seen.words.as_slice() {
        [] if seen.floor == 0 => Vec::new(),
        [] => vec![record(&[])],
        words => words.chunks(RECORD_WORDS).map(record).collect(),
    }
}
