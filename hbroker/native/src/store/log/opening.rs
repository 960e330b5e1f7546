//! The beginning of a run: which segments there are, and what is intact in them.
//!
//! 1. [`Log::open`] finds the segments. It refuses an index that is older than the log.
//! 2. [`Log::recover`] reads the records since the last checkpoint. What a mark promises and is not there is
//!    damage; everything from the first damage above the marks is cut off.
//! 3. [`Log::skip_to`] goes on at the checkpoint, if the log ends before it.

use std::collections::BTreeMap;
use std::io;

use crate::store::disk::Disk;
use crate::store::log::segment::{Damage, HEADER, base_of, end_in, name_of, walk};
use crate::store::log::{Log, Segment, Window};
use crate::store::record::{self, Kind};

const WITHOUT_INDEX: &str = "the store's index is missing, empty or older than its log, or files of the log are missing: put \
    back the files that belong together, or restore a backup";

/// The end of the name of a segment with a damaged header, which is kept aside.
const DAMAGED: &str = ".damaged";

/// What was found when a log was opened.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    pub damage: Vec<Damage>,
    /// The number of bytes that were cut off at the end. Nothing was promised that rests on them.
    pub cut: u64,
}

impl<D: Disk> Log<D> {
    /// Opens the log on a disk. If there is none, it begins at position 0. What is after the checkpoint has to be
    /// recovered before anything is appended.
    ///
    /// # Errors
    /// The disk fails, or the checkpoint does not belong to this log. Then nothing has changed.
    pub fn open(disk: D, segment_bytes: u64, checkpoint: u64) -> io::Result<(Self, Vec<Damage>)> {
        let mut log = Self {
            disk,
            segment_bytes,
            segments: BTreeMap::new(),
            unwritten: Vec::new(),
            written: 0,
            synced: 0,
            window: Window::default(),
        };
        if log.lacks_records_above(checkpoint)? {
            return Err(io::Error::new(io::ErrorKind::NotFound, WITHOUT_INDEX));
        }
        let damage = log.find_segments()?;
        match log.segments.last_key_value() {
            Some((_, last)) if last.rewritten.is_none() => {
                log.written = last.end;
            }
            Some((_, last)) => {
                let end = last.end;
                log.begin_segment(end)?;
            }
            None => log.begin_segment(0)?,
        }
        log.synced = log.written;
        Ok((log, damage))
    }

    /// Calls `each` with the intact records from `from` on, by position. Cuts a torn end off, and syncs the rest.
    ///
    /// # Errors
    /// The disk fails.
    pub fn recover(&mut self, from: u64, mut each: impl FnMut(u64, Kind, &[u8])) -> io::Result<Recovered> {
        let bases: Vec<u64> =
            self.segments.iter().filter(|(_, segment)| segment.end > from).map(|(base, _)| *base).collect();
        let (mut damage, mut mark, mut next) = (Vec::new(), from, from);
        for &base in &bases {
            if next < base {
                damage.push(Damage { file: name_of(base), offset: 0, from: next, to: base });
            }
            next = self.segments[&base].end;
            let bytes = self.read_whole(base)?;
            damage.extend(walk(&bytes, base, from, |_, kind, body| {
                if kind == Kind::Synced {
                    mark = mark.max(record::number_of(body).unwrap_or(0));
                }
            }));
        }
        let cut = damage.iter().map(|damage| damage.from).find(|start| *start >= mark);
        let end = self.written;
        if let Some(cut) = cut {
            damage.retain(|damage| damage.from < cut);
            self.cut(cut)?;
        }
        self.write_again(mark)?;
        for &base in bases.iter().filter(|base| cut.is_none_or(|cut| **base < cut)) {
            let bytes = self.read_whole(base)?;
            _ = walk(&bytes, base, from, &mut each);
        }
        Ok(Recovered { damage, cut: end - self.written })
    }

    /// Goes on at a position, if the log ends before it: the records up to there were lost.
    ///
    /// # Errors
    /// The disk fails.
    pub fn skip_to(&mut self, position: u64) -> io::Result<Option<Damage>> {
        let end = self.written;
        if end >= position {
            return Ok(None);
        }
        self.begin_segment(position)?;
        self.synced = self.written;
        Ok(Some(Damage { file: name_of(position), offset: 0, from: end, to: position }))
    }

