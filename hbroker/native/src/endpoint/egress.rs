//! Collects datagrams to send, so that few system calls send them.
//!
//! Datagrams lie end to end in one buffer. Successive datagrams to one destination with one length (the last
//! may be shorter) become one message, which the kernel splits into datagrams again (UDP_SEGMENT). One
//! `sendmmsg` sends many messages.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;

use crate::endpoint::traffic::{Counters, Outgoing, SendError};
use crate::sink::DatagramSink;

/// How many bytes are collected before they are sent. More would not stay in the CPU cache.
const FULL_BYTES: usize = 256 * 1024;
/// The kernel's UDP_MAX_SEGMENTS, which was 64 before Linux 6.10.
const MAX_SEGMENTS: usize = 64;
/// The largest UDP payload over IPv4.
const MAX_MESSAGE: usize = 65_507;

/// The datagrams of one worker that are not sent yet, in order.
pub struct Egress {
    bytes: Vec<u8>,
    messages: Vec<Outgoing>,
    /// The messages before this one were sent.
    next: usize,
    segmentation: bool,
    /// A message that the kernel refused is being sent as single datagrams. If they are accepted,
    /// segmentation was the cause.
    on_trial: bool,
}

impl Egress {
    /// `segmentation`: the socket supports UDP_SEGMENT
    /// ([`Socket::segments`](crate::endpoint::socket::Socket::segments)).
    pub fn new(segmentation: bool) -> Self {
        Self {
            bytes: Vec::with_capacity(FULL_BYTES + MAX_MESSAGE),
            messages: Vec::new(),
            next: 0,
            segmentation,
            on_trial: false,
        }
    }

    /// Sends until the socket takes no more; `send` is
    /// [`Socket::send`](crate::endpoint::socket::Socket::send). False: the socket takes no more now, and the
    /// rest waits.
    ///
    /// A datagram that cannot be sent (too large, no route, refused) is dropped and counted. An error means
    /// that the socket has failed.
    pub fn flush(
        &mut self,
        counters: &Counters,
        mut send: impl FnMut(&[u8], &[Outgoing]) -> Result<usize, SendError>,
    ) -> io::Result<bool> {
        while self.next < self.messages.len() {
            match send(&self.bytes, &self.messages[self.next..]) {
                Ok(sent) => {
                    self.segmentation &= !self.on_trial;
                    self.on_trial = false;
                    self.next += sent;
                }
                Err(SendError::Blocked) => return Ok(false),
                Err(SendError::Dead(error)) => return Err(error),
                Err(error @ (SendError::TooLarge | SendError::Refused))
                    if self.messages[self.next].is_segmented() =>
                {
                    self.on_trial = matches!(error, SendError::Refused);
                    self.cut_up_next();
                }
                Err(error) => {
                    self.on_trial = false;
                    counters.count_dropped(&error, self.messages[self.next].datagrams());
                    self.next += 1;
                }
            }
        }
        self.clear();
        Ok(true)
    }

    /// Whether no datagram waits.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.messages.clear();
        self.next = 0;
    }

    fn cut_up_next(&mut self) {
        let Outgoing { destination, range, segment } = self.messages[self.next].clone();
        let pieces = range.clone().step_by(segment).map(|start| Outgoing {
            destination,
            range: start..range.end.min(start + segment),
            segment,
        });
        self.messages.splice(self.next..=self.next, pieces);
    }

    /// Appends the datagram to the last message, if that has the same destination and segments of its size.
    fn joins_last(&mut self, destination: &SocketAddr, datagram: &Range<usize>) -> bool {
        let Some(last) = self.messages[self.next..].last_mut() else {
            return false;
        };
        let length = last.range.len();
        let fits = self.segmentation
            && last.destination == *destination
            && last.range.end == datagram.start
            && length % last.segment == 0
            && datagram.len() <= last.segment
            && length / last.segment < MAX_SEGMENTS
            && length + datagram.len() <= MAX_MESSAGE;
        if fits {
            last.range.end = datagram.end;
        }
        fits
    }
}

impl DatagramSink for Egress {
    fn begin(&mut self) -> usize {
        self.bytes.len()
    }

    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    fn commit(&mut self, destination: &SocketAddr, start: usize) {
        let datagram = start..self.bytes.len();
        if !datagram.is_empty() && !self.joins_last(destination, &datagram) {
            self.messages.push(Outgoing {
                destination: *destination,
                segment: datagram.len(),
                range: datagram,
            });
        }
    }

