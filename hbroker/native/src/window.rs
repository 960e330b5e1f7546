//! Recognises messages that come again (§7.4).
use crate::keyed::Keyed;
/// The sequence numbers seen lately of each publisher.
pub struct DuplicateWindow { _keyed: Keyed }
impl DuplicateWindow {
    /// Remembers `max_publishers` publishers, and of each the `span` newest sequence numbers.
    pub fn new(max_publishers: usize, span: u64, seed: u64) -> Self { let _ = (max_publishers, span); Self { _keyed: Keyed::new(seed) } }
    /// Records a message; whether it is the first time.
    pub fn first_seen(&mut self, publisher: u64, sequence: u64) -> bool { let _ = (publisher, sequence); todo!() }
}
