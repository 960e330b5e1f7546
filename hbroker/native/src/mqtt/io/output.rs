//! What is to leave on one connection: small writes gather in one buffer, large payloads stay where they are.
//!
//! A payload that goes to many connections is one allocation for all of them ([`Output::share`]), and one `writev` sends both
//! kinds. An output that is empty holds no memory to speak of, since nearly all connections are idle nearly all of the time.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use bytes::Bytes;

/// What is shorter is copied: a slice of its own costs the kernel more.
const WORTH_SHARING: usize = 4_096;
/// A buffer that has grown to this is left as it is, and another begun.
const CHUNK: usize = 65_536;
/// Slices in one system call.
const SLICES: usize = 64;
/// A first buffer, in bytes: an acknowledgement or two.
const FIRST: usize = 64;

/// Bytes in order.
#[derive(Debug, Default)]
pub struct Output {
    chunks: VecDeque<Chunk>,
    /// How much of the first chunk has left.
    sent: usize,
    bytes: usize,
}

#[derive(Debug)]
enum Chunk {
    Own(Vec<u8>),
    Shared(Bytes),
}

impl Chunk {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Own(buffer) => buffer,
            Self::Shared(bytes) => bytes,
        }
    }
}

impl Output {
    /// How many bytes have not left.
    pub fn len(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.append(|buffer| buffer.extend_from_slice(bytes));
    }

    /// Writes bytes that others have too; only their handle is kept where that is cheaper.
    pub fn share(&mut self, bytes: &Bytes) {
        if bytes.len() < WORTH_SHARING {
            return self.write(bytes);
        }
        self.bytes += bytes.len();
        self.chunks.push_back(Chunk::Shared(bytes.clone()));
    }

    /// Writes by appending to a buffer, for encoders.
    pub fn append<R>(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let buffer = match self.chunks.back_mut() {
            Some(Chunk::Own(buffer)) if buffer.len() < CHUNK => buffer,
            _ => {
                self.chunks.push_back(Chunk::Own(Vec::with_capacity(FIRST)));
                match self.chunks.back_mut() {
                    Some(Chunk::Own(buffer)) => buffer,
                    _ => unreachable!("it was just put there"),
                }
            }
        };
        let before = buffer.len();
        let result = encode(buffer);
        self.bytes += buffer.len() - before;
        result
    }

    /// Takes all of another output over, in order.
    pub fn take(&mut self, other: &mut Self) {
        if self.is_empty() {
            std::mem::swap(self, other);
            other.clear();
            return;
        }
        while let Some(chunk) = other.chunks.pop_front() {
            let skip = std::mem::take(&mut other.sent);
            match chunk {
                Chunk::Own(buffer) => self.write(&buffer[skip..]),
                Chunk::Shared(bytes) => self.share(&bytes.slice(skip..)),
            }
        }
        other.clear();
    }

    /// The bytes, piece by piece.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let first = self.sent;
        let skip = move |index| if index == 0 { first } else { 0 };
        self.chunks.iter().enumerate().map(move |(index, chunk)| &chunk.as_slice()[skip(index)..])
    }

    /// Writes as much as `sink` takes; true: all of it. `WouldBlock` is no error here.
    pub fn write_to(&mut self, sink: &mut impl Write) -> io::Result<bool> {
        while !self.is_empty() {
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

    /// Forgets everything, and gives its memory back.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn advance(&mut self, mut written: usize) {
        self.bytes -= written;
        while let Some(first) = self.chunks.front() {
            let left = first.as_slice().len() - self.sent;
            if written < left {
                self.sent += written;
                return;
            }
            written -= left;
            self.sent = 0;
            self.chunks.pop_front();
        }
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
                let piece = vec![step; random.random_range(0..9_000)];
                written.extend_from_slice(&piece);
                match random.random_range(0..3) {
                    0 => output.write(&piece),
                    1 => output.share(&Bytes::from(piece)),
                    _ => {
                        let mut other = Output::default();
                        other.share(&Bytes::from(piece));
                        output.take(&mut other);
                        assert!(other.is_empty() && other.chunks.is_empty());
                    }
                }
                if random.random_bool(0.5) {
                    output.write_to(&mut sink).unwrap();
                }
                assert_eq!(output.len() + sink.taken.len(), written.len());
            }
            while !output.write_to(&mut sink).unwrap() {}
            assert!(sink.taken == written, "seed {seed}");
            assert_eq!(output.chunks.capacity(), 0, "an idle connection holds no buffer");
        }
    }

    #[test]
    fn a_large_payload_is_not_copied() {
        let payload = Bytes::from(vec![7; 1 << 20]);
        let mut outputs: Vec<Output> = (0..100).map(|_| Output::default()).collect();
        outputs.iter_mut().for_each(|output| {
            output.write(b"header");
            output.share(&payload);
        });
        let last = outputs[99].slices().last().unwrap();
        assert_eq!(last.as_ptr(), payload.as_ptr());
    }

    #[test]
    fn a_sink_that_takes_nothing_is_an_error() {
        let mut output = Output::default();
        output.write(b"x");
        let mut full: &mut [u8] = &mut [];
        assert_eq!(output.write_to(&mut full).unwrap_err().kind(), io::ErrorKind::WriteZero);
    }
}
