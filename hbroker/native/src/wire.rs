//! Stand-in for the codec.
#![allow(missing_docs)]

#[derive(Clone, Copy)]
pub struct AckView<'a> {
    pub largest: u64,
    pub delay_us: u64,
    pub runs: &'a [(u64, u64)],
}

impl<'a> AckView<'a> {
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        self.runs.iter().copied()
    }
}

pub struct Header<'a> {
    pub session: u64,
    pub incarnation: u64,
    pub number: u64,
    pub ack: Option<AckView<'a>>,
    pub token: &'a [u8],
}
