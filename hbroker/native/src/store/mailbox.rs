//! What engines give to the store, and how they learn that it is stored.
//!
//! ```text
//! engines -- submit --> Mailbox --> the store, in turns: take all, write, sync once
//! engines <-- stored --    '-----<
//! engines -- request --> Mailbox --> the store reads, after it has taken what was submitted before
//! engines <-- answers --   '-----<
//! ```
//!
//! Each submission has a number, ascending over all workers. A turn takes all that was submitted, so that one
//! sync serves all of it; while the disk syncs, the next submissions gather. No engine waits for the disk.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::broken::Defect;
use crate::link_id::SessionKey;
use crate::store::disk::Disk;
use crate::store::index::Index;
use crate::store::log::segment::Damage;
use crate::store::record::Batch;
use crate::store::{Failure, Messages, Store};

/// With so many bytes of records that are not on the disk, the mailbox is full.
const MOST_BYTES: usize = 64 << 20;
const TOO_LARGE: &str = "the log has more bytes than `limits.store_bytes`";
/// How often a disk that takes no more is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How many steps of maintenance one turn takes at most, if there is something else to do.
const STEPS: usize = 4;
/// How many requests one turn answers at most, and after how many bytes of messages it ends. The others wait for
/// the next turn, so that publishers do not wait for long.
const MOST_READS: usize = 32;
const MOST_READ_BYTES: usize = 4 << 20;

/// Between engines and their store.
#[derive(Default)]
pub struct Mailbox {
    state: Mutex<State>,
    changed: Condvar,
    /// The number of the last submission that is stored.
    stored: AtomicU64,
    /// As [`Self::is_full`].
    full: AtomicBool,
}

#[derive(Default)]
struct State {
    records: Vec<u8>,
    /// The number of the last submission.
    last: u64,
    /// For each worker.
    wakers: Vec<Option<Box<dyn Fn() + Send>>>,
    requests: VecDeque<ReadRequest>,
    /// For each worker.
    answers: Vec<Vec<(ReadRequest, Messages)>>,
    /// The bytes that a turn has taken, and that are not stored yet.
    taken: usize,
    health: Health,
    /// The log has more bytes than it should.
    is_too_large: bool,
    damage: Vec<Damage>,
    is_closed: bool,
}

/// Some messages of a session's queue are to be read.
#[derive(Debug)]
pub struct ReadRequest {
    /// Who gets the answer.
    pub key: SessionKey,
    pub session: u64,
    /// The number of the first message.
    pub from: u64,
    /// About so many bytes are read.
    pub bytes: usize,
    /// The number of the export that copies the messages, and of its request; `None`: the session takes the messages
    /// into its memory.
    pub for_export: Option<(u64, u64)>,
}

/// How the disk does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Health {
    #[default]
    Working,
    /// It takes no more now. Nothing is stored until it does.
    Full(String),
    /// It is not known what is on it. Nothing is stored any more.
    Failed(String),
}

impl Mailbox {
    /// For this many workers.
    pub fn new(workers: u8) -> Self {
        let mailbox = Self::default();
        let mut state = mailbox.state.lock();
        state.wakers.resize_with(workers.into(), || None);
        state.answers.resize_with(workers.into(), Vec::new);
        drop(state);
        mailbox
    }

    // For engines

    /// Gives records to the store, and empties the batch. Returns the number of the submission.
    pub fn submit(&self, batch: &mut Batch) -> u64 {
        let mut state = self.state.lock();
        state.records.extend_from_slice(batch.bytes());
        state.last += 1;
        let last = state.last;
        self.update_full(&state);
        drop(state);
        batch.clear();
        self.changed.notify_one();
        last
    }

    /// Asks for messages, and empties the list.
    pub fn request(&self, requests: &mut Vec<ReadRequest>) {
        self.state.lock().requests.extend(requests.drain(..));
        self.changed.notify_one();
    }

    /// Takes what was read for a worker.
    pub fn take_answers(&self, worker: u8) -> Vec<(ReadRequest, Messages)> {
        self.state.lock().answers.get_mut(usize::from(worker)).map(std::mem::take).unwrap_or_default()
    }

    /// The number of the last submission.
    pub fn submitted(&self) -> u64 {
        self.state.lock().last
    }

    /// The number of the last submission that is stored, and with it all before.
    pub fn stored(&self) -> u64 {
        self.stored.load(Ordering::Acquire)
    }

    /// Whether everything that was submitted is stored, and everything that was requested was read.
    pub fn is_idle_now(&self) -> bool {
        self.is_idle(&self.state.lock())
    }

    /// Sets what is called when there is something new for a worker.
    pub fn set_waker(&self, worker: u8, waker: Box<dyn Fn() + Send>) {
        if let Some(known) = self.state.lock().wakers.get_mut(usize::from(worker)) {
            *known = Some(waker);
        }
    }

