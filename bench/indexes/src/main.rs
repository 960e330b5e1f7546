//! The checkpoints of a node's store (docs/adr/0034-store.md) in three embedded databases: `indexes fjall|redb|rocksdb
//! FOLDER` prints one line of figures.
//!
//! 1,000 queues get 30,000,000 messages: a checkpoint for each 64 MiB of log, with the rows of all queues and the new
//! blocks of 512 entries. Then as many again, while the oldest blocks are read and removed. At last the database is opened
//! again, as after a restart.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn Error>>;

const QUEUES: u64 = 1_000;
const ENTRIES: u64 = 512;
/// Messages in 64 MiB of log, at 64 bytes of payload.
const MESSAGES: u64 = 447_000;
const CHECKPOINTS: u64 = 67;
const BLOCK_BYTES: usize = 1_540;
const ROW_BYTES: usize = 60;
/// The memory for blocks that were read, and for what is not in a table yet, as in a node.
const CACHE: u64 = 8 << 20;
const WRITE_BUFFER: u64 = 16 << 20;

/// What `hbroker/native/src/store/index/mod.rs` asks of a database.
trait Database: Sized {
    fn open(folder: &Path) -> Outcome<Self>;
    fn commit(&mut self, new: &[(u64, u64)], cleared: &[(u64, u64)], bytes: &mut Bytes) -> Outcome<()>;
    fn rows(&self) -> Outcome<usize>;
    /// The last block of a queue that begins at or below a number.
    fn block_at(&self, queue: u64, number: u64) -> Outcome<Option<usize>>;
    /// The first block of a queue.
    fn first_block(&self, queue: u64) -> Outcome<Option<usize>>;
}

/// Bytes that do not compress better than blocks do (xorshift; every second byte is small).
struct Bytes(u64);

impl Bytes {
    fn next(&mut self, length: usize) -> Vec<u8> {
        let mut next = || {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        };
        (0..length).map(|at| if at % 2 == 0 { next() as u8 } else { next() as u8 & 3 }).collect()
    }
}

fn key(queue: u64, first: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&queue.to_be_bytes());
    key[8..].copy_from_slice(&first.to_be_bytes());
    key
}

struct Fjall {
    database: fjall::Database,
    rows: fjall::Keyspace,
    blocks: fjall::Keyspace,
}

impl Database for Fjall {
    fn open(folder: &Path) -> Outcome<Self> {
        let builder = fjall::Database::builder(folder);
        let database = builder.cache_size(CACHE).manual_journal_persist(true).worker_threads(1).open()?;
        let options = || fjall::KeyspaceCreateOptions::default().max_memtable_size(WRITE_BUFFER / 2);
        let (rows, blocks) = (database.keyspace("rows", options)?, database.keyspace("blocks", options)?);
        Ok(Self { database, rows, blocks })
    }

    fn commit(&mut self, new: &[(u64, u64)], cleared: &[(u64, u64)], bytes: &mut Bytes) -> Outcome<()> {
        let mut batch = self.database.batch();
        for (queue, below) in cleared {
            for block in self.blocks.range(key(*queue, 0)..key(*queue, *below)) {
                batch.remove(&self.blocks, block.key()?);
            }
        }
        for (queue, first) in new {
            batch.insert(&self.blocks, key(*queue, *first), bytes.next(BLOCK_BYTES));
        }
        for queue in 0..QUEUES {
            batch.insert(&self.rows, queue.to_be_bytes(), bytes.next(ROW_BYTES));
        }
        batch.commit()?;
        Ok(self.database.persist(fjall::PersistMode::SyncData)?)
    }

    fn rows(&self) -> Outcome<usize> {
        let mut count = 0;
        for row in self.rows.iter() {
            count += usize::from(!row.into_inner()?.1.is_empty());
        }
        Ok(count)
    }

    fn block_at(&self, queue: u64, number: u64) -> Outcome<Option<usize>> {
        let block = self.blocks.range(key(queue, 0)..=key(queue, number)).next_back();
        Ok(block.map(|block| block.into_inner()).transpose()?.map(|(_, value)| value.len()))
    }

    fn first_block(&self, queue: u64) -> Outcome<Option<usize>> {
        let block = self.blocks.range(key(queue, 0)..=key(queue, u64::MAX)).next();
        Ok(block.map(|block| block.into_inner()).transpose()?.map(|(_, value)| value.len()))
    }
}

