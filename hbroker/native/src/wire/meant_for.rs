//! Which subscriptions of its session a PUBLISH is for, if it is not for all that match and are not shared.

/// As encoded in a packet.
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
