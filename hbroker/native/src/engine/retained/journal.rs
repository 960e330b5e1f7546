//! The retained messages of a node with a store: restored when it starts, and from then on each change goes to the
//! store.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::Micros;
use crate::engine::owner::forward::retained_fragment;
use crate::store::Store;
use crate::store::disk::Disk;
use crate::store::index::Index;
use crate::store::log::segment::Damage;
use crate::store::mailbox::Mailbox;
use crate::store::record::Batch;
use crate::tables::retained::RetainedStore;
use crate::tables::retained::journal::Journal;
use crate::wire::publish_of;

/// The most ranges of numbers in one record of messages that are not retained any more.
const MOST_REMOVED: usize = 65_536;
/// The memory for records is kept up to this size.
const MOST_KEPT: usize = 1 << 20;

/// Puts the retained messages of an earlier run in their table. From now on its changes go to the store. Returns
/// the damage that was found, and for how many messages there was no room.
///
/// # Errors
/// As [`Store::read_retained`].
pub fn retain_in<D: Disk, I: Index>(
    mailbox: &Arc<Mailbox>,
    store: &mut Store<D, I>,
    retained: &Mutex<RetainedStore>,
    now: Micros,
) -> io::Result<(Vec<Damage>, u64)> {
    let (newest, mut refused, mut retained) = (store.newest_retained(), 0, retained.lock());
    let journal = StoreJournal { mailbox: Arc::clone(mailbox), batch: Batch::default(), removed: Vec::new() };
    retained.set_journal(Box::new(journal));
    retained.set_time(now);
    let damage = store.read_retained(|number, field| {
        let is_restored = match publish_of(&field) {
            Some(publish) => retained.restore(number, &retained_fragment(now, &publish, &field)),
            None => {
                retained.note_removed(&[(number, number)]);
                false
            }
        };
        refused += u64::from(!is_restored);
    })?;
    retained.end_restoring(newest);
    Ok((damage, refused))
}

/// Gives the changes to the store.
struct StoreJournal {
    mailbox: Arc<Mailbox>,
    batch: Batch,
    /// The numbers that are not retained any more.
    removed: Vec<(u64, u64)>,
}

impl Journal for StoreJournal {
    fn add(&mut self, number: u64, field: &[u8]) {
        self.batch.add_retained(number, field);
    }

    fn remove(&mut self, first: u64, last: u64) {
        self.removed.push((first, last));
    }

    fn submit(&mut self) {
        if !self.removed.is_empty() {
            self.removed.sort_unstable();
            self.removed
                .chunks(MOST_REMOVED)
                .for_each(|some| self.batch.add_not_retained(some.iter().copied()));
            self.removed.clear();
        }
        if !self.batch.is_empty() {
            self.mailbox.submit(&mut self.batch);
            self.batch.shrink_to(MOST_KEPT);
        }
    }
}
