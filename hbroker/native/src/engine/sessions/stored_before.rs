//! Which messages of `QoS` 2 an earlier run of this node has stored for a session.
//!
//! That run may have ended before their publisher had its PUBACK. Then the publisher sends them again. The duplicate
//! window of the earlier run is gone, and a session that was connected may not have such a message. But one for which
//! it was stored has it, or has had it, and must not get it twice.

use std::collections::{HashMap, HashSet};
use std::io;

use crate::Micros;
use crate::engine::sessions::storing::shared_of;
use crate::link_id::SessionKey;
use crate::store::Store;
use crate::store::disk::Disk;
use crate::store::index::Index;
use crate::wire::{MessageId, publish_of};

/// So long after the start a publisher may send a message again, in microseconds.
const KNOWN_FOR: Micros = 300_000_000;
/// How much of the end of the log is searched, in bytes.
const SEARCHED: u64 = 32 << 20;

/// A message, and the shared subscription through which a session got it (0: none).
pub type StoredCopy = (MessageId, u64);

/// The messages by the id of the session for which they were stored.
pub type StoredIds = HashMap<u64, Vec<StoredCopy>>;

/// See the module.
pub struct StoredBefore {
    copies: HashSet<(StoredCopy, SessionKey)>,
    until: Micros,
}

impl StoredBefore {
    /// At the start of a node.
    pub fn new(now: Micros) -> Self {
        Self { copies: HashSet::default(), until: now + KNOWN_FOR }
    }

    /// These messages are stored for a session.
    pub fn add(&mut self, session: SessionKey, copies: &[StoredCopy]) {
        self.copies.extend(copies.iter().map(|copy| (*copy, session)));
    }

    /// Whether a message is one of those that are stored for a session. `field`: the message. `shared`: the shared
    /// subscription.
    pub fn has(&self, session: SessionKey, shared: u64, field: &[u8]) -> bool {
        publish_of(field).is_some_and(|publish| {
            self.copies.contains(&(((publish.publisher, publish.sequence), shared), session))
        })
    }

    /// Whether no publisher sends any of them again.
    pub fn is_over(&self, now: Micros) -> bool {
        now >= self.until
    }
}

/// The messages of `QoS` 2 at the end of the log of a store.
///
/// # Errors
/// The disk fails.
pub fn stored_ids<D: Disk, I: Index>(store: &Store<D, I>) -> io::Result<StoredIds> {
    let mut found = StoredIds::default();
    store.each_recent(SEARCHED, |message| {
        if let Some(publish) = publish_of(message.field).filter(|publish| publish.qos == 2) {
            for target in message.targets() {
                let copy = ((publish.publisher, publish.sequence), shared_of(target.options));
                found.entry(store.after_appending(&target).session).or_default().push(copy);
            }
        }
    })?;
    Ok(found)
}
