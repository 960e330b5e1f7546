//! The bytes to send on one connection: one buffer, and references to large payloads.
//!
//! A payload that goes to many connections is allocated once for all ([`Output::share`]). It has a position
//! between the bytes of the buffer, and one `writev` sends both. An empty output holds no memory, because
//! most connections are idle most of the time.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::ops::{Deref, DerefMut};

use bytes::Bytes;

/// A shorter payload is copied: a slice of its own costs the kernel more.
const WORTH_SHARING: usize = 16_384;
/// The most slices in one system call.
const SLICES: usize = 64;

/// Bytes in order. It dereferences to its buffer, a `Vec` that callers append to.
#[derive(Debug, Default)]
pub struct Output {
    buffer: Vec<u8>,
    /// Shared payloads, each with the index of the buffer's byte that it precedes.
    shared: VecDeque<(usize, Bytes)>,
    shared_bytes: usize,
    /// How many bytes of the buffer were sent, and of the first payload.
    sent: usize,
    sent_shared: usize,
}

impl Output {
    /// How many bytes were not sent yet.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.sent + self.shared_bytes - self.sent_shared
    }

    /// Whether all bytes were sent.
    pub fn is_done(&self) -> bool {
        self.pending() == 0
    }

    /// Appends bytes that other outputs share. Large ones are kept as a reference.
    pub fn share(&mut self, bytes: &Bytes) {
        if bytes.len() < WORTH_SHARING {
            return self.buffer.extend_from_slice(bytes);
        }
        self.shared_bytes += bytes.len();
        self.shared.push_back((self.buffer.len(), bytes.clone()));
    }

    /// Appends another output, of which nothing was sent yet, and empties it.
    pub fn take(&mut self, other: &mut Self) {
        debug_assert_eq!((other.sent, other.sent_shared), (0, 0));
        if self.is_done() {
            *self = std::mem::take(other);
            return;
        }
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&other.buffer);
        self.shared.extend(other.shared.drain(..).map(|(at, bytes)| (start + at, bytes)));
        self.shared_bytes += other.shared_bytes;
        other.clear();
    }

    /// The unsent bytes, as slices in order.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self.shared.iter().map(|(at, _)| *at).chain([self.buffer.len()]);
        let starts = [self.sent].into_iter().chain(self.shared.iter().map(|(at, _)| *at));
        let own = starts.zip(ends).map(|(start, end)| &self.buffer[start..end]);
        let skips = [self.sent_shared].into_iter().chain(std::iter::repeat(0));
        let payloads = self.shared.iter().zip(skips).map(|((_, bytes), skip)| &bytes[skip..]);
        let between = payloads.map(Some).chain([None]);
        own.zip(between)
            .flat_map(|(own, payload)| [Some(own), payload])
            .flatten()
            .filter(|slice| !slice.is_empty())
    }

    /// Writes until `sink` takes no more; true: all was written. `WouldBlock` is not an error here.
    pub fn write_to(&mut self, sink: &mut impl Write) -> io::Result<bool> {
        while !self.is_done() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut count = 0;
            for (slot, slice) in slices.iter_mut().zip(self.slices()) {
                *slot = IoSlice::new(slice);
                count += 1;
            }
            match sink.write_vectored(&slices[..count]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.clear();
        Ok(true)
    }

    /// Drops everything, and frees the memory.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn advance(&mut self, mut written: usize) {
        while let Some((at, bytes)) = self.shared.front() {
            let own = written.min(at - self.sent);
            self.sent += own;
            written -= own;
            let payload = written.min(bytes.len() - self.sent_shared);
            self.sent_shared += payload;
            written -= payload;
            if self.sent < *at || self.sent_shared < bytes.len() {
                return;
            }
            self.shared_bytes -= bytes.len();
            self.sent_shared = 0;
            self.shared.pop_front();
        }
        self.sent += written;
    }
}

impl Deref for Output {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.buffer
    }
}

impl DerefMut for Output {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Takes a random number of bytes from each call, or none.
    struct Fickle {
        random: SmallRng,
        taken: Vec<u8>,
    }

    impl Write for Fickle {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.write_vectored(&[IoSlice::new(bytes)])
        }

        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            let offered: usize = slices.iter().map(|slice| slice.len()).sum();
            if self.random.random_bool(0.2) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let mut left = self.random.random_range(1..=offered);
            let taken = left;
            for slice in slices {
                let part = left.min(slice.len());
                self.taken.extend_from_slice(&slice[..part]);
                left -= part;
            }
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_was_written_leaves_once_and_in_order() {
        for seed in 0..200 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut sink = Fickle { random: SmallRng::seed_from_u64(seed), taken: Vec::new() };
            let (mut output, mut written) = (Output::default(), Vec::new());
            for step in 0..60_u8 {
                let piece = vec![step; random.random_range(0..40_000)];
                written.extend_from_slice(&piece);
                match random.random_range(0..3) {
                    0 => output.extend_from_slice(&piece),
                    1 => output.share(&Bytes::from(piece)),
                    _ => {
                        let mut other = Output::default();
                        other.share(&Bytes::from(piece));
                        output.take(&mut other);
                        assert!(other.is_done() && other.shared.is_empty());
                    }
                }
                if random.random_bool(0.5) {
                    output.write_to(&mut sink).unwrap();
                }
                assert_eq!(output.pending() + sink.taken.len(), written.len());
            }
            while !output.write_to(&mut sink).unwrap() {}
            assert!(sink.taken == written, "seed {seed}");
            assert_eq!(
                (output.buffer.capacity(), output.shared.capacity()),
                (0, 0),
                "an idle connection holds no buffer"
            );
        }
    }

    #[test]
    fn a_large_payload_is_not_copied() {
        let payload = Bytes::from(vec![7; 1 << 20]);
        let mut outputs: Vec<Output> = (0..100).map(|_| Output::default()).collect();
        outputs.iter_mut().for_each(|output| {
            output.extend_from_slice(b"header");
            output.share(&payload);
        });
        let last = outputs[99].slices().last().unwrap();
        assert_eq!(last.as_ptr(), payload.as_ptr());
    }

    #[test]
    fn a_sink_that_takes_nothing_is_an_error() {
        let mut output = Output::default();
        output.extend_from_slice(b"x");
        let mut full: &mut [u8] = &mut [];
        assert_eq!(output.write_to(&mut full).unwrap_err().kind(), io::ErrorKind::WriteZero);
    }
}
