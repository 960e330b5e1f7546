//! Memory for copies of messages.
//!
//! Copies of short messages share an allocation, a block. It is freed when the last message in it is. So a block is
//! small: if single messages survive in many blocks, they keep little more memory than credit and the bounds of queues
//! allow for that number of messages (§9). A block has room for the messages of one datagram of the size that any path
//! carries.

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

const BLOCK: usize = crate::link::mtu::BASE;
/// Longer messages have an allocation of their own.
const LONGEST: usize = BLOCK / 2;

/// Copies of messages, in order: allocations with copies end to end, each with their number.
pub type CopiedRuns = SmallVec<[(Bytes, u32); 2]>;

/// Makes copies. It keeps a block that is not full yet for the next copy. Gathered messages are end to end in
/// it, until they are taken.
#[derive(Default)]
pub struct CopyBlocks {
    block: BytesMut,
}

impl CopyBlocks {
    /// A copy of one message. No message may be gathered at this time.
    pub fn copy(&mut self, message: &[u8]) -> Bytes {
        debug_assert!(self.block.is_empty());
        if message.len() > LONGEST {
            return Bytes::copy_from_slice(message);
        }
        self.gather(message);
        self.take()
    }

    /// Appends a copy of a message to the gathered ones. False: the block has no room for it, and the
    /// gathered ones have to be taken first.
    pub fn gather(&mut self, message: &[u8]) -> bool {
        if self.block.capacity() - self.block.len() < message.len() {
            if !self.block.is_empty() {
                return false;
            }
            self.block = BytesMut::with_capacity(if message.len() > LONGEST { message.len() } else { BLOCK });
        }
        self.block.extend_from_slice(message);
        true
    }

    /// The number of gathered bytes.
    pub fn gathered_bytes(&self) -> usize {
        self.block.len()
    }

    /// Takes the gathered messages.
    pub fn take(&mut self) -> Bytes {
        self.block.split().freeze()
    }
}

/// Copies of messages that arrived together, in their order. At most `most` messages, and as many as fit a
/// block, are end to end in an allocation of their own.
pub fn copy_together<'m>(messages: impl Iterator<Item = &'m [u8]> + Clone, most: usize) -> CopiedRuns {
    let (mut copies, mut left) = (CopiedRuns::new(), messages);
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
    /// For each two consecutive copies, whether they share a block.
    fn shared(copies: &[Bytes]) -> Vec<bool> {
        copies.windows(2).map(|pair| pair[0].as_ptr_range().end == pair[1].as_ptr()).collect()
    }

    #[test]
    fn copies_share_a_block_until_it_is_full() {
        let sizes = [100, 1, 500, 400, 200, 512, 601, 5_000, 0, 400];
        let messages: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![size as u8; size]).collect();
        let mut copy_blocks = CopyBlocks::default();
        let copies: Vec<Bytes> = messages.iter().map(|message| copy_blocks.copy(message)).collect();
        assert!(copies.iter().eq(&messages));
        assert_eq!(shared(&copies)[..5], [true, true, true, false, true]);
    }

    #[test]
    fn what_is_gathered_lies_end_to_end_until_it_is_taken() {
        let mut copy_blocks = CopyBlocks::default();
        let (gathered, all): (Vec<bool>, Vec<u8>) =
            (0..40).map(|at| (copy_blocks.gather(&[at; 100]), at)).unzip();
        let room = gathered.iter().take_while(|is_taken| **is_taken).count();
        assert_eq!((room, copy_blocks.gathered_bytes()), (BLOCK / 100, BLOCK / 100 * 100));
        assert!(gathered[room..].iter().all(|is_taken| !is_taken), "it is to be taken first");
        assert_eq!(copy_blocks.take(), all[..room].iter().flat_map(|&at| [at; 100]).collect::<Vec<_>>());
        assert_eq!((copy_blocks.gathered_bytes(), copy_blocks.take().len()), (0, 0));
        assert!(
            copy_blocks.gather(&[1; 5_000]) && !copy_blocks.gather(&[2]),
            "a long one has a block of its own"
        );
        assert_eq!(copy_blocks.take(), [1; 5_000][..]);
        assert_eq!(copy_blocks.copy(&[3; 10]), [3; 10][..]);
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
