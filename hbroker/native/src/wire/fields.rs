//! Fields of packets that are read and written here.

use super::Malformed;
use super::reader::Reader;
use crate::schema::fragment;

/// `AckMode::ACK_MODE_QUEUED`.
pub(super) const ACK_MODE_QUEUED: i32 = 1;

/// The fragment of a large message (§7.5). Nothing is checked: `index` may not be less than `count`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FragmentView {
    pub index: u32,
    pub count: u32,
    /// The size of the whole payload, in bytes.
    pub total: u64,
}

/// Which subscriptions of its session a PUBLISH is for, if it is not for all that match and are not shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MeantFor {
    /// A retained message, for the listener that asked for it; 0: for all subscriptions that match and are
    /// not shared (§7.6).
    Listener(u64),
    /// For the shared subscription with this id, which is not 0 (§6.5).
    Shared(u64),
}

impl MeantFor {
    /// `None`: the packet contains neither field.
    pub fn of(retained_for: Option<u64>, shared_for: u64) -> Option<Self> {
        let shared = (shared_for > 0).then_some(Self::Shared(shared_for));
        retained_for.map(Self::Listener).or(shared)
    }

    pub fn is_retained(self) -> bool {
        matches!(self, Self::Listener(_))
    }

    /// The field `retained_for`.
    pub fn retained_for(self) -> Option<u64> {
        match self {
            Self::Listener(listener) => Some(listener),
            Self::Shared(_) => None,
        }
    }

    /// The field `shared_for`.
    pub fn shared_for(self) -> u64 {
        match self {
            Self::Listener(_) => 0,
            Self::Shared(id) => id,
        }
    }
}

impl FragmentView {
    pub(super) fn merge(&mut self, mut message: Reader<'_>) -> Result<(), Malformed> {
        while let Some(tag) = message.tag()? {
            match tag {
                fragment::INDEX => self.index = message.varint32()?,
                fragment::COUNT => self.count = message.varint32()?,
                fragment::TOTAL => self.total = message.varint()?,
                _ => message.skip(tag)?,
            }
        }
        Ok(())
    }
}