    fn is_full(&self) -> bool {
        self.bytes.len() >= FULL_BYTES
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn address(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn put(egress: &mut Egress, destination: SocketAddr, datagram: &[u8]) {
        let start = egress.begin();
        egress.buffer().extend_from_slice(datagram);
        egress.commit(&destination, start);
    }

    fn cut(bytes: &[u8], message: &Outgoing) -> Vec<(SocketAddr, Vec<u8>)> {
        bytes[message.range.clone()]
            .chunks(message.segment)
            .map(|d| (message.destination, d.to_vec()))
            .collect()
    }

    #[test]
    fn a_run_to_one_peer_is_one_message_up_to_the_first_shorter_datagram() {
        let mut egress = Egress::new(true);
        for (port, length) in [(1, 100), (1, 100), (1, 60), (1, 60), (1, 61), (2, 61), (1, 61)] {
            put(&mut egress, address(port), &vec![7; length]);
        }
        let shapes: Vec<_> =
            egress.messages.iter().map(|m| (m.destination.port(), m.range.len(), m.segment)).collect();
        assert_eq!(shapes, [(1, 260, 100), (1, 60, 60), (1, 61, 61), (2, 61, 61), (1, 61, 61)]);
    }

    #[test]
    fn messages_stay_within_the_limits_of_the_kernel() {
        for size in [1, 1_200, 1_472, 9_000, 32_753, 65_507] {
            let mut egress = Egress::new(true);
            (0..200).for_each(|_| put(&mut egress, address(1), &vec![7; size]));
            let datagrams: usize = egress.messages.iter().map(|m| m.range.len() / m.segment).sum();
            assert_eq!(datagrams, 200);
            let most = (MAX_MESSAGE / size).min(MAX_SEGMENTS);
            assert_eq!(egress.messages.len(), 200usize.div_ceil(most));
            assert!(egress.messages.iter().all(|m| m.range.len() <= MAX_MESSAGE));
        }
    }

    /// Whatever the socket answers: each datagram leaves once, in order, or is counted as dropped.
    #[test]
    fn nothing_is_lost_repeated_or_reordered() {
        for seed in 0..500 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let (mut egress, counters) = (Egress::new(true), Counters::default());
            let (mut offered, mut sent, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
            for id in 0..rng.random_range(1..200u32) {
                let length = if rng.random_bool(0.7) { 40 } else { rng.random_range(4..60) };
                let mut datagram = vec![0; length];
                datagram[..4].copy_from_slice(&id.to_be_bytes());
                let destination = address(rng.random_range(1..3));
                put(&mut egress, destination, &datagram);
                offered.push((destination, datagram));
            }
            while !flush_somehow(&mut egress, &counters, &mut rng, &mut sent, &mut dropped) {}
            assert!(egress.is_empty());
            let mut both: Vec<_> = sent.iter().chain(&dropped).cloned().collect();
            both.sort_by(|a, b| a.1[..4].cmp(&b.1[..4]));
            assert_eq!(both, offered, "seed {seed}");
            assert!(sent.is_sorted_by_key(|(_, datagram)| datagram[..4].to_vec()), "seed {seed}");
            let counted = [&counters.send_too_large, &counters.send_refused, &counters.send_unreachable];
            let counted: u64 = counted.iter().map(|c| c.load(Ordering::Relaxed)).sum();
            assert_eq!(counted, dropped.len() as u64, "seed {seed}");
        }
    }

    fn flush_somehow(
        egress: &mut Egress,
        counters: &Counters,
        rng: &mut SmallRng,
        sent: &mut Vec<(SocketAddr, Vec<u8>)>,
        dropped: &mut Vec<(SocketAddr, Vec<u8>)>,
    ) -> bool {
        let flushed = egress.flush(counters, |bytes, messages| {
            let error = match rng.random_range(0..10) {
                0 => SendError::Blocked,
                1 => SendError::TooLarge,
                2 => SendError::Refused,
                3 => SendError::Unreachable,
                _ => {
                    let count = rng.random_range(1..=messages.len());
                    messages[..count].iter().for_each(|m| sent.extend(cut(bytes, m)));
                    return Ok(count);
                }
            };
            let is_dropped = match error {
                SendError::Unreachable => true,
                SendError::TooLarge | SendError::Refused => !messages[0].is_segmented(),
                SendError::Blocked | SendError::Dead(_) => false,
            };
            if is_dropped {
                dropped.extend(cut(bytes, &messages[0]));
            }
            Err(error)
        });
        flushed.expect("no fatal error was offered")
    }

    #[test]
    fn segmentation_is_given_up_where_only_the_pieces_go() {
        let (mut egress, counters) = (Egress::new(true), Counters::default());
        (0..3).for_each(|_| put(&mut egress, address(1), &[7; 50]));
        let picky = |_: &[u8], messages: &[Outgoing]| {
            if messages[0].is_segmented() { Err(SendError::Refused) } else { Ok(1) }
        };
        assert!(egress.flush(&counters, picky).is_ok_and(|all| all));
        (0..3).for_each(|_| put(&mut egress, address(1), &[7; 50]));
        assert_eq!(egress.messages.len(), 3);
        assert_eq!(counters.send_refused.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn segmentation_is_kept_where_the_destination_is_to_blame() {
        let (mut egress, counters) = (Egress::new(true), Counters::default());
        (0..3).for_each(|_| put(&mut egress, address(0), &[7; 50]));
        assert!(egress.flush(&counters, |_, _| Err(SendError::Refused)).is_ok_and(|all| all));
        assert_eq!(counters.send_refused.load(Ordering::Relaxed), 3);
        (0..3).for_each(|_| put(&mut egress, address(1), &[7; 50]));
        assert_eq!(egress.messages.len(), 1);
    }

    #[test]
    fn the_end_of_the_socket_is_an_error() {
        let (mut egress, counters) = (Egress::new(true), Counters::default());
        put(&mut egress, address(1), &[7; 50]);
        let dead = |_: &[u8], _: &[Outgoing]| Err(SendError::Dead(io::Error::from_raw_os_error(libc::EBADF)));
        assert!(egress.flush(&counters, dead).is_err());
    }
}
