//! What an old owner copies of a session's messages while it serves them still, and which of the copies are none any more (§5.4).
//!
//! The messages that a session has lie in the order of their numbers. So it is enough to know up to which number they were looked at: what lies
//! behind is the difference. What was copied and is answered, expires or is dropped since, is noted by its number, until the next owner is
//! told. Messages that publishers wait for are not copied: those publishers would send them to the next owner again.

use crate::engine::sessions::message::QueuedMessage;
use crate::link::receive::ranges::RangeSet;
use crate::wire::GoneRecord as Gone;

/// Bytes of messages that one step copies, about.
const STEP_BYTES: usize = 64 << 10;
/// Messages that one step looks at.
const STEP_MESSAGES: usize = 4_096;

/// Copies of one session's messages, for one subtree that is about to move.
#[derive(Debug)]
pub struct Copied {
    export: u64,
    /// All below this number were looked at.
    next: u64,
    /// Of those looked at, what is gone since and was not told.
    gone: RangeSet,
    /// Some were copied, of which some may be left.
    has_some: bool,
    /// Some belong to other subtrees.
    has_others: bool,
    /// All below this number that are left were given to the session's link; and as far as that was told.
    launched: u64,
    reported: u64,
    /// All that was copied is to be forgotten, and was not told.
    is_void: bool,
}

/// What one step of copying found.
#[derive(Debug, Default)]
pub struct Step {
    /// To be told before the copies.
    pub gone: Vec<Gone>,
    /// A queue's name, its session, and a message.
    pub copies: Vec<(u64, u64, QueuedMessage)>,
    /// Bytes of the copies.
    pub bytes: usize,
    messages: usize,
}

impl Step {
    /// A message was looked at; its queue's name and its session, where it is to be copied.
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

impl Copied {
    fn new(export: u64) -> Self {
        Self {
            export,
            next: 1,
            gone: RangeSet::new(usize::MAX),
            has_some: false,
            has_others: false,
            launched: 0,
            reported: 0,
            is_void: false,
        }
    }

    /// That of an export among those of a session.
    pub fn among(all: &mut Vec<Self>, export: u64) -> &mut Self {
        let position = all.iter().position(|copied| copied.export == export).unwrap_or_else(|| {
            all.push(Self::new(export));
            all.len() - 1
        });
        &mut all[position]
    }

    /// Takes it from there.
    pub fn take_from(all: &mut Vec<Self>, export: u64) -> Self {
        let position = all.iter().position(|copied| copied.export == export);
        position.map_or_else(|| Self::new(export), |position| all.swap_remove(position))
    }

    // Change

    /// A message was looked at, and copied if it is one of the subtree's.
    pub fn pass(&mut self, number: u64, is_its: bool) {
        self.next = number + 1;
        self.has_some |= is_its;
        self.has_others |= !is_its;
    }

    /// The session has these no more.
    pub fn gone(&mut self, first: u64, last: u64) {
        if self.has_some && first < self.next {
            self.gone.insert_range(first, last.min(self.next - 1));
        }
    }

    /// The session's link was given all below this number.
    pub fn launched(&mut self, below: u64) {
        self.launched = below;
    }

    /// What was copied counts no more.
    pub fn begin_again(&mut self) {
        *self = Self { is_void: self.is_void || self.has_some, ..Self::new(self.export) };
    }

    /// Which copies are none any more, where that is news. `oldest`: the number of the oldest message that the session has.
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

    pub fn is_of(&self, export: u64) -> bool {
        self.export == export
    }

    pub fn export(&self) -> u64 {
        self.export
    }

    /// The first number that was not looked at.
    pub fn next(&self) -> u64 {
        self.next
    }

    pub fn has_some(&self) -> bool {
        self.has_some
    }

    /// Whether some of those looked at belong to other subtrees.
    pub fn has_others(&self) -> bool {
        self.has_others
    }
}
