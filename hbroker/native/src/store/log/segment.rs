//! The segments of a log, as bytes.
//!
//! ```text
//! plain segment      header | record | record | ...                                    written to at its end
//! rewritten segment  header | position, record | position, record | ... | table        never changed again
//! ```

use std::fmt;

use crate::store::record::{self, Kind};

/// The bytes before the first record of a segment: magic, base, end (of a rewritten one), check.
pub const HEADER: u64 = 32;
const MAGIC: &[u8; 8] = b"hbroklog";
/// The bytes at the end of a rewritten segment: the number of entries in the table, and its check.
pub const TRAILER: usize = 12;

/// Bytes of the log that are not as they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The name of the segment's file, and the offset in it.
    pub file: String,
    pub offset: u64,
    /// Positions from the first damaged byte to the next intact record.
    pub from: u64,
    pub to: u64,
}

impl fmt::Display for Damage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, from, to } = self;
        write!(out, "{file}: damaged at offset {offset} (positions {from} to {to})")
    }
}

impl Damage {
    /// Damage at one place.
    pub fn at(base: u64, offset: u64, position: u64) -> Self {
        Self { file: name_of(base), offset, from: position, to: position }
    }
}

/// Calls `each` with the intact records of a plain segment from position `from` on. Returns the damage.
pub fn walk(bytes: &[u8], base: u64, from: u64, mut each: impl FnMut(u64, Kind, &[u8])) -> Vec<Damage> {
    let (mut damage, mut offset) = (Vec::new(), (HEADER + from.saturating_sub(base)) as usize);
    while offset < bytes.len() {
        let position = base + offset as u64 - HEADER;
        if let Some(length) = intact(bytes, offset, position) {
            let (kind, body, _) = record::split(&bytes[offset..]).expect("it is intact");
            each(position, kind, body);
            offset += length;
            continue;
        }
        let first = offset;
        let is_next = |at: &usize| intact(bytes, *at, base + *at as u64 - HEADER).is_some();
        offset = (offset + 1..bytes.len()).find(is_next).unwrap_or(bytes.len());
        let (offset, to) = (first as u64, base + offset as u64 - HEADER);
        damage.push(Damage { file: name_of(base), offset, from: position, to });
    }
    damage
}

/// What was found in the bytes of a segment.
pub struct FoundSegment {
    /// Where it ends; for a damaged header, where the file says.
    pub end: u64,
    pub damage: Vec<Damage>,
}

/// Calls `each` with the intact records in all the bytes of a segment, plain or rewritten, and their positions.
pub fn read_segment(bytes: &[u8], base: u64, each: impl FnMut(u64, Kind, &[u8])) -> FoundSegment {
    let plain_end = base + (bytes.len() as u64).saturating_sub(HEADER);
    match bytes.first_chunk().and_then(|header| end_in(header, base)) {
        None => FoundSegment { end: plain_end, damage: vec![Damage::at(base, 0, base)] },
        Some(0) => FoundSegment { end: plain_end, damage: walk(bytes, base, base, each) },
        Some(end) => FoundSegment { end, damage: walk_rewritten(bytes, base, each) },
    }
}

/// Calls `each` with the records of a segment that was read before, and had no damage. No check is computed again.
pub fn read_intact_segment(bytes: &[u8], base: u64, mut each: impl FnMut(u64, Kind, &[u8])) {
    let is_rewritten = bytes.first_chunk().and_then(|header| end_in(header, base)).is_some_and(|end| end > 0);
    let end = if is_rewritten { table_in(bytes).map_or(0, |(_, start)| start) } else { bytes.len() };
    let mut rest = bytes.get(HEADER as usize..end).unwrap_or_default();
    loop {
        let mut position = base + (end - rest.len()) as u64 - HEADER;
        if is_rewritten && let Some((stored, record)) = rest.split_first_chunk() {
            (position, rest) = (u64::from_le_bytes(*stored), record);
        }
        let Some((kind, body, behind)) = record::split(rest) else { return };
        each(position, kind, body);
        rest = behind;
    }
}

