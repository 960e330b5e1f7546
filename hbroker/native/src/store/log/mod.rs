//! The log: records one after the other, in files of about the same size, the segments.
//!
//! A *position* is the number of bytes in the log before a record. It never changes, also if the segment is
//! rewritten without the records that nobody needs any more: the others keep their positions (as offsets in a
//! compacted log of Kafka do). So nothing that refers to a record has to be changed.
//!
//! Records are appended to a buffer, written, and synced, in this order: `synced <= written <= end`. A new
//! segment begins only after the one before it is synced. Some records are marks, which say how far the log
//! had been synced when they were written. So after a crash it is known which bytes were promised: damage
//! below the highest mark is reported, and everything from the first damage above it is cut off (`opening`).
//! `segment` has the segments as bytes.

pub mod opening;
pub mod segment;

use std::collections::BTreeMap;
use std::io;

use crate::broken::Defect;
use crate::store::disk::Disk;
use crate::store::log::segment::{Damage, HEADER, TRAILER, header, name_of, parse_table, table_bytes, walk};
use crate::store::record::{self, HEAD, Kind, LONGEST};

/// The memory for records that are not written yet is kept up to this size.
const MOST_KEPT: usize = 4 << 20;
/// How many bytes are read at once.
const WINDOW: usize = 256 << 10;
/// The distance in bytes of the entries in the table of a rewritten segment.
const TABLE_STEP: u64 = 32 << 10;

/// The log of one store.
pub struct Log<D> {
    disk: D,
    /// When a segment has so many bytes, the next one begins.
    segment_bytes: u64,
    /// By their bases. The last one is the one that is written to.
    segments: BTreeMap<u64, Segment>,
    /// The records from `written` on.
    unwritten: Vec<u8>,
    written: u64,
    synced: u64,
    window: Window,
}

#[derive(Debug)]
struct Segment {
    /// The position after its last record.
    end: u64,
    /// The bytes of its file.
    bytes: u64,
    /// `None`: it is plain.
    rewritten: Option<Table>,
}

/// Where some records of a rewritten segment are. `None`: it was not read yet.
type Table = Option<Vec<(u64, u64)>>;

/// What was read last.
#[derive(Debug, Default)]
struct Window {
    base: u64,
    offset: u64,
    /// The buffer, and how many bytes in it were read.
    bytes: Vec<u8>,
    length: usize,
}

/// Why a record cannot be read.
#[derive(Debug)]
pub enum Unreadable {
    Damaged(Damage),
    Failed(io::Error),
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// A rewriting of adjacent segments that is under way.
pub struct Rewriting {
    base: u64,
    end: u64,
    /// The next record to be looked at: the base of its segment, and the offset in the file.
    next: (u64, u64),
    file: String,
    written: u64,
    table: Vec<(u64, u64)>,
}

impl<D: Disk> Log<D> {
    /// Calls `each` with the intact records from a position on that were not rewritten.
    ///
    /// # Errors
    /// The disk fails.
    pub fn scan(&self, from: u64, mut each: impl FnMut(Kind, &[u8])) -> io::Result<()> {
        let plain =
            self.segments.iter().filter(|(_, segment)| segment.end > from && segment.rewritten.is_none());
        for (&base, _) in plain {
            // What is damaged is reported by those who need it.
            _ = walk(&self.read_whole(base)?, base, from, |_, kind, body| each(kind, body));
        }
        Ok(())
    }

    /// Appends records that have no check yet, as a [`record::Batch`] has them. `each` is called with each of
    /// them and its position.
    pub fn append(&mut self, mut records: &[u8], mut each: impl FnMut(u64, Kind, &[u8])) {
        while let Some((kind, body, rest)) = record::split(records) {
            let (position, start) = (self.end(), self.unwritten.len());
            self.unwritten.extend_from_slice(&records[..HEAD + body.len()]);
            record::add_check(&mut self.unwritten[start..], position);
            each(position, kind, body);
            records = rest;
        }
        debug_assert!(records.is_empty(), "a batch contains whole records");
    }

    /// Begins the next segment, if the last one is large enough and everything is written. If no segment can be
    /// begun, the last one gets longer.
    ///
    /// # Errors
    /// As [`Self::sync`].
    pub fn roll(&mut self) -> io::Result<()> {
        if self.unwritten.is_empty() && self.written - self.last_base() >= self.segment_bytes {
            self.sync()?;
            _ = self.begin_segment(self.written);
        }
        Ok(())
    }

