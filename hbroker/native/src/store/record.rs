//! Records of the log, as bytes.
//!
//! ```text
//! check u32 | length of the body u32 | kind u8 | body
//! ```
//!
//! Integers are little-endian. `check` is the CRC32C of the rest of the record, and of the record's position
//! in the log. So a record that an earlier use of the same blocks left behind is not taken for a new one.
//!
//! Workers write records without a check, one after the other, into a [`Batch`]. The log adds the checks.

/// The bytes before the body.
pub const HEAD: usize = 9;
/// The longest body. A longer one is not valid, so a search for the next record after damage is short.
pub const LONGEST: usize = 4 << 20;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A message, and the sessions that wait for it.
    Message = 1,
    /// A session does not wait for these of its messages any more.
    Settled = 2,
    /// A session has ended, and with it its queue.
    Ended = 3,
    /// Everything before a position had been synced when this record was written.
    Synced = 4,
    /// A retained message, or a fragment of one, under a number that no other has.
    Retained = 5,
    /// The messages and fragments under these numbers are not retained any more.
    NotRetained = 6,
    /// These of a session's messages wait at another node now, or under other numbers. The body is that of a [`Kind::Settled`].
    Moved = 7,
    /// What waits in a queue that no session has waits for a session from now on.
    Appended = 8,
}

/// A session that waits for a message. `options`: how it gets the message; bytes that only the engine can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    pub session: u64,
    /// The number of the message in the session's queue, ascending from 1.
    pub number: u64,
    pub options: &'a [u8],
}

/// The body of a [`Kind::Message`].
#[derive(Clone, Copy, Debug)]
pub struct MessageBody<'a> {
    /// When it expires, in microseconds since the Unix epoch; `u64::MAX`: never.
    pub expires: u64,
    targets: &'a [u8],
    pub field: &'a [u8],
}

/// The body of a [`Kind::Settled`] or [`Kind::Moved`].
#[derive(Clone, Copy, Debug)]
pub struct SettledBody<'a> {
    pub session: u64,
    ranges: &'a [u8],
}

/// The body of a [`Kind::Appended`]: the message under the number n in the queue `queue` is the one under `base` + n in
/// the session's queue, behind all that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendedBody {
    pub session: u64,
    pub queue: u64,
    pub base: u64,
}

/// Records of one worker that are not in the log yet.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    /// The targets of a message whose field is known, and that may get more.
    targets: Vec<u8>,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        let kinds = [Self::Message, Self::Settled, Self::Ended, Self::Synced];
        let others = [Self::Retained, Self::NotRetained, Self::Moved, Self::Appended];
        kinds.into_iter().chain(others).find(|kind| *kind as u8 == byte)
    }
}

impl Batch {
    /// Adds a session that waits for the next message.
    pub fn add_target(&mut self, target: Target<'_>) {
        let Target { session, number, options } = target;
        self.targets.extend_from_slice(&session.to_le_bytes());
        put_varint(&mut self.targets, number);
        put_varint(&mut self.targets, options.len() as u64);
        self.targets.extend_from_slice(options);
    }

    /// The number of bytes of the targets of the next message.
    pub fn target_bytes(&self) -> usize {
        self.targets.len()
    }

    /// Adds the message for the targets so far.
    pub fn add_message(&mut self, expires: u64, field: &[u8]) {
        let targets = std::mem::take(&mut self.targets);
        let start = self.begin(Kind::Message);
        self.bytes.extend_from_slice(&expires.to_le_bytes());
        put_varint(&mut self.bytes, targets.len() as u64);
        self.bytes.extend_from_slice(&targets);
        self.bytes.extend_from_slice(field);
        self.end(start);
        self.targets = targets;
        self.targets.clear();
    }

    /// Adds that a session does not wait for the messages in these ranges any more, each from the first to
    /// the last number, ascending.
    pub fn add_settled(&mut self, session: u64, ranges: impl IntoIterator<Item = (u64, u64)>) {
        self.add_ranges(Kind::Settled, session, ranges);
    }

    /// Adds that the messages in these ranges wait at another node now.
    pub fn add_moved(&mut self, session: u64, ranges: impl IntoIterator<Item = (u64, u64)>) {
        self.add_ranges(Kind::Moved, session, ranges);
    }

    fn add_ranges(&mut self, kind: Kind, session: u64, ranges: impl IntoIterator<Item = (u64, u64)>) {
        let start = self.begin(kind);
        self.bytes.extend_from_slice(&session.to_le_bytes());
        self.put_ranges(ranges);
        self.end(start);
    }

    /// Adds a retained message, or a fragment of one.
    pub fn add_retained(&mut self, number: u64, field: &[u8]) {
        let start = self.begin(Kind::Retained);
        self.bytes.extend_from_slice(&number.to_le_bytes());
        self.bytes.extend_from_slice(field);
        self.end(start);
    }