const ROWS: redb::TableDefinition<'_, u64, &[u8]> = redb::TableDefinition::new("rows");
const BLOCKS: redb::TableDefinition<'_, (u64, u64), &[u8]> = redb::TableDefinition::new("blocks");

struct Redb(redb::Database);

impl Database for Redb {
    fn open(folder: &Path) -> Outcome<Self> {
        fs::create_dir_all(folder)?;
        let mut builder = redb::Builder::new();
        Ok(Self(builder.set_cache_size((CACHE + WRITE_BUFFER) as usize).create(folder.join("redb"))?))
    }

    fn commit(&mut self, new: &[(u64, u64)], cleared: &[(u64, u64)], bytes: &mut Bytes) -> Outcome<()> {
        let write = self.0.begin_write()?;
        {
            let (mut rows, mut blocks) = (write.open_table(ROWS)?, write.open_table(BLOCKS)?);
            for (queue, below) in cleared {
                blocks.retain_in((*queue, 0)..(*queue, *below), |_, _| false)?;
            }
            for (queue, first) in new {
                blocks.insert((*queue, *first), &bytes.next(BLOCK_BYTES)[..])?;
            }
            for queue in 0..QUEUES {
                rows.insert(queue, &bytes.next(ROW_BYTES)[..])?;
            }
        }
        Ok(write.commit()?)
    }

    fn rows(&self) -> Outcome<usize> {
        use redb::{ReadableDatabase, ReadableTable};
        let read = self.0.begin_read()?;
        let mut count = 0;
        for row in read.open_table(ROWS)?.iter()? {
            count += usize::from(!row?.1.value().is_empty());
        }
        Ok(count)
    }

    fn block_at(&self, queue: u64, number: u64) -> Outcome<Option<usize>> {
        use redb::ReadableDatabase;
        let read = self.0.begin_read()?;
        let block = read.open_table(BLOCKS)?.range((queue, 0)..=(queue, number))?.next_back();
        Ok(block.transpose()?.map(|(_, value)| value.value().len()))
    }

    fn first_block(&self, queue: u64) -> Outcome<Option<usize>> {
        use redb::ReadableDatabase;
        let read = self.0.begin_read()?;
        let block = read.open_table(BLOCKS)?.range((queue, 0)..=(queue, u64::MAX))?.next();
        Ok(block.transpose()?.map(|(_, value)| value.value().len()))
    }
}

struct Rocks(rocksdb::DB);

impl Rocks {
    fn family(&self, name: &str) -> Outcome<&rocksdb::ColumnFamily> {
        self.0.cf_handle(name).ok_or_else(|| name.into())
    }

    fn find(&self, queue: u64, number: u64, direction: rocksdb::Direction) -> Outcome<Option<usize>> {
        let key = key(queue, number);
        let mode = rocksdb::IteratorMode::From(&key, direction);
        let found = self.0.iterator_cf(self.family("blocks")?, mode).next().transpose()?;
        Ok(found.filter(|(found, _)| found[..8] == key[..8]).map(|(_, value)| value.len()))
    }
}

impl Database for Rocks {
    fn open(folder: &Path) -> Outcome<Self> {
        let mut table = rocksdb::BlockBasedOptions::default();
        table.set_block_cache(&rocksdb::Cache::new_lru_cache(CACHE as usize));
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_block_based_table_factory(&table);
        options.set_write_buffer_size(WRITE_BUFFER as usize / 2);
        options.set_max_background_jobs(2);
        let family = |name| rocksdb::ColumnFamilyDescriptor::new(name, options.clone());
        Ok(Self(rocksdb::DB::open_cf_descriptors(&options, folder, [family("rows"), family("blocks")])?))
    }

    fn commit(&mut self, new: &[(u64, u64)], cleared: &[(u64, u64)], bytes: &mut Bytes) -> Outcome<()> {
        let (rows, blocks) = (self.family("rows")?, self.family("blocks")?);
        let mut batch = rocksdb::WriteBatch::default();
        for (queue, below) in cleared {
            batch.delete_range_cf(blocks, key(*queue, 0), key(*queue, *below));
        }
        for (queue, first) in new {
            batch.put_cf(blocks, key(*queue, *first), bytes.next(BLOCK_BYTES));
        }
        for queue in 0..QUEUES {
            batch.put_cf(rows, queue.to_be_bytes(), bytes.next(ROW_BYTES));
        }
        let mut options = rocksdb::WriteOptions::default();
        options.set_sync(true);
        Ok(self.0.write_opt(batch, &options)?)
    }