    /// Begins a new segment, unless the last one is empty. Everything is written.
    ///
    /// # Errors
    /// As [`Self::sync`], and if the disk is full.
    pub fn end_segment(&mut self) -> io::Result<()> {
        self.sync()?;
        if self.written > self.last_base() { self.begin_segment(self.written) } else { Ok(()) }
    }

    /// The base of the segment that is written to.
    pub fn last_base(&self) -> u64 {
        *self.segments.last_key_value().expect("there always is one").0
    }

    /// Writes what was appended. If that fails, it can be tried again.
    ///
    /// # Errors
    /// The disk fails, or is full.
    pub fn write(&mut self) -> io::Result<()> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let (&base, segment) = self.segments.iter_mut().next_back().expect("there always is one");
        let offset = HEADER + self.written - base;
        self.disk.write(&name_of(base), offset, &self.unwritten)?;
        self.written += self.unwritten.len() as u64;
        segment.end = self.written;
        segment.bytes = HEADER + self.written - base;
        self.unwritten.clear();
        self.unwritten.shrink_to(MOST_KEPT);
        Ok(())
    }

    /// Returns when everything that was written would survive a loss of power.
    ///
    /// # Errors
    /// The disk fails. Then it is not known what is on it, and the log must not be used any more.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.synced < self.written {
            let result = self.disk.sync(&name_of(self.last_base()));
            if !Defect::IgnoresSyncErrors.is_present() {
                result?;
            }
            self.synced = self.written;
        }
        Ok(())
    }

    /// Calls `with` with the record at a position.
    ///
    /// # Errors
    /// The record is not intact, or the disk fails.
    pub fn read<R>(&mut self, position: u64, with: impl FnOnce(Kind, &[u8]) -> R) -> Result<R, Unreadable> {
        if position >= self.written {
            let start = (position - self.written) as usize;
            let (kind, body, _) = self
                .unwritten
                .get(start..)
                .and_then(record::split)
                .ok_or_else(|| Unreadable::Damaged(Damage::at(self.written, 0, position)))?;
            return Ok(with(kind, body));
        }
        let (base, offset) = self.place_of(position)?;
        let bytes = self.record_at(base, offset, position)?;
        let (kind, body, _) = record::split(bytes).expect("it is intact");
        Ok(with(kind, body))
    }

    /// The positions at which segments begin, their ends, and the bytes of their files.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = (u64, u64, u64)> + '_ {
        self.segments.iter().map(|(base, segment)| (*base, segment.end, segment.bytes))
    }

    /// The base of the segment of a position; that of the first one, if the position is before all.
    pub fn segment_of(&self, position: u64) -> u64 {
        let before = self.segments.range(..=position).next_back();
        before.or_else(|| self.segments.first_key_value()).map_or(0, |(base, _)| *base)
    }

    /// Removes a segment that is not written to any more.
    ///
    /// # Errors
    /// The disk fails.
    pub fn remove(&mut self, base: u64) -> io::Result<()> {
        debug_assert_ne!(self.last_base(), base);
        self.disk.remove(&name_of(base))?;
        self.segments.remove(&base);
        Ok(())
    }

    /// The position after the last record.
    pub fn end(&self) -> u64 {
        self.written + self.unwritten.len() as u64
    }

    /// Whether everything that was appended is written.
    pub fn is_written(&self) -> bool {
        self.unwritten.is_empty()
    }

    /// Whether everything that was written would survive a loss of power.
    pub fn is_synced(&self) -> bool {
        self.synced == self.written
    }

    /// Everything before this position would survive a loss of power.
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// The record at a position is not what it should be.
    pub fn damage_at(&self, position: u64) -> Damage {
        let base = self.segment_of(position);
        Damage::at(base, HEADER + position.saturating_sub(base), position)
    }

    /// The bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.bytes).sum()
    }

    fn begin_segment(&mut self, base: u64) -> io::Result<()> {
        let name = name_of(base);
        self.disk.create(&name)?;
        self.disk.write(&name, 0, &header(base, 0))?;
        self.disk.sync(&name)?;
        self.disk.sync_folder()?;
        self.segments.insert(base, Segment { end: base, bytes: HEADER, rewritten: None });
        self.written = base;
        Ok(())
    }

    fn read_whole(&self, base: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read_segment(base, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads all bytes of the segment at `base` into a buffer. Memory that the buffer has is used again: for one as
    /// large as this the system would have to find pages each time.
    ///
    /// # Errors
    /// The disk fails.
    pub fn read_segment(&self, base: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
        bytes.resize(self.segments[&base].bytes as usize, 0);
        let read = self.disk.read(&name_of(base), 0, bytes)?;
        bytes.truncate(read);
        Ok(())
    }

    /// Where a record is that was written: the base of its segment, and the offset in the file.
    fn place_of(&mut self, position: u64) -> Result<(u64, u64), Unreadable> {
        let base = self.segment_of(position);
        let lost = || Unreadable::Damaged(Damage::at(base, 0, position));
        let contains = |segment: &&Segment| (base..segment.end).contains(&position);
        let segment = self.segments.get(&base).filter(contains).ok_or_else(lost)?;
        if segment.rewritten.is_none() {
            return Ok((base, HEADER + position - base));
        }
        let table = self.table(base)?;
        let after = table.partition_point(|(known, _)| *known <= position);
        let &(_, mut offset) = after.checked_sub(1).and_then(|at| table.get(at)).ok_or_else(lost)?;
        loop {
            let known = u64::from_le_bytes(self.bytes_at(base, offset, 8)?.try_into().expect("8 bytes"));
            if known == position {
                return Ok((base, offset + 8));
            }
            let length = record::length_of(self.bytes_at(base, offset + 8, HEAD)?);
            match length.filter(|_| known < position) {
                Some(length) => offset += 8 + length as u64,
                None => return Err(lost()),
            }
        }
    }

    /// The intact record at this offset of a segment.
    fn record_at(&mut self, base: u64, offset: u64, position: u64) -> Result<&[u8], Unreadable> {
        let damaged = || Unreadable::Damaged(Damage::at(base, offset, position));
        let length = record::length_of(self.bytes_at(base, offset, HEAD)?).ok_or_else(damaged)?;
        let bytes = self.bytes_at(base, offset, length)?;
        if record::is_intact(bytes, position) { Ok(bytes) } else { Err(damaged()) }
    }

    /// Bytes of a segment's file, read with those that follow them.
    fn bytes_at(&mut self, base: u64, offset: u64, count: usize) -> Result<&[u8], Unreadable> {
        let Window { base: known, offset: first, bytes, length } = &mut self.window;
        let is_here = *known == base && *first <= offset && offset + count as u64 <= *first + *length as u64;
        if !is_here {
            (*known, *first, *length) = (base, offset, 0);
            if bytes.len() < count.max(WINDOW) {
                bytes.resize(count.max(WINDOW), 0);
            }
            *length = self.disk.read(&name_of(base), offset, bytes)?;
            if *length < count {
                return Err(Unreadable::Damaged(Damage::at(base, offset, base)));
            }
        }
        let start = (offset - *first) as usize;
        Ok(&bytes[start..start + count])
    }

    fn table(&mut self, base: u64) -> Result<&Vec<(u64, u64)>, Unreadable> {
        let segment = self.segments.get_mut(&base).expect("the caller has found it");
        let table = segment.rewritten.as_mut().expect("the caller has looked");
        if table.is_none() {
            *table = Some(read_table(&self.disk, base, segment.bytes)?);
        }
        Ok(table.as_ref().expect("it was just read"))
    }
}

/// Rewriting
impl<D: Disk> Log<D> {
    /// Begins to rewrite adjacent segments, from the one at `first` to the one at `last`, into one. None of
    /// them is written to any more.
    ///
    /// # Errors
    /// The disk fails.
    pub fn begin_rewriting(&mut self, first: u64, last: u64) -> io::Result<Rewriting> {
        let end = self.segments[&last].end;
        let file = format!("{first:016x}.new");
        self.disk.create(&file)?;
        self.disk.write(&file, 0, &header(first, end))?;
        Ok(Rewriting { base: first, end, next: (first, HEADER), file, written: HEADER, table: Vec::new() })
    }

    /// Rewrites the next records, which have about `bytes` bytes. `keep` writes into its last argument what is
    /// to be kept of a record, as a record without a check; nothing: the record is not needed any more. True:
    /// that was all.
    ///
    /// # Errors
    /// A record is not intact, or the disk fails. Then the segments stay as they are.
    pub fn rewrite(
        &mut self,
        rewriting: &mut Rewriting,
        bytes: usize,
        mut keep: impl FnMut(u64, Kind, &[u8], &mut Vec<u8>),
    ) -> Result<bool, Unreadable> {
        let (mut out, mut kept, mut looked_at) = (Vec::new(), Vec::new(), 0);
        let is_over = loop {
            let (base, offset) = rewriting.next;
            let Some((position, start)) = self.next_record(base, offset)? else {
                let after = self.segments.range(base + 1..).next().map(|(base, _)| *base);
                match after.filter(|after| *after < rewriting.end) {
                    Some(after) => rewriting.next = (after, HEADER),
                    None => break true,
                }
                continue;
            };
            if looked_at >= bytes {
                break false;
            }
            let record = self.record_at(base, start, position)?;
            let (kind, body, _) = record::split(record).expect("it is intact");
            keep(position, kind, body, &mut kept);
            let length = record.len();
            rewriting.next = (base, start + length as u64);
            looked_at += length;
            if !kept.is_empty() {
                record::add_check(&mut kept, position);
                rewriting.add(position, &kept, &mut out);
                kept.clear();
            }
        };
        self.disk.write(&rewriting.file, rewriting.written, &out)?;
        rewriting.written += out.len() as u64;
        Ok(is_over)
    }

    /// Puts the new segment in place of those that were rewritten.
    ///
    /// # Errors
    /// The disk fails.
    pub fn end_rewriting(&mut self, mut rewriting: Rewriting) -> io::Result<()> {
        let table = rewriting.take_table();
        self.disk.write(&rewriting.file, rewriting.written, &table)?;
        self.disk.sync(&rewriting.file)?;
        let Rewriting { base, end, file, written, .. } = rewriting;
        self.disk.rename(&file, &name_of(base))?;
        let others: Vec<u64> = self.segments.range(base + 1..end).map(|(base, _)| *base).collect();
        let bytes = written + table.len() as u64;
        self.segments.insert(base, Segment { end, bytes, rewritten: Some(None) });
        self.window = Window::default();
        self.disk.sync_folder()?;
        for other in others {
            self.segments.remove(&other);
            // If it cannot be removed now, it is when the log is opened.
            _ = self.disk.remove(&name_of(other));
        }
        Ok(())
    }

    /// Gives a rewriting up. The segments stay as they are.
    pub fn cancel_rewriting(&mut self, rewriting: &Rewriting) {
        // If the file cannot be removed now, it is when the log is opened.
        _ = self.disk.remove(&rewriting.file);
    }

    /// The position of the record at or after this offset of a segment, and where it is. `None`: there is
    /// none.
    fn next_record(&mut self, base: u64, offset: u64) -> Result<Option<(u64, u64)>, Unreadable> {
        let segment = &self.segments[&base];
        if segment.rewritten.is_none() {
            let position = base + offset - HEADER;
            return Ok((position < segment.end).then_some((position, offset)));
        }
        let bytes = segment.bytes;
        let table = self.table(base)?.len() as u64 * 16 + TRAILER as u64;
        if offset + table >= bytes {
            return Ok(None);
        }
        let position = u64::from_le_bytes(self.bytes_at(base, offset, 8)?.try_into().expect("8 bytes"));
        Ok(Some((position, offset + 8)))
    }
}

impl Rewriting {
    /// Where the segments begin, and where they end.
    pub fn range(&self) -> (u64, u64) {
        (self.base, self.end)
    }

    /// Whether a position is in one of the segments.
    pub fn contains(&self, position: u64) -> bool {
        (self.base..self.end).contains(&position)
    }

    /// Adds a record.
    fn add(&mut self, position: u64, record: &[u8], out: &mut Vec<u8>) {
        let offset = self.written + out.len() as u64;
        if self.table.last().is_none_or(|(_, last)| offset - last >= TABLE_STEP) {
            self.table.push((position, offset));
        }
        out.extend_from_slice(&position.to_le_bytes());
        out.extend_from_slice(record);
    }

    fn take_table(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (position, offset) in self.table.drain(..) {
            bytes.extend_from_slice(&position.to_le_bytes());
            bytes.extend_from_slice(&offset.to_le_bytes());
        }
        let count = bytes.len() as u64 / 16;
        bytes.extend_from_slice(&count.to_le_bytes());
        let check = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&check.to_le_bytes());
        bytes
    }
}

fn read_table(disk: &impl Disk, base: u64, bytes: u64) -> Result<Vec<(u64, u64)>, Unreadable> {
    let name = name_of(base);
    let damaged = || Unreadable::Damaged(Damage::at(base, bytes, base));
    let mut trailer = [0; TRAILER];
    let start = bytes.checked_sub(TRAILER as u64).ok_or_else(damaged)?;
    disk.read(&name, start, &mut trailer)?;
    let length = table_bytes(&trailer).filter(|length| HEADER + length <= bytes).ok_or_else(damaged)?;
    let mut table = vec![0; length as usize];
    disk.read(&name, bytes - length, &mut table)?;
    parse_table(&table).ok_or_else(damaged)
}

const _: () = assert!(LONGEST + HEAD < u32::MAX as usize);
