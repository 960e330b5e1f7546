//! Whether the log of a store is intact. All of it is read, and nothing is changed, so the store may be in use.

use std::io;

use crate::store::disk::Disk;
use crate::store::log::segment::{self, Damage};
use crate::store::record::{self, Kind};

/// What was found in one segment.
#[derive(Debug, PartialEq, Eq)]
pub struct SegmentReport {
    pub file: String,
    /// The bytes of its file.
    pub bytes: u64,
    /// How many intact records it has, and how many of them are messages.
    pub records: u64,
    pub messages: u64,
    pub damage: Vec<Damage>,
}

/// What was found in a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LogReport {
    pub segments: Vec<SegmentReport>,
    /// Everything before this position was promised. Damage behind it is a torn end, or is being written now.
    pub promised: u64,
}

/// Reads all segments.
///
/// # Errors
/// The disk fails.
pub fn verify(disk: &impl Disk) -> io::Result<LogReport> {
    let mut report = LogReport::default();
    let mut files: Vec<(u64, String, u64)> = disk
        .list()?
        .into_iter()
        .filter_map(|(name, bytes)| Some((segment::base_of(&name)?, name, bytes)))
        .collect();
    files.sort_unstable();
    let mut end = None;
    for (base, file, bytes) in files {
        if end.is_some_and(|end| base < end) {
            continue; // A rewritten segment contains it.
        }
        let mut content = vec![0; bytes as usize];
        let length = disk.read(&file, 0, &mut content)?;
        content.truncate(length);
        let mut segment = SegmentReport { file, bytes, records: 0, messages: 0, damage: Vec::new() };
        if let Some(before) = end.filter(|before| *before < base) {
            segment.damage.push(Damage { file: segment.file.clone(), offset: 0, from: before, to: base });
        }
        let (mut records, mut messages) = (0, 0);
        let found = segment::read_segment(&content, base, |_, kind, body| {
            records += 1;
            messages += u64::from(kind == Kind::Message);
            if kind == Kind::Synced {
                report.promised = report.promised.max(record::number_of(body).unwrap_or(0));
            }
        });
        (segment.records, segment.messages) = (records, messages);
        end = Some(found.end);
        segment.damage.extend(found.damage);
        report.segments.push(segment);
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;
    use crate::store::disk::fault::FaultDisk;
    use crate::store::index::memory::MemoryIndex;
    use crate::store::record::{Batch, Target};
    use crate::store::{Settings, Store};

    /// A store with plain and rewritten segments, in which one message in ten waits.
    fn filled(disk: &FaultDisk) -> u64 {
        let settings = Settings {
            segment_bytes: 20_000,
            checkpoint_bytes: 20_000,
            step_bytes: 4_000,
            ..Settings::DEFAULT
        };
        let mut store = Store::open(disk.clone(), MemoryIndex::default(), settings).unwrap().0;
        for number in 1..=2_000 {
            let mut batch = Batch::default();
            batch.add_target(Target { session: 7, number, options: &[1] });
            batch.add_message(u64::MAX, &[0; 90]);
            if number % 10 > 0 {
                batch.add_settled(7, [(number, number)]);
            }
            store.apply(batch.bytes());
            store.commit().unwrap();
            while store.maintain().unwrap() {}
        }
        store.state(7).unwrap().live
    }

    #[test]
    fn an_intact_log_has_no_damage_and_all_that_waits() {
        let disk = FaultDisk::default();
        let live = filled(&disk);
        let report = verify(&disk).unwrap();
        assert!(report.segments.iter().all(|segment| segment.damage.is_empty()), "{report:?}");
        assert!(report.segments.len() > 2 && report.promised > 100_000);
        let messages: u64 = report.segments.iter().map(|segment| segment.messages).sum();
        assert!(messages >= live && messages < 2_000, "{messages}: some segments were rewritten");
    }

    #[test]
    fn every_flipped_bit_is_found_with_its_file() {
        for seed in 0..300 {
            let disk = FaultDisk::default();
            filled(&disk);
            let (file, offset) = disk.flip(&mut SmallRng::seed_from_u64(seed)).unwrap();
            let report = verify(&disk).unwrap();
            let damaged = report.segments.iter().filter(|segment| !segment.damage.is_empty());
            let files: Vec<&str> = damaged.map(|segment| &segment.file[..]).collect();
            // Without its header it is not known where a segment ends.
            assert!(
                files.contains(&&file[..]) && (offset < 32 || files.len() == 1),
                "{file} {offset}: {files:?}"
            );
        }
    }
}
