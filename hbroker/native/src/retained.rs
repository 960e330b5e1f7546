//! Retained messages (§7.6).
/// A PUBLISH with `retain`, as it came.
#[derive(Clone, Copy)]
pub struct RetainedPart<'a> { /// .
 pub topic: &'a str, /// The field `publish` of the Packet, to be copied.
 pub field: &'a [u8], /// .
 pub payload_is_empty: bool, /// .
 pub publisher: u64, /// .
 pub sequence: u64, /// (index, count) of a part of a large message.
 pub fragment: Option<(u32, u32)> }
/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer { /// It is the topic's retained message now.
 Kept, /// The topic has none now.
 Cleared, /// More parts must come.
 Incomplete, /// Older than what is kept, or impossible.
 Ignored, /// No room.
 Refused }
/// The last message of each topic.
pub struct RetainedStore {}
impl RetainedStore {
    /// .
    pub fn new(max_bytes: usize) -> Self { let _ = max_bytes; todo!() }
    /// .
    pub fn offer(&mut self, part: RetainedPart<'_>) -> Offer { let _ = part; todo!() }
    /// The fields (`publish` of the Packet) of each message that matches.
    pub fn for_each_match<'a>(&'a self, filter: &str, visit: impl FnMut(&'a str, &'a [Box<[u8]>])) { let _ = (filter, visit); todo!() }
    /// The messages at or below a subtree.
    pub fn below<'a>(&'a self, subtree: &'a str) -> impl Iterator<Item = (&'a str, &'a [Box<[u8]>])> { let _ = subtree; std::iter::empty() }
    /// Drops them; returns how many.
    pub fn drop_below(&mut self, subtree: &str) -> usize { let _ = subtree; todo!() }
    /// Topics with a retained message.
    pub fn len(&self) -> usize { todo!() }
    /// Bytes held, parts of messages that are not whole included.
    pub fn bytes(&self) -> usize { todo!() }
}
