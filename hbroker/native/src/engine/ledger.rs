//! What each delivery of one direction of a link stands for, until the peer's PUBACK settles it (§7.3).
//!
//! Only deliveries that need a PUBACK have an entry; a control packet has none. Entries are kept in order, so that a PUBACK
//! costs what it settles, whatever ranges a hostile peer names.

use std::collections::BTreeMap;

/// What a delivery stands for: at an owner a copy of a message that `worker` took over, at a client a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub worker: u8,
    pub key: u32,
}

/// Open entries by delivery number.
#[derive(Debug)]
pub struct Ledger<T = Ticket> {
    entries: BTreeMap<u64, T>,
}

impl<T> Default for Ledger<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new() }
    }
}

impl<T> Ledger<T> {
    /// Opens an entry.
    pub fn open(&mut self, delivery: u64, entry: T) {
        self.entries.insert(delivery, entry);
    }

    /// Settles the lowest open entry from `first` to `last`; `None`: none is open there.
    pub fn settle_within(&mut self, first: u64, last: u64) -> Option<T> {
        if first > last {
            return None;
        }
        let (&delivery, _) = self.entries.range(first..=last).next()?;
        self.entries.remove(&delivery)
    }

    /// Takes every open entry, oldest first.
    pub fn take_all(&mut self) -> impl DoubleEndedIterator<Item = T> + use<T> {
        std::mem::take(&mut self.entries).into_values()
    }

    /// Takes the open entries that are meant, oldest first.
    pub fn extract(&mut self, mut is_meant: impl FnMut(&T) -> bool) -> Vec<T> {
        let meant = self.entries.iter().filter(|(_, entry)| is_meant(entry));
        let deliveries: Vec<u64> = meant.map(|(&delivery, _)| delivery).collect();
        deliveries.iter().filter_map(|delivery| self.entries.remove(delivery)).collect()
    }

    /// The open entries, to change, oldest first.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.entries.values_mut()
    }

    /// Open entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Ledger, Ticket};

    const fn ticket(key: u32) -> Ticket {
        Ticket { worker: 0, key }
    }

    #[test]
    fn settles_each_entry_once_and_lowest_first() {
        let mut ledger = Ledger::default();
        for (delivery, key) in [(3, 1), (4, 2), (7, 3), (9, 4)] {
            ledger.open(delivery, ticket(key));
        }
        assert_eq!(ledger.settle_within(5, 6), None);
        assert_eq!(ledger.settle_within(4, 4), Some(ticket(2)));
        assert_eq!(ledger.settle_within(4, 4), None);
        assert_eq!(ledger.settle_within(0, 7), Some(ticket(1)));
        assert_eq!(ledger.settle_within(0, 7), Some(ticket(3)));
        assert_eq!(ledger.settle_within(0, 7), None);
        assert_eq!(ledger.settle_within(u64::MAX, 0), None);
        assert_eq!(ledger.take_all().collect::<Vec<_>>(), [ticket(4)]);
        assert_eq!(ledger.settle_within(0, u64::MAX), None);
    }
}