    /// Whether records were removed from the log, by removing or rewriting segments, that a checkpoint up to this position
    /// does not account for. (A segment with a damaged header is there, under another name.)
    ///
    /// # Errors
    /// The disk fails.
    pub fn lacks_records_above(&self, checkpoint: u64) -> io::Result<bool> {
        let mut ranges = Vec::new();
        for (name, bytes) in self.disk.list()? {
            let end_of_plain = |base| base + bytes.saturating_sub(HEADER);
            if let Some(base) = name.strip_suffix(DAMAGED).and_then(base_of) {
                ranges.push((base, end_of_plain(base), false));
            } else if let Some(base) = base_of(&name) {
                let mut header = [0; HEADER as usize];
                let is_whole = self.disk.read(&name, 0, &mut header)? == header.len();
                let end = end_in(&header, base).filter(|end| is_whole && *end > 0);
                ranges.push((base, end.unwrap_or_else(|| end_of_plain(base)), end.is_some()));
            }
        }
        ranges.sort_unstable();
        let mut next = 0;
        Ok(ranges.into_iter().any(|(base, end, is_rewritten)| {
            let is_behind_gap = base > next;
            next = end.max(next);
            is_behind_gap && base > checkpoint || is_rewritten && end > checkpoint
        }))
    }

    fn find_segments(&mut self) -> io::Result<Vec<Damage>> {
        let mut bases: Vec<(u64, u64)> = Vec::new();
        for (name, bytes) in self.disk.list()? {
            if name.ends_with(".new") {
                self.disk.remove(&name)?; // A rewriting was interrupted.
            } else if let Some(base) = base_of(&name) {
                bases.push((base, bytes));
            }
        }
        bases.sort_unstable();
        let (mut damage, mut end) = (Vec::new(), None);
        let newest = bases.last().map(|(base, _)| *base);
        for (base, bytes) in bases {
            let name = name_of(base);
            if end.is_some_and(|end| base < end) {
                self.disk.remove(&name)?; // A rewritten segment contains it.
                continue;
            }
            let mut header = [0; HEADER as usize];
            let is_whole = self.disk.read(&name, 0, &mut header)? == header.len();
            let Some(rewritten_end) = end_in(&header, base).filter(|_| is_whole) else {
                if newest == Some(base) && bytes <= HEADER {
                    self.disk.remove(&name)?; // It had not begun when the process ended.
                } else {
                    self.disk.rename(&name, &format!("{name}{DAMAGED}"))?;
                    damage.push(Damage { file: name, offset: 0, from: base, to: base });
                }
                continue;
            };
            let is_plain = rewritten_end == 0;
            let segment = Segment {
                end: if is_plain { base + bytes - HEADER } else { rewritten_end },
                bytes,
                rewritten: if is_plain { None } else { Some(None) },
            };
            end = Some(segment.end);
            self.segments.insert(base, segment);
        }
        Ok(damage)
    }

    /// Cuts everything from a position on off.
    fn cut(&mut self, position: u64) -> io::Result<()> {
        while let Some((&base, _)) = self.segments.last_key_value().filter(|(base, _)| **base >= position) {
            self.disk.remove(&name_of(base))?;
            self.segments.remove(&base);
        }
        self.window = Window::default();
        match self.segments.iter_mut().next_back() {
            Some((&base, segment)) if segment.rewritten.is_none() && segment.end >= position => {
                let name = name_of(base);
                self.disk.truncate(&name, HEADER + position - base)?;
                self.disk.sync(&name)?;
                self.disk.sync_folder()?;
                (segment.end, segment.bytes) = (position, HEADER + position - base);
                self.written = position;
            }
            _ => self.begin_segment(position)?,
        }
        self.synced = self.written;
        Ok(())
    }

    /// Writes what is after a mark once more, and syncs it. If a sync of the run before has failed, the system
    /// takes pages for written that are on no disk.
    fn write_again(&mut self, mark: u64) -> io::Result<()> {
        let base = self.last_base();
        let (name, from) = (name_of(base), HEADER + mark.saturating_sub(base));
        let mut bytes = vec![0; (HEADER + self.written - base).saturating_sub(from) as usize];
        if !bytes.is_empty() && self.segments[&base].rewritten.is_none() {
            let read = self.disk.read(&name, from, &mut bytes)?;
            self.disk.write(&name, from, &bytes[..read])?;
            self.disk.sync(&name)?;
        }
        Ok(())
    }
}
