//! A datagram, as a view of the received bytes (§2.2).

use super::Malformed;
use super::packets::{PacketGroup, Packets};
use super::reader::{MAX_DEPTH, Reader};
use super::view::Header;
use crate::schema::datagram;
use crate::wire::layout::Mask;

/// A datagram that is completely valid.
#[derive(Debug)]
pub struct DatagramView<'a> {
    pub header: Header<'a>,
    bytes: &'a [u8],
    packets: Vec<PacketGroup<'a>>,
    count: usize,
}

/// Memory for the views of a datagram's packets.
#[derive(Debug, Default)]
pub struct ViewBuffer(Vec<PacketGroup<'static>>);

/// The memory with which successive datagrams are read.
///
/// Two buffers are used in turn: the one that was put back last is still on its way to the cache, and using
/// it at once would wait for that.
#[derive(Debug, Default)]
pub struct ViewBuffers {
    view_buffers: [ViewBuffer; 2],
    next: usize,
    pub mask: Mask,
}

/// The most views for which memory is kept: as many as there are small messages in a datagram.
const MOST_ROOM: usize = 256;

impl ViewBuffers {
    pub fn take(&mut self) -> ViewBuffer {
        self.next ^= 1;
        std::mem::take(&mut self.view_buffers[self.next])
    }

    /// Puts back the buffer that was taken last.
    pub fn put_back(&mut self, room: ViewBuffer) {
        self.view_buffers[self.next] = room;
    }
}

impl<'a> DatagramView<'a> {
    /// Accepts exactly what a conforming protobuf parser accepts. Everything is checked here, so no method of
    /// the view can fail.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut view = Self::unread(bytes, ViewBuffer::default());
        view.read(&mut Mask::default()).map(|()| view)
    }

    /// A datagram that is not parsed yet, with the memory for its view.
    #[inline]
    pub fn unread(bytes: &'a [u8], ViewBuffer(packets): ViewBuffer) -> Self {
        Self { header: Header::default(), bytes, packets, count: 0 }
    }

    /// As [`Self::parse`]. After an error only the view's memory may be used.
    pub fn read(&mut self, mask: &mut Mask) -> Result<(), Malformed> {
        let bytes = self.bytes;
        let mut reader = Reader::new(bytes, MAX_DEPTH);
        let mut headers = None;
        loop {
            let start = bytes.len() - reader.left();
            match reader.tag()? {
                None => return Ok(()),
                Some(datagram::PACKETS) => {
                    let message = reader.message()?;
                    let field = &bytes[start..bytes.len() - reader.left()];
                    // Parsed in place, because a view is too large to be moved for each packet.
                    self.packets.push(PacketGroup::unread(message.rest(), field));
                    if let Some((grouped, others)) = self.packets.split_last_mut() {
                        grouped.read(message)?;
                        grouped.follow(others.last());
                        reader.pass(grouped.extend(&bytes[start..], mask));
                        self.count += grouped.len();
                    }
                }
                Some(datagram::HEADER) => {
                    self.header.merge(reader.message()?)?;
                    let first = *headers.get_or_insert(start);
                    if let Some(ack) = &mut self.header.ack {
                        ack.set_headers(&bytes[first..bytes.len() - reader.left()]);
                    }
                }
                Some(tag) => reader.skip(tag)?,
            }
        }
    }

    /// The memory, for the view of the next datagram.
    pub fn into_buffer(self) -> ViewBuffer {
        let mut packets = self.packets;
        packets.clear();
        packets.shrink_to(MOST_ROOM);
        // No elements are left to convert. Only the memory is reused, in place.
        ViewBuffer(packets.into_iter().map(|_| PacketGroup::unread(&[], &[])).collect())
    }

    pub fn packets(&self) -> Packets<'a, '_> {
        Packets::new(self.bytes, &self.packets, self.count)
    }

    /// Whether it contains more than a header and padding, and so must be acknowledged (§3.2).
    pub fn has_packets(&self) -> bool {
        self.count > 0
    }
}
