//! The ids of what a core keeps in slots: its links, its sessions, and the clients of a pool.

/// An id of a slot's contents: the worker, the slot there, and a generation, so that no id is used again
/// while it may still be remembered.
macro_rules! slot_name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u64);

        impl $name {
            /// `generation` wraps at 2^24.
            pub fn new(worker: u8, generation: u32, slot: usize) -> Self {
                let generation = u64::from(generation) & ((1 << GENERATION_BITS) - 1);
                Self(u64::from(worker) << (SLOT_BITS + GENERATION_BITS) | generation << SLOT_BITS | slot as u64)
            }

            pub fn worker(self) -> u8 {
                self.0.to_be_bytes()[0]
            }

            pub fn slot(self) -> usize {
                (self.0 & ((1 << SLOT_BITS) - 1)) as usize
            }
        }
    };
}

const SLOT_BITS: u32 = 32;
const GENERATION_BITS: u32 = 24;

slot_name! {
    /// A link within one core.
    LinkId
}

slot_name! {
    /// A session within one core, whether it has a link or not.
    SessionKey
}

/// A client of one pool: a slot, and a generation. The id of the first one is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolClientId(pub u64);

impl PoolClientId {
    pub fn new(generation: u32, slot: usize) -> Self {
        Self(LinkId::new(0, generation, slot).0)
    }

    pub fn slot(self) -> usize {
        LinkId(self.0).slot()
    }
}

#[cfg(test)]
mod tests {
    use super::LinkId;

    #[test]
    fn its_parts_come_back() {
        let id = LinkId::new(255, u32::MAX, (1 << 32) - 1);
        assert_eq!((id.worker(), id.slot()), (255, (1 << 32) - 1));
        let id = LinkId::new(3, 1, 5);
        assert_eq!((id.worker(), id.slot()), (3, 5));
        assert_ne!(id, LinkId::new(3, 2, 5));
    }
}
