//! Copies of short messages, many to an allocation.
//!
//! A block stays as long as one of the messages in it. So it is small: messages that stay when all around them have gone hold no more
//! together than credit and the bounds of queues allow for as many of them (§9).

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

const BLOCK: usize = 1_024;
/// Longer messages have an allocation of their own.
const LONGEST: usize = BLOCK / 2;

/// Copies of messages that came together.
pub type Copies = SmallVec<[Bytes; 16]>;

/// Makes copies. The block that is not full yet is kept for the next.
#[derive(Default)]
pub struct Blocks {
    block: BytesMut,
}

impl Blocks {
    /// A copy of one message.
    pub fn copy(&mut self, message: &[u8]) -> Bytes {
        if message.len() > LONGEST {
            return Bytes::copy_from_slice(message);
        }
        self.make_room(message.len());
        self.block.extend_from_slice(message);
        self.block.split().freeze()
    }

    /// Copies of many messages, in their order: those that fit a block are cut from it at once.
    pub fn copy_all<M: AsRef<[u8]>>(&mut self, messages: impl Iterator<Item = M>) -> Copies {
        let (mut copies, mut lengths): (Copies, SmallVec<[usize; 16]>) = Default::default();
        for message in messages {
            let message = message.as_ref();
            if message.len() > LONGEST {
                self.cut(&mut lengths, &mut copies);
                copies.push(Bytes::copy_from_slice(message));
                continue;
            }
            if self.block.capacity() - self.block.len() < message.len() {
                self.cut(&mut lengths, &mut copies);
                self.make_room(message.len());
            }
            self.block.extend_from_slice(message);
            lengths.push(message.len());
        }
        self.cut(&mut lengths, &mut copies);
        copies
    }

    fn make_room(&mut self, bytes: usize) {
        if self.block.capacity() < bytes {
            self.block = BytesMut::with_capacity(BLOCK);
        }
    }

    /// Cuts what was gathered into messages of these lengths.
    fn cut(&mut self, lengths: &mut SmallVec<[usize; 16]>, copies: &mut Copies) {
        let mut gathered = self.block.split().freeze();
        copies.extend(lengths.drain(..).map(|length| gathered.split_to(length)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of each two copies that follow one another, whether they share a block.
    fn shared(copies: &[Bytes]) -> Vec<bool> {
        copies.windows(2).map(|pair| pair[0].as_ptr_range().end == pair[1].as_ptr()).collect()
    }

    #[test]
    fn copies_share_a_block_until_it_is_full() {
        let sizes = [100, 1, 500, 300, 200, 512, 513, 5_000, 0, 400];
        let messages: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![size as u8; size]).collect();
        let mut blocks = Blocks::default();
        let one_by_one: Vec<Bytes> = messages.iter().map(|message| blocks.copy(message)).collect();
        let together = Blocks::default().copy_all(messages.iter());
        for copies in [&one_by_one, &together.to_vec()] {
            assert!(copies.iter().eq(&messages));
            assert_eq!(shared(copies)[..5], [true, true, true, false, true]);
        }
    }

    #[test]
    fn what_comes_together_goes_on_in_the_block_that_is_there() {
        let mut blocks = Blocks::default();
        let mut copies = vec![blocks.copy(b"one")];
        copies.extend(blocks.copy_all([b"two", b"six"].into_iter()));
        copies.push(blocks.copy(b"ten"));
        assert_eq!((copies.concat(), shared(&copies)), (b"onetwosixten".to_vec(), vec![true; 3]));
        assert!(blocks.copy_all(std::iter::empty::<&[u8]>()).is_empty());
    }
}
