//! What is to leave, gathered so that the kernel is asked as seldom as can be.
//!
//! Datagrams lie end to end in one buffer. Those that follow each other to one destination with one length (the last may
//! be shorter) become one message that the kernel cuts up again (UDP_SEGMENT); many messages leave in one `sendmmsg`.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;

use crate::sink::DatagramSink;
use crate::socket::{Counters, Outgoing, SendError, Socket};

/// More than this is not gathered before it is sent: it would fall out of the processor's cache.
const FULL_BYTES: usize = 256 * 1024;
/// The kernel's UDP_MAX_SEGMENTS was 64 before Linux 6.10.
const MAX_SEGMENTS: usize = 64;
/// The largest UDP payload over IPv4.
const MAX_MESSAGE: usize = 65_507;

/// The datagrams of one worker that wait to be sent, in order.
pub struct Egress {
    bytes: Vec<u8>,
    messages: Vec<Outgoing>,
    /// The messages before this one have left.
    next: usize,
    segmentation: bool,
    /// A message that the kernel refused as a whole is being sent in pieces: if these go, segmentation is to blame.
    on_trial: bool,
}

impl Egress {
    /// `segmentation`: the socket can cut messages up ([`Socket::segments`]).
    pub fn new(segmentation: bool) -> Self {
        Self {
            bytes: Vec::with_capacity(FULL_BYTES + MAX_MESSAGE),
            messages: Vec::new(),
            next: 0,
            segmentation,
            on_trial: false,
        }
    }

    /// Sends what the socket takes. False: it takes no more now, the rest waits.
    ///
    /// A datagram that cannot leave (too large, no route, refused) is dropped and counted. An error is the end of the socket.
    pub fn flush(&mut self, socket: &Socket, counters: &Counters) -> io::Result<bool> {
        while self.next < self.messages.len() {
            match socket.send(&self.bytes, &self.messages[self.next..], counters) {
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
                    counters.count_dropped(&error);
                    self.next += 1;
                }
            }
        }
        self.clear();
        Ok(true)
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.messages.clear();
        self.next = 0;
    }

    fn cut_up_next(&mut self) {
        let Outgoing {
            destination,
            range,
            segment,
        } = self.messages[self.next].clone();
        let pieces = range.clone().step_by(segment).map(|start| Outgoing {
            destination,
            range: start..range.end.min(start + segment),
            segment,
        });
        self.messages.splice(self.next..=self.next, pieces);
    }

    /// Makes the datagram part of the last message, if that goes to the same place in segments of its size.
    fn joins_last(&mut self, destination: SocketAddr, datagram: &Range<usize>) -> bool {
        let Some(last) = self.messages[self.next..].last_mut() else {
            return false;
        };
        let length = last.range.len();
        let fits = self.segmentation
            && last.destination == destination
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
    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    fn commit(&mut self, destination: SocketAddr, start: usize) {
        let datagram = start..self.bytes.len();
        if !datagram.is_empty() && !self.joins_last(destination, &datagram) {
            self.messages.push(Outgoing {
                destination,
                segment: datagram.len(),
                range: datagram,
            });
        }
    }

    fn is_full(&self) -> bool {
        self.bytes.len() >= FULL_BYTES
    }
}
