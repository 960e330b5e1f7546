//! The zones that a client knows (§5.3).
use std::net::SocketAddr;

use crate::Micros;
use crate::jurisdiction::Cut;
/// Where to send a topic's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup { /// To its owner.
 Owner(SocketAddr), /// Ask this node, the deepest known above the owner.
 Below(SocketAddr), /// Ask the root.
 Unknown }
/// Cached jurisdictions.
pub struct Zones {}
impl Zones {
    /// .
    pub fn new(max_entries: usize, seed: u64) -> Self { let _ = (max_entries, seed); todo!() }
    /// .
    pub fn install(&mut self, scope: &str, cuts: &[Cut], owner: SocketAddr, expires: Micros) { let _ = (scope, cuts, owner, expires); }
    /// None: all.
    pub fn forget(&mut self, owner: Option<SocketAddr>) { let _ = owner; }
    /// From PUBACK NOT_RESPONSIBLE of `owner` about `topic`. Afterwards `lookup(topic)` is no longer Owner(owner).
    pub fn learn_cut(&mut self, owner: SocketAddr, topic: &str, cut: &Cut, expires: Micros) { let _ = (owner, topic, cut, expires); }
    /// .
    pub fn lookup(&self, topic: &str, now: Micros) -> Lookup { let _ = (topic, now); todo!() }
}
