//! The sessions that get a message.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::link_id::SessionKey;
use crate::tables::subscriber::{Overflow, Subscriber};
use crate::wire::MeantFor;

pub type Targets = SmallVec<[Target; 4]>;

/// A session that gets a message.
#[derive(Clone, Debug)]
pub struct Target {
    pub session: SessionKey,
    pub qos: u8,
    /// The id of the shared subscription through which it gets the message; 0: none.
    pub shared: u64,
    pub overflow: Overflow,
    /// The shared group through which it gets the message.
    pub group: Option<Arc<str>>,
}

impl From<&Subscriber> for Target {
    fn from(subscriber: &Subscriber) -> Self {
        let &Subscriber { session, qos, overflow, .. } = subscriber;
        Self { session, qos, shared: 0, overflow, group: None }
    }
}

impl Target {
    /// As in a packet.
    pub fn meant_for(&self) -> Option<MeantFor> {
        MeantFor::of(None, self.shared)
    }
}
