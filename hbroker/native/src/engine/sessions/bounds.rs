//! How large a queue is, or may be.

/// The bounds of a queue, or its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub messages: usize,
    pub bytes: usize,
}