/// Calls `each` with the intact records of a rewritten segment. Returns the damage: behind a damaged record the
/// walk goes on at the next entry of the table.
fn walk_rewritten(bytes: &[u8], base: u64, mut each: impl FnMut(u64, Kind, &[u8])) -> Vec<Damage> {
    let Some((table, end)) = table_in(bytes) else {
        return vec![Damage::at(base, bytes.len() as u64, base)];
    };
    let (mut damage, mut offset) = (Vec::new(), HEADER as usize);
    while offset < end {
        let position = bytes[offset..end].first_chunk().map(|position| u64::from_le_bytes(*position));
        let length = position.and_then(|position| intact(&bytes[..end], offset + 8, position));
        if let (Some(position), Some(length)) = (position, length) {
            let (kind, body, _) = record::split(&bytes[offset + 8..]).expect("it is intact");
            each(position, kind, body);
            offset += 8 + length;
            continue;
        }
        let (first, before) = (offset, table.partition_point(|(_, known)| *known <= offset as u64));
        offset = table.get(before).map_or(end, |(_, known)| *known as usize);
        let from = before.checked_sub(1).map_or(base, |before| table[before].0);
        let to = table.get(before).map_or(from, |(position, _)| *position);
        damage.push(Damage { file: name_of(base), offset: first as u64, from, to });
    }
    damage
}

/// The table of a rewritten segment, and where it begins. `None`: it is damaged.
fn table_in(bytes: &[u8]) -> Option<(Vec<(u64, u64)>, usize)> {
    let length = usize::try_from(table_bytes(bytes.last_chunk()?)?).ok()?;
    let start = bytes.len().checked_sub(length).filter(|start| *start >= HEADER as usize)?;
    Some((parse_table(&bytes[start..])?, start))
}

/// The bytes of a table with its trailer. `None`: they are too many.
pub fn table_bytes(trailer: &[u8; TRAILER]) -> Option<u64> {
    let count = u64::from_le_bytes(*trailer.first_chunk()?);
    count.checked_mul(16)?.checked_add(TRAILER as u64)
}

/// The entries of a table with its trailer: a position, and where it is in the file. `None`: it is damaged.
pub fn parse_table(bytes: &[u8]) -> Option<Vec<(u64, u64)>> {
    let (table, check) = bytes.split_last_chunk()?;
    let entries = table.get(..table.len().checked_sub(8)?)?.chunks_exact(16);
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    let entries = entries.map(|entry| (number(&entry[..8]), number(&entry[8..]))).collect();
    (crc32c::crc32c(table).to_le_bytes() == *check).then_some(entries)
}

/// The length of the record at this offset, if it is intact.
fn intact(bytes: &[u8], offset: usize, position: u64) -> Option<usize> {
    let length = record::length_of(bytes.get(offset..)?)?;
    let record = bytes.get(offset..offset.checked_add(length)?)?;
    record::is_intact(record, position).then_some(length)
}

/// The header of a segment. `end`: where it ends; 0: it is plain.
pub fn header(base: u64, end: u64) -> [u8; HEADER as usize] {
    let mut header = [0; HEADER as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..16].copy_from_slice(&base.to_le_bytes());
    header[16..24].copy_from_slice(&end.to_le_bytes());
    let check = crc32c::crc32c(&header[..24]);
    header[24..28].copy_from_slice(&check.to_le_bytes());
    header
}

/// The end in the header of the segment at `base`; 0: it is plain. `None`: the header is not valid.
pub fn end_in(bytes: &[u8; HEADER as usize], base: u64) -> Option<u64> {
    let end = u64::from_le_bytes(bytes[16..24].try_into().expect("8 bytes"));
    (*bytes == header(base, end)).then_some(end)
}

/// The name of a segment's file.
pub fn name_of(base: u64) -> String {
    format!("{base:016x}.log")
}

/// The base in the name of a segment's file. `None`: it is another file.
pub fn base_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}