    /// Adds that the messages and fragments in these ranges are not retained any more. The ranges are as those
    /// of [`Self::add_settled`].
    pub fn add_not_retained(&mut self, ranges: impl IntoIterator<Item = (u64, u64)>) {
        let start = self.begin(Kind::NotRetained);
        self.put_ranges(ranges);
        self.end(start);
    }

    /// Adds that a session has ended.
    pub fn add_ended(&mut self, session: u64) {
        let start = self.begin(Kind::Ended);
        self.bytes.extend_from_slice(&session.to_le_bytes());
        self.end(start);
    }

    /// Adds that a queue is the end of a session's queue now.
    pub fn add_appended(&mut self, appended: AppendedBody) {
        let AppendedBody { session, queue, base } = appended;
        let start = self.begin(Kind::Appended);
        [session, queue, base].iter().for_each(|number| self.bytes.extend_from_slice(&number.to_le_bytes()));
        self.end(start);
    }

    /// Adds that everything before `position` is synced.
    pub fn add_synced(&mut self, position: u64) {
        let start = self.begin(Kind::Synced);
        self.bytes.extend_from_slice(&position.to_le_bytes());
        self.end(start);
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes the records out.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Keeps at most this much memory for what comes next. It must be empty.
    pub fn shrink_to(&mut self, bytes: usize) {
        self.bytes.shrink_to(bytes);
    }

    fn put_ranges(&mut self, ranges: impl IntoIterator<Item = (u64, u64)>) {
        let mut before = 0;
        for (first, last) in ranges {
            put_varint(&mut self.bytes, first - before);
            put_varint(&mut self.bytes, last - first);
            before = last;
        }
    }

    fn begin(&mut self, kind: Kind) -> usize {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; HEAD - 1]);
        self.bytes.push(kind as u8);
        start
    }

    fn end(&mut self, start: usize) {
        let length = u32::try_from(self.bytes.len() - start - HEAD).expect("a record has at most 4 GiB");
        self.bytes[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
    }
}

/// The length of the record at the beginning of these bytes, if they contain its head, and it can be one.
pub fn length_of(bytes: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?) as usize;
    (length <= LONGEST && Kind::from_byte(*bytes.get(8)?).is_some()).then_some(HEAD + length)
}

/// The first record in these bytes, without looking at its check; and the bytes after it.
pub fn split(bytes: &[u8]) -> Option<(Kind, &[u8], &[u8])> {
    let length = length_of(bytes)?;
    Some((Kind::from_byte(bytes[8])?, bytes.get(HEAD..length)?, &bytes[length..]))
}

/// Adds the check to a whole record that lies at `position`.
pub fn add_check(record: &mut [u8], position: u64) {
    let check = check_of(record, position);
    record[..4].copy_from_slice(&check.to_le_bytes());
}

/// Whether the check of a whole record at `position` is right.
pub fn is_intact(record: &[u8], position: u64) -> bool {
    record[..4] == check_of(record, position).to_le_bytes()
}

fn check_of(record: &[u8], position: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&position.to_le_bytes()), &record[4..])
}

impl<'a> MessageBody<'a> {
    /// `None`: the body is not valid.
    pub fn parse(body: &'a [u8]) -> Option<Self> {
        let (expires, mut rest) = split_u64(body)?;
        let length = usize::try_from(take_varint(&mut rest)?).ok()?;
        let (targets, field) = rest.split_at_checked(length)?;
        Some(Self { expires, targets, field })
    }

    /// The sessions that wait for it. Ends where the bytes are not valid.
    pub fn targets(&self) -> impl Iterator<Item = Target<'a>> + use<'a> {
        let mut rest = self.targets;
        std::iter::from_fn(move || {
            let session = take_u64(&mut rest)?;
            let number = take_varint(&mut rest)?;
            let length = usize::try_from(take_varint(&mut rest)?).ok()?;
            let (options, after) = rest.split_at_checked(length)?;
            rest = after;
            Some(Target { session, number, options })
        })
    }
}

impl<'a> SettledBody<'a> {
    /// `None`: the body is not valid.
    pub fn parse(body: &'a [u8]) -> Option<Self> {
        let (session, ranges) = split_u64(body)?;
        Some(Self { session, ranges })
    }

    /// The ranges of numbers, from first to last, ascending. Ends where the bytes are not valid.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        ranges_in(self.ranges)
    }
}

impl AppendedBody {
    /// `None`: the body is not valid.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let (session, rest) = split_u64(body)?;
        let (queue, rest) = split_u64(rest)?;
        let (base, _) = split_u64(rest)?;
        Some(Self { session, queue, base })
    }
}

