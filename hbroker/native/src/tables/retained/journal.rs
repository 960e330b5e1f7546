//! What the disk is told about retained messages, and what it says after a restart.
//!
//! Every message, and every fragment of a large one, has a serial number that no other has. The journal gets
//! each change under its number, in the order in which the changes were made, because they are made under the
//! lock of the store. A message that replaces another one is in the journal before the other one is removed.
//! So after a loss of power a topic may have both. The newer one has the higher number.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{DetachedRun, Fragments, RetainedFragment, RetainedMessage, RetainedStore};

/// Where changes go.
pub trait Journal: Send {
    /// A message or fragment is retained under this number.
    fn add(&mut self, number: u64, field: &[u8]);

    /// Those from `first` to `last` are not retained any more.
    fn remove(&mut self, first: u64, last: u64);

    /// Gives everything since the last call to the disk.
    fn submit(&mut self);
}

/// A large message whose fragments are being restored.
pub(super) struct Restoring {
    /// The number of fragment 0, and that of the last fragment so far.
    first: u64,
    last: u64,
    count: u32,
    topic: Box<str>,
    fragments: BTreeMap<u32, Bytes>,
    cost: usize,
}

impl RetainedStore {
    /// From now on all changes go to this journal, too.
    pub fn set_journal(&mut self, journal: Box<dyn Journal>) {
        self.journal = Some(journal);
    }

    /// A message or fragment is retained that an earlier run has stored under this number. All of them must be
    /// restored in the order of their numbers, and then [`Self::end_restoring`] be called. False: there is no
    /// room.
    pub fn restore(&mut self, number: u64, fragment: &RetainedFragment<'_>) -> bool {
        let Some((index, count)) = fragment.fragment.filter(|(_, count)| *count > 1) else {
            self.drop_restoring();
            let field = Fragments::One(Bytes::copy_from_slice(fragment.field));
            let kept = RetainedMessage::new(fragment, fragment.sequence, field, fragment.cost());
            return self.restore_whole(fragment.topic, RetainedMessage { serial: number, ..kept });
        };
        let first = number.wrapping_sub(u64::from(index));
        if !self.restoring.as_ref().is_some_and(|restoring| restoring.is_of(fragment.topic, first, count)) {
            self.drop_restoring();
        }
        let mut restoring = self.restoring.take().unwrap_or_else(|| Restoring {
            first,
            last: number,
            count,
            topic: fragment.topic.into(),
            fragments: BTreeMap::new(),
            cost: 0,
        });
        restoring.last = number;
        restoring.cost += fragment.cost();
        restoring.fragments.insert(index, Bytes::copy_from_slice(fragment.field));
        if restoring.fragments.len() < count as usize {
            self.restoring = Some(restoring);
            return true;
        }
        let sequence = fragment.sequence.wrapping_sub(u64::from(index));
        let Restoring { topic, fragments, cost, .. } = restoring;
        let kept = RetainedMessage::new(fragment, sequence, Fragments::Many(fragments), cost);
        self.restore_whole(&topic, RetainedMessage { serial: first, ..kept })
    }

    /// Everything is restored. `newest`: the highest number that is on disk.
    pub fn end_restoring(&mut self, newest: u64) {
        self.drop_restoring();
        self.serial = self.serial.max(newest);
        self.submit_journal();
    }

    /// These are not retained any more: the first and the last number of each range, ascending.
    pub fn note_removed(&mut self, ranges: &[(u64, u64)]) {
        if let Some(journal) = &mut self.journal {
            ranges.iter().for_each(|(first, last)| journal.remove(*first, *last));
            journal.submit();
        }
    }

    pub(super) fn submit_journal(&mut self) {
        self.journal.iter_mut().for_each(|journal| journal.submit());
    }

    /// A message of which some fragments are missing is not retained.
    fn drop_restoring(&mut self) {
        if let Some(Restoring { first, last, .. }) = self.restoring.take() {
            self.journal.iter_mut().for_each(|journal| journal.remove(first, last));
        }
    }

    fn restore_whole(&mut self, topic: &str, kept: RetainedMessage) -> bool {
        let has_room = self.make_room(kept.cost, 0);
        if has_room {
            self.insert(topic, kept);
        } else {
            let (first, last) = (kept.serial, kept.last_serial());
            self.journal.iter_mut().for_each(|journal| journal.remove(first, last));
        }
        has_room
    }
}

impl Restoring {
    fn is_of(&self, topic: &str, first: u64, count: u32) -> bool {
        (&*self.topic, self.first, self.count) == (topic, first, count)
    }
}

impl DetachedRun {
    /// The numbers of all messages in it: the first and the last of each range, ascending.
    pub fn numbers(&self) -> Vec<(u64, u64)> {
        let numbers = self.0.values().map(|kept| (kept.serial, kept.last_serial()));
        let mut ranges: Vec<(u64, u64)> = numbers.collect();
        ranges.sort_unstable();
        ranges
    }
}
