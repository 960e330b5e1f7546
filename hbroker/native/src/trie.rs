//! The subscription trie.
use crate::link_id::LinkId;
/// Who gets what matches, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscriber { /// .
 pub link: LinkId, /// The highest QoS wanted.
 pub qos: u8, /// Not what this link published itself.
 pub no_local: bool, /// Keep the retain flag.
 pub retain_as_published: bool }
/// The links that match a topic, each once: a buffer to use again and again.
#[derive(Default)]
pub struct MatchSet {}
impl MatchSet {
    /// Each link once.
    pub fn subscribers(&self) -> &[Subscriber] { &[] }
    /// How many subscriptions matched (of one link perhaps several).
    pub fn subscriptions(&self) -> usize { 0 }
}
/// Filters and who subscribed to them.
pub struct SubscriptionTrie {}
impl SubscriptionTrie {
    /// .
    pub fn new(seed: u64) -> Self { let _ = seed; todo!() }
    /// Adds or replaces; whether it replaced.
    pub fn insert(&mut self, filter: &str, subscriber: Subscriber) -> bool { let _ = (filter, subscriber); todo!() }
    /// Whether there was one.
    pub fn remove(&mut self, filter: &str, link: LinkId) -> bool { let _ = (filter, link); todo!() }
    /// Removes all of a link; how many.
    pub fn remove_link(&mut self, link: LinkId) -> usize { let _ = link; todo!() }
    /// Clears `found` and fills it.
    pub fn collect_matches(&self, topic: &str, found: &mut MatchSet) { let _ = (topic, found); todo!() }
    /// Subscriptions.
    pub fn len(&self) -> usize { todo!() }
}