    fn rows(&self) -> Outcome<usize> {
        let mut count = 0;
        for row in self.0.iterator_cf(self.family("rows")?, rocksdb::IteratorMode::Start) {
            count += usize::from(!row?.1.is_empty());
        }
        Ok(count)
    }

    fn block_at(&self, queue: u64, number: u64) -> Outcome<Option<usize>> {
        self.find(queue, number, rocksdb::Direction::Reverse)
    }

    fn first_block(&self, queue: u64) -> Outcome<Option<usize>> {
        self.find(queue, 0, rocksdb::Direction::Forward)
    }
}

/// The CPU-seconds of this process, its bytes written, and its largest memory.
fn used() -> Outcome<(f64, u64, u64)> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    let value = |file: &str, name: &str| -> Outcome<u64> {
        let text = fs::read_to_string(file)?;
        let line = text.lines().find(|line| line.starts_with(name)).ok_or("no such line")?;
        Ok(line.split_whitespace().nth(1).ok_or("no value")?.parse()?)
    };
    Ok((ticks / 100.0, value("/proc/self/io", "write_bytes:")?, value("/proc/self/status", "VmHWM:")? << 10))
}

fn size_of(folder: &Path) -> Outcome<u64> {
    let mut size = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        size += if entry.file_type()?.is_dir() { size_of(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(size)
}

/// The median and the 99th percentile of 1,000 lookups, in microseconds.
fn times(mut lookup: impl FnMut(u64) -> Outcome<Option<usize>>) -> Outcome<(f64, f64)> {
    let mut times = Vec::new();
    for queue in 0..QUEUES {
        let start = Instant::now();
        lookup(queue * 617 % QUEUES)?.ok_or("a block is missing")?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[times.len() / 2], times[times.len() * 99 / 100]))
}

fn measure<D: Database>(name: &str, folder: &Path) -> Outcome<()> {
    let (start, mut bytes) = (Instant::now(), Bytes(88_172_645_463_325_252));
    let mut database = D::open(folder)?;
    let (mut next, mut longest) = (0, 0.0f64);
    for checkpoint in 0..2 * CHECKPOINTS {
        let blocks = next..next + MESSAGES / ENTRIES;
        next = blocks.end;
        let new: Vec<(u64, u64)> = blocks.map(|block| (block % QUEUES, block / QUEUES * ENTRIES)).collect();
        let oldest = checkpoint.saturating_sub(CHECKPOINTS) * (MESSAGES / ENTRIES);
        let cleared: Vec<(u64, u64)> = match checkpoint < CHECKPOINTS {
            true => Vec::new(),
            false => (0..QUEUES).map(|queue| (queue, oldest / QUEUES * ENTRIES)).collect(),
        };
        let begun = Instant::now();
        database.commit(&new, &cleared, &mut bytes)?;
        longest = longest.max(begun.elapsed().as_secs_f64());
    }
    let head = times(|queue| database.first_block(queue))?;
    drop(database);
    let written = start.elapsed().as_secs_f64();
    let (cpu, bytes_written, memory) = used()?;
    let size = size_of(folder)?;
    let start = Instant::now();
    let database = D::open(folder)?;
    let rows = database.rows()?;
    let opened = start.elapsed().as_secs_f64();
    let anywhere = times(|queue| database.block_at(queue, 100 * ENTRIES))?;
    assert_eq!(rows as u64, QUEUES);
    println!(
        "{name}: {} checkpoints {written:.1} s (longest {:.0} ms), {cpu:.1} CPU-s, {:.0} MB written, {:.0} MB on disk, {:.0} \
         MB of memory; opened with all rows {:.0} ms; head {:.0} us (p99 {:.0}), any block {:.0} us (p99 {:.0})",
        2 * CHECKPOINTS,
        longest * 1e3,
        bytes_written as f64 / 1e6,
        size as f64 / 1e6,
        memory as f64 / 1e6,
        opened * 1e3,
        head.0,
        head.1,
        anywhere.0,
        anywhere.1,
    );
    Ok(())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, folder] = &arguments[..] else {
        return Err("usage: indexes fjall|redb|rocksdb FOLDER".into());
    };
    let folder = Path::new(folder);
    match name.as_str() {
        "fjall" => measure::<Fjall>(name, folder),
        "redb" => measure::<Redb>(name, folder),
        "rocksdb" => measure::<Rocks>(name, folder),
        other => Err(format!("{other}: none of fjall, redb, rocksdb").into()),
    }
}
