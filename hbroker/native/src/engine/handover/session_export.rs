//! The part of an export in one session: which messages the source has copied while it still serves them, and
//! which of these copies are void (§5.4).
//!
//! The messages of a session are in the order of their numbers. Copying examines them in this order, so one number
//! tells which were examined; the later ones are the difference. If a copied message is acknowledged, expires or is
//! dropped afterwards, its copy is void. The number of the message is noted until the target has been told.
//! Copying ends at the first message with a ticket, because its publisher will send it to the target again.
//!
//! Messages that only the store has are copied from there, and are not taken into the session's memory for that
//! (`stored_copies`).

use crate::engine::sessions::message::QueuedMessage;
use crate::link::receive::ranges::RangeSet;
use crate::wire::GoneRecord as Gone;

/// The approximate number of bytes that one step copies.
const STEP_BYTES: usize = 64 << 10;
/// How many messages one step examines.
const STEP_MESSAGES: usize = 4_096;

/// The part of an export in one session. An export of the node has one `NodeExport`, a `WorkerExport` in each
/// worker, and a `SessionExport` in each session that had messages to examine.
#[derive(Debug)]
pub struct SessionExport {
    export: u64,
    /// All messages below this number were examined.
    next: u64,
    /// Those of them that are gone, and were not reported yet.
    gone: RangeSet,
    /// Messages were copied, and some of the copies may be valid.
    has_some: bool,
    /// Some of the examined messages belong to other subtrees.
    has_others: bool,
    /// The numbers of the copied messages; and those of all examined messages that the session lost afterwards.
    copies: RangeSet,
    gone_since: RangeSet,
    /// What the copied messages cost in memory, and how many they are.
    cost: usize,
    count: u64,
    /// Set while messages are read from the store and not all of them are examined: the numbers of those that were
    /// acknowledged or dropped since the read began. The store may still return them.
    gone_unread: Option<RangeSet>,
    /// All remaining messages below `launched` were given to the session's link. The target was told so for those
    /// below `reported`.
    launched: u64,
    reported: u64,
    /// All copies are void, and the target was not told yet.
    is_void: bool,
}

/// The result of one step of copying.
#[derive(Debug, Default)]
pub struct CopyStep {
    /// To be reported before the copies.
    pub gone: Vec<Gone>,
    /// The queue's name, its session, and a message.
    pub copies: Vec<(u64, u64, QueuedMessage)>,
    /// The bytes of the copies.
    pub bytes: usize,
    messages: usize,
}

impl CopyStep {
    /// A message was examined; `copy` has its queue's name and its session, if it is to be copied.
    pub fn examined(&mut self, copy: Option<(u64, u64, &QueuedMessage)>) {
        self.messages += 1;
        if let Some((queue, session, queued_message)) = copy {
            self.bytes += queued_message.field.len();
            self.copies.push((queue, session, queued_message.clone()));
        }
    }

    pub fn is_full(&self) -> bool {
        self.bytes >= STEP_BYTES || self.messages >= STEP_MESSAGES
    }
}

impl SessionExport {
    fn new(export: u64) -> Self {
        Self {
            export,
            next: 1,
            gone: RangeSet::default(),
            has_some: false,
            has_others: false,
            copies: RangeSet::default(),
            gone_since: RangeSet::default(),
            cost: 0,
            count: 0,
            gone_unread: None,
            launched: 0,
            reported: 0,
            is_void: false,
        }
    }

    /// The record of an export among those of a session.
    pub fn among(all: &mut Vec<Self>, export: u64) -> &mut Self {
        let position =
            all.iter().position(|session_export| session_export.export == export).unwrap_or_else(|| {
                all.push(Self::new(export));
                all.len() - 1
            });
        &mut all[position]
    }

    /// Takes the record of an export out.
    pub fn take_from(all: &mut Vec<Self>, export: u64) -> Self {
        let position = all.iter().position(|session_export| session_export.export == export);
        position.map_or_else(|| Self::new(export), |position| all.swap_remove(position))
    }

    // Change

    /// A message was examined, and copied if it is of the subtree.
    pub fn pass(&mut self, queued_message: &QueuedMessage, is_its: bool) {
        self.next = queued_message.number + 1;
        self.has_some |= is_its;
        self.has_others |= !is_its;
        if is_its {
            self.copies.insert(queued_message.number);
            self.cost += queued_message.cost();
            self.count += 1;
        }
    }

    /// All messages below this number were examined.
    pub fn pass_to(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    /// Messages of the session are read from the store from now on.
    pub fn begin_to_read(&mut self) {
        self.gone_unread = Some(RangeSet::default());
    }

    /// Nothing that was read is of use any more.
    pub fn end_reading(&mut self) {
        self.gone_unread = None;
    }

    /// The session does not have these messages any more.
    pub fn note_gone(&mut self, first: u64, last: u64) {
        if self.has_some && first < self.next {
            let last = last.min(self.next - 1);
            self.gone.insert_range(first, last);
            self.gone_since.insert_range(first, last);
        }
        if let Some(unread) = &mut self.gone_unread
            && last >= self.next
        {
            unread.insert_range(first.max(self.next), last);
        }
    }

    /// The session's link was given all messages below this number.
    pub fn note_launched(&mut self, below: u64) {
        self.launched = below;
    }

    /// All copies are void.
    pub fn begin_again(&mut self) {
        *self = Self { is_void: self.is_void || self.has_some, ..Self::new(self.export) };
    }

    /// The copies that have become void since the last call, if there are any. `oldest`: the number of the
    /// oldest message that the session has.
    pub fn take_gone(&mut self, queue: u64, oldest: u64) -> Option<Gone> {
        if std::mem::take(&mut self.is_void) {
            return Some(Gone::all(queue));
        }
        if !self.has_some || (self.gone.is_empty() && self.launched == self.reported) {
            return None;
        }
        self.gone.forget_below(oldest);
        let ranges = self.gone.take_lowest(usize::MAX).collect();
        self.reported = self.launched;
        self.has_some = oldest < self.next;
        Some(Gone { queue, below: oldest.min(self.next), ranges, launched: self.launched })
    }

    // Read

    /// Whether messages are being read from the store, or were, and are not all examined.
    pub fn is_reading(&self) -> bool {
        self.gone_unread.is_some()
    }

    /// Whether a message that was read from the store is gone since.
    pub fn is_gone_unread(&self, number: u64) -> bool {
        self.gone_unread.as_ref().is_some_and(|unread| unread.contains(number))
    }

    /// The copied messages from this number on that are not gone.
    pub fn valid_from(&mut self, first: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.copies.remove_all(&self.gone_since);
        let ranges = self.copies.ascending().filter(move |(_, last)| *last >= first);
        ranges.map(move |(from, last)| (from.max(first), last))
    }

    /// About what a copied message costs in memory.
    pub fn mean_cost(&self) -> usize {
        self.cost / (self.count as usize).max(1)
    }

    pub fn is_of(&self, export: u64) -> bool {
        self.export == export
    }

    pub fn export(&self) -> u64 {
        self.export
    }

    /// The first number that was not examined.
    pub fn next(&self) -> u64 {
        self.next
    }

    pub fn has_some(&self) -> bool {
        self.has_some
    }

    /// Whether some of the examined messages belong to other subtrees.
    pub fn has_others(&self) -> bool {
        self.has_others
    }
}