    /// Whether so much waits for the disk that no message should be taken over that has to be stored.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// How the disk does. It counts as full, too, if the log has more bytes than it should.
    pub fn health(&self) -> Health {
        let state = self.state.lock();
        match &state.health {
            Health::Working if state.is_too_large => Health::Full(TOO_LARGE.into()),
            health => health.clone(),
        }
    }

    /// The damage that was found since the last call.
    pub fn take_damage(&self) -> Vec<Damage> {
        std::mem::take(&mut self.state.lock().damage)
    }

    /// Damage was found.
    pub fn note_damage(&self, damage: &[Damage]) {
        if !Defect::HidesDamage.is_present() {
            self.state.lock().damage.extend_from_slice(damage);
        }
    }

    /// The thread of the store has ended by itself: nothing is stored any more.
    pub fn fail(&self, why: &str) {
        self.note(Err(Failure::Fatal(io::Error::other(why))));
    }

    /// Ends the thread of the store once everything that was submitted is stored.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_one();
    }

    // For the store

    /// Stores everything that was submitted, and reads what was asked for. True: there is more to do now.
    pub fn turn<D: Disk, I: Index>(&self, store: &mut Store<D, I>) -> bool {
        let mut state = self.state.lock();
        if matches!(state.health, Health::Failed(_)) {
            return false;
        }
        let (records, last) = (std::mem::take(&mut state.records), state.last);
        let requests = std::mem::take(&mut state.requests);
        state.taken += records.len();
        drop(state);
        let is_new = last > self.stored();
        store.apply(&records);
        // A submission without records often has nothing to wait for.
        let mut result = if is_new && !store.is_committed() { store.commit() } else { Ok(()) };
        if result.is_ok() && is_new {
            let mut state = self.state.lock();
            state.taken = 0;
            self.update_full(&state);
            drop(state);
            self.stored.store(last, Ordering::Release);
            self.wake();
        }
        if !matches!(result, Err(Failure::Fatal(_)))
            && let Err(error) = self.read(store, requests)
        {
            result = Err(Failure::Fatal(error));
        }
        // A full disk gets room by segments that are removed.
        let mut has_more = !matches!(result, Err(Failure::Fatal(_)));
        let is_written = result.is_ok();
        for _ in 0..STEPS {
            if has_more {
                has_more = match store.maintain() {
                    Ok(has_more) => has_more,
                    Err(failure) => {
                        result = Err(failure);
                        false
                    }
                };
            }
        }
        self.note_damage(&store.take_damage());
        self.note(result);
        self.note_size(store.is_too_large());
        has_more && is_written
    }

    /// Reads what was asked for. What would be too much at once waits for the next turn.
    fn read<D: Disk, I: Index>(
        &self,
        store: &mut Store<D, I>,
        mut requests: VecDeque<ReadRequest>,
    ) -> io::Result<()> {
        let (mut answers, mut bytes) = (Vec::new(), 0);
        while answers.len() < MOST_READS
            && bytes < MOST_READ_BYTES
            && let Some(request) = requests.pop_front()
        {
            let messages = store.read(request.session, request.from, request.bytes)?;
            bytes += messages.messages.iter().map(|stored| stored.field.len()).sum::<usize>();
            self.note_damage(&messages.damage);
            answers.push((request, messages));
        }
        if answers.is_empty() {
            return Ok(());
        }
        let mut state = self.state.lock();
        while let Some(request) = requests.pop_back() {
            state.requests.push_front(request);
        }
        for (request, messages) in answers {
            if let Some(of_worker) = state.answers.get_mut(usize::from(request.key.worker())) {
                of_worker.push((request, messages));
            }
        }
        drop(state);
        self.wake();
        Ok(())
    }

    /// Runs turns until the mailbox is closed and nothing is left to store, or the disk has failed.
    pub fn run<D: Disk, I: Index>(&self, store: &mut Store<D, I>) {
        loop {
            let has_more = self.turn(store);
            let mut state = self.state.lock();
            let is_idle = self.is_idle(&state);
            match state.health {
                Health::Failed(_) => return,
                Health::Working if !is_idle => {}
                Health::Working if state.is_closed => break,
                Health::Working if has_more => {}
                Health::Working => self.changed.wait(&mut state),
                Health::Full(_) if state.is_closed => return,
                Health::Full(_) if !state.requests.is_empty() => {}
                Health::Full(_) => _ = self.changed.wait_for(&mut state, RETRY),
            }
        }
        if let Err(failure) = store.end() {
            self.note(Err(failure));
        }
    }

    /// Whether nothing is left to store or to read. A submission may have no records, but wait for those of
    /// another worker.
    fn is_idle(&self, state: &State) -> bool {
        state.last == self.stored() && state.requests.is_empty()
    }

    fn note(&self, result: Result<(), Failure>) {
        let health = match result {
            Ok(()) => Health::Working,
            Err(Failure::Unwritten(error)) => Health::Full(error.to_string()),
            Err(Failure::Fatal(error)) => Health::Failed(error.to_string()),
        };
        let mut state = self.state.lock();
        let is_changed = state.health != health && !matches!(state.health, Health::Failed(_));
        if is_changed {
            state.health = health;
            self.update_full(&state);
        }
        drop(state);
        if is_changed {
            self.wake();
        }
    }

    fn note_size(&self, is_too_large: bool) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.is_too_large, is_too_large) != is_too_large {
            self.update_full(&state);
            drop(state);
            self.wake();
        }
    }

    fn update_full(&self, state: &State) {
        let is_large = state.is_too_large || state.records.len() + state.taken > MOST_BYTES;
        self.full.store(is_large || state.health != Health::Working, Ordering::Relaxed);
    }

    /// Wakes all workers.
    fn wake(&self) {
        self.state.lock().wakers.iter().flatten().for_each(|waker| waker());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Settings;
    use crate::store::disk::fault::FaultDisk;
    use crate::store::index::memory::MemoryIndex;
    use crate::store::record::Target;

    fn message(number: u64) -> Batch {
        let mut batch = Batch::default();
        batch.add_target(Target { session: 7, number, options: &[1] });
        batch.add_message(u64::MAX, &number.to_le_bytes());
        batch
    }

    fn open(disk: &FaultDisk) -> Store<FaultDisk, MemoryIndex> {
        Store::open(disk.clone(), MemoryIndex::default(), Settings::DEFAULT).unwrap().0
    }

    #[test]
    fn one_sync_serves_all_that_waits() {
        let (disk, mailbox) = (FaultDisk::default(), Mailbox::new(1));
        let mut store = open(&disk);
        let (before, _) = disk.work();
        let last = (1..=100).map(|number| mailbox.submit(&mut message(number))).last();
        assert_eq!((last, mailbox.stored()), (Some(100), 0));
        assert!(!mailbox.turn(&mut store));
        assert_eq!((mailbox.stored(), disk.work().0 - before), (100, 1));
        assert_eq!(store.read(7, 99, 1_000).unwrap().messages.len(), 2);
    }

    #[test]
    fn a_full_disk_stores_nothing_until_it_has_room() {
        let (disk, mailbox) = (FaultDisk::default(), Mailbox::new(1));
        let mut store = open(&disk);
        disk.set_space(Some(40));
        mailbox.submit(&mut message(1));
        mailbox.turn(&mut store);
        assert!(mailbox.is_full() && matches!(mailbox.health(), Health::Full(_)));
        assert_eq!(mailbox.stored(), 0);
        disk.set_space(None);
        mailbox.turn(&mut store);
        assert_eq!((mailbox.stored(), mailbox.health(), mailbox.is_full()), (1, Health::Working, false));
    }

    #[test]
    fn a_log_that_is_too_large_is_full_until_it_is_smaller() {
        let (disk, mailbox) = (FaultDisk::default(), Mailbox::new(1));
        let settings = Settings {
            most_bytes: 6_000,
            segment_bytes: 2_000,
            checkpoint_bytes: 2_000,
            ..Settings::DEFAULT
        };
        let mut store = Store::open(disk.clone(), MemoryIndex::default(), settings).unwrap().0;
        let mut number = 0;
        while !mailbox.is_full() {
            number += 1;
            mailbox.submit(&mut message(number));
            while mailbox.turn(&mut store) {}
            assert_eq!(mailbox.stored(), number, "what was taken over is stored");
        }
        assert!(number > 50 && matches!(mailbox.health(), Health::Full(_)));
        let mut batch = Batch::default();
        batch.add_settled(7, [(1, number)]);
        mailbox.submit(&mut batch);
        while mailbox.turn(&mut store) {}
        assert_eq!((mailbox.is_full(), mailbox.health()), (false, Health::Working));
    }

    #[test]
    fn a_submission_without_records_is_stored_too() {
        let (disk, mailbox) = (FaultDisk::default(), Mailbox::new(1));
        let mut store = open(&disk);
        mailbox.submit(&mut message(1));
        mailbox.turn(&mut store);
        assert!(mailbox.is_idle(&mailbox.state.lock()));
        let last = mailbox.submit(&mut Batch::default());
        assert!(!mailbox.is_idle(&mailbox.state.lock()), "its tickets wait");
        mailbox.turn(&mut store);
        assert_eq!(mailbox.stored(), last);
        assert!(mailbox.is_idle(&mailbox.state.lock()));
    }

    #[test]
    fn a_failed_sync_ends_it() {
        let (disk, mailbox) = (FaultDisk::default(), Mailbox::new(1));
        let mut store = open(&disk);
        disk.fail_to_sync(true);
        mailbox.submit(&mut message(1));
        mailbox.turn(&mut store);
        disk.set_space(None);
        mailbox.submit(&mut message(2));
        mailbox.turn(&mut store);
        assert!(matches!(mailbox.health(), Health::Failed(_)) && mailbox.stored() == 0);
    }
}
