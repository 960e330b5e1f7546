//! Puts large messages together (§7.5).
use crate::Micros;
/// Limits of a reassembler.
#[derive(Clone, Copy)]
pub struct Limits { /// Bytes held of one publisher.
 pub publisher_bytes: usize, /// Bytes held in all.
 pub total_bytes: usize, /// Messages begun and not whole.
 pub messages: usize, /// Microseconds without a new part after which a message is given up.
 pub patience: Micros }
/// One part of a message, as it came.
#[derive(Clone, Copy)]
pub struct Part<'a> { /// .
 pub publisher: u64, /// Of this part.
 pub sequence: u64, /// .
 pub index: u32, /// .
 pub count: u32, /// .
 pub total: u64, /// .
 pub bytes: &'a [u8] }
/// Messages of which some parts came.
pub struct Reassembler {}
impl Reassembler {
    /// .
    pub fn new(limits: Limits, seed: u64) -> Self { let _ = (limits, seed); todo!() }
    /// Takes a part; the whole payload once its last part came.
    pub fn add(&mut self, now: Micros, part: Part<'_>) -> Option<Vec<u8>> { let _ = (now, part); todo!() }
    /// Gives up what waited too long.
    pub fn expire(&mut self, now: Micros) { let _ = now; }
    /// Messages given up so far.
    pub fn abandoned(&self) -> u64 { 0 }
    /// Bytes held.
    pub fn bytes(&self) -> usize { 0 }
}