/// The number and the field in the body of a [`Kind::Retained`].
pub fn retained_of(body: &[u8]) -> Option<(u64, &[u8])> {
    split_u64(body)
}

/// The ranges in the body of a [`Kind::NotRetained`], from first to last, ascending. Ends where the bytes are
/// not valid.
pub fn ranges_in(bytes: &[u8]) -> impl Iterator<Item = (u64, u64)> + use<'_> {
    let (mut rest, mut before) = (bytes, 0u64);
    std::iter::from_fn(move || {
        let first = before.checked_add(take_varint(&mut rest)?)?;
        let last = first.checked_add(take_varint(&mut rest)?)?;
        before = last;
        Some((first, last))
    })
}

/// The number in the body of a [`Kind::Ended`] or [`Kind::Synced`].
pub fn number_of(body: &[u8]) -> Option<u64> {
    split_u64(body).map(|(number, _)| number)
}

pub fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number off the beginning. `None`: there is none.
pub fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for (at, &byte) in bytes.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            *bytes = &bytes[at + 1..];
            return Some(number);
        }
    }
    None
}

/// Takes 8 bytes off the beginning.
pub fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = split_u64(bytes)?;
    *bytes = rest;
    Some(number)
}

fn split_u64(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_were_written() {
        let mut batch = Batch::default();
        let targets = [
            Target { session: 7, number: 1, options: &[1] },
            Target { session: u64::MAX, number: 1 << 40, options: b"group" },
        ];
        targets.into_iter().for_each(|target| batch.add_target(target));
        batch.add_message(9, b"field");
        batch.add_settled(7, [(1, 1), (3, 900), (902, 902)]);
        batch.add_ended(8);
        batch.add_synced(1 << 33);
        batch.add_retained(3, b"kept");
        batch.add_not_retained([(1, 2), (5, 5)]);
        batch.add_moved(7, [(4, 4)]);
        let appended = AppendedBody { session: 7, queue: u64::MAX, base: 9 };
        batch.add_appended(appended);
        let (kind, body, rest) = split(batch.bytes()).unwrap();
        let message = MessageBody::parse(body).unwrap();
        assert_eq!((kind, message.expires, message.field), (Kind::Message, 9, &b"field"[..]));
        assert!(message.targets().eq(targets));
        let (kind, body, rest) = split(rest).unwrap();
        let settled = SettledBody::parse(body).unwrap();
        assert_eq!((kind, settled.session), (Kind::Settled, 7));
        assert!(settled.ranges().eq([(1, 1), (3, 900), (902, 902)]));
        let (kind, body, rest) = split(rest).unwrap();
        assert_eq!((kind, number_of(body)), (Kind::Ended, Some(8)));
        let (kind, body, rest) = split(rest).unwrap();
        assert_eq!((kind, number_of(body)), (Kind::Synced, Some(1 << 33)));
        let (kind, body, rest) = split(rest).unwrap();
        assert_eq!((kind, retained_of(body)), (Kind::Retained, Some((3, &b"kept"[..]))));
        let (kind, body, rest) = split(rest).unwrap();
        assert_eq!(kind, Kind::NotRetained);
        assert!(ranges_in(body).eq([(1, 2), (5, 5)]));
        let (kind, body, rest) = split(rest).unwrap();
        assert_eq!(kind, Kind::Moved);
        assert!(SettledBody::parse(body).unwrap().ranges().eq([(4, 4)]));
        let (kind, body, rest) = split(rest).unwrap();
        assert_eq!((kind, rest.len()), (Kind::Appended, 0));
        assert_eq!(AppendedBody::parse(body), Some(appended));
        assert_eq!(AppendedBody::parse(&body[1..]), None);
    }

    #[test]
    fn a_check_covers_every_bit_and_the_position() {
        let mut batch = Batch::default();
        batch.add_ended(8);
        let mut record = batch.take();
        add_check(&mut record, 40);
        assert!(is_intact(&record, 40) && !is_intact(&record, 41));
        for bit in 0..8 * record.len() {
            record[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_intact(&record, 40), "bit {bit}");
            record[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn cut_bytes_are_no_record() {
        let mut batch = Batch::default();
        batch.add_target(Target { session: 7, number: 300, options: &[1] });
        batch.add_message(9, b"");
        for end in 0..batch.bytes().len() {
            assert!(split(&batch.bytes()[..end]).is_none(), "{end}");
        }
        let (_, body, _) = split(batch.bytes()).unwrap();
        for end in 0..body.len() {
            let targets = MessageBody::parse(&body[..end]).map_or(0, |message| message.targets().count());
            assert_eq!(targets, 0, "{end}");
        }
    }
}
