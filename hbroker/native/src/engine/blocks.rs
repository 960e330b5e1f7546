//! Copies of short messages, many to an allocation.
//!
//! A block stays as long as one of the messages in it. So it is small: messages that stay when all around them have gone hold little more
//! together than credit and the bounds of queues allow for as many of them (§9). It has room for what one datagram brings that any path carries.

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

const BLOCK: usize = crate::link::mtu::BASE;
/// Longer messages have an allocation of their own.
const LONGEST: usize = BLOCK / 2;

/// Copies of messages, some of them end to end, and how many those are.
pub type Copies = SmallVec<[(Bytes, u32); 2]>;

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

    fn make_room(&mut self, bytes: usize) {
        if self.block.capacity() < bytes {
            self.block = BytesMut::with_capacity(BLOCK);
        }
    }
}

/// Copies of messages that came together, in their order: end to end, as many as a block holds and `most` at most, in one that is theirs alone.
pub fn copy_together<'m>(messages: impl Iterator<Item = &'m [u8]> + Clone, most: usize) -> Copies {
    let (mut copies, mut left) = (Copies::new(), messages);
    loop {
        let (mut bytes, mut count) = (0, 0);
        for message in left.clone().take(most) {
            if count > 0 && bytes + message.len() > BLOCK {
                break;
            }
            bytes += message.len();
            count += 1;
        }
        if count == 0 {
            return copies;
        }
        let mut block = Vec::with_capacity(bytes);
        left.by_ref().take(count).for_each(|message| block.extend_from_slice(message));
        copies.push((block.into(), count as u32));
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
        let sizes = [100, 1, 500, 400, 200, 512, 601, 5_000, 0, 400];
        let messages: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![size as u8; size]).collect();
        let mut blocks = Blocks::default();
        let copies: Vec<Bytes> = messages.iter().map(|message| blocks.copy(message)).collect();
        assert!(copies.iter().eq(&messages));
        assert_eq!(shared(&copies)[..5], [true, true, true, false, true]);
    }

    #[test]
    fn what_comes_together_lies_end_to_end_as_far_as_a_block_holds_it() {
        let sizes = [100, 1, 500, 400, 200, 512, 601, 5_000, 0, 400];
        let messages: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![size as u8; size]).collect();
        for (most, counts) in [(64, &[4, 2, 1, 1, 2][..]), (3, &[3, 3, 1, 1, 2])] {
            let copies = copy_together(messages.iter().map(|message| &message[..]), most);
            assert_eq!(copies.iter().map(|(_, count)| *count).collect::<Vec<_>>(), counts);
            let mut left = messages.iter();
            for (bytes, count) in &copies {
                let expected: Vec<&[u8]> =
                    left.by_ref().take(*count as usize).map(|message| &message[..]).collect();
                assert_eq!(bytes, &expected.concat());
            }
        }
        assert!(copy_together(std::iter::empty(), 64).is_empty());
    }
}
