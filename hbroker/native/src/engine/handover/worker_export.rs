//! The part of an export in one worker, at the source of a handover (§5.4): it copies the messages of a subtree from
//! this worker's sessions, step by step.

use crate::engine::handover::session_export::CopyStep;
use crate::engine::handover::stored_copies::{Read, SessionReader, StoreReader, StoredPart};
use crate::engine::sessions::message::QueuedMessage;
use crate::engine::sessions::session::Session;
use crate::engine::sessions::session::copying::CopyProgress;
use crate::engine::sessions::storing::Storing;
use crate::engine::sessions::table::Sessions;
use crate::link_id::SessionKey;
use crate::store::Messages;
use crate::topic::Region;

/// How many slots of sessions one step of copying looks at.
const STEP_POSITIONS: usize = 4_096;
/// How many messages that were held before are copied in one step.
pub const HELD_STEP: usize = 64;
/// The most sessions whose stored queues are read at the same time.
const MOST_COPIERS: usize = 32;

/// The part of an export in one worker: the sessions whose messages are being copied.
pub struct WorkerExport {
    /// The number of the export, the same in all workers.
    pub id: u64,
    /// The session slot at which this round continues.
    position: usize,
    /// Sessions before `position` whose messages are not all copied yet in this round.
    copiers: Vec<SessionCopier>,
    /// Reads messages of queues that were held before.
    held_reader: StoreReader,
    /// The number of the last request to the store.
    last_request: u64,
    /// Once the subtree is not served any more: sessions whose stored queues have to be copied, up to these numbers.
    uncopied: Option<Vec<(SessionKey, u64)>>,
    /// The queues of which messages were copied, and whose sessions have ended since.
    pub ended: Vec<u64>,
}

/// Copies the messages of one session, in one round.
struct SessionCopier {
    key: SessionKey,
    /// The round copies stored messages of the session up to this number. More may be stored behind it.
    last: u64,
    reader: StoreReader,
}

impl WorkerExport {
    pub fn new(id: u64) -> Self {
        Self {
            id,
            position: 0,
            copiers: Vec::new(),
            held_reader: StoreReader::default(),
            last_request: 0,
            uncopied: None,
            ended: Vec::new(),
        }
    }

    /// Whether the subtree is not served any more, and about to be taken out.
    pub fn is_ending(&self) -> bool {
        self.uncopied.is_some()
    }

    /// Messages of a session went to its backlog.
    pub fn copy_up_to(&mut self, key: SessionKey, last: u64) {
        self.uncopied.iter_mut().for_each(|uncopied| uncopied.push((key, last)));
    }

    /// Forgets what was read from the store.
    pub fn forget_read(&mut self) {
        self.copiers.iter_mut().for_each(|copier| copier.reader.forget());
        self.held_reader.forget();
    }

    /// The store's answer to the request with this number.
    pub fn take_answer(&mut self, request: u64, answer: Messages) {
        let readers = self.copiers.iter_mut().map(|copier| &mut copier.reader);
        if let Some(reader) = readers.chain([&mut self.held_reader]).find(|reader| reader.awaits(request)) {
            reader.take_answer(answer);
        }
    }

    /// Takes the next step of copying; true: the round is over.
    pub fn copy(
        &mut self,
        region: Region<'_>,
        sessions: &mut Sessions,
        mut storing: Option<&mut Storing>,
        step: &mut CopyStep,
    ) -> bool {
        let mut at = 0;
        while let Some(copier) = self.copiers.get_mut(at) {
            let last_request = &mut self.last_request;
            match copier.copy((self.id, last_request), region, sessions, storing.as_deref_mut(), step) {
                CopyProgress::Done => _ = self.copiers.swap_remove(at),
                CopyProgress::StepFull => return false,
                CopyProgress::AwaitsStore => at += 1,
            }
        }
        let (end, mut at) = (self.position + STEP_POSITIONS, 0);
        while self.copiers.len() < MOST_COPIERS && self.position < end && !step.is_full() {
            let Some((key, last)) = self.next_session(sessions, &mut at) else {
                break;
            };
            let mut copier = SessionCopier { key, last, reader: StoreReader::default() };
            let last_request = &mut self.last_request;
            let progress =
                copier.copy((self.id, last_request), region, sessions, storing.as_deref_mut(), step);
            if progress != CopyProgress::Done {
                self.copiers.push(copier);
            }
        }
        let is_over = self.copiers.is_empty() && sessions.is_end(self.position);
        if is_over {
            self.position = 0;
        }
        is_over
    }

    /// The next session to copy, and the number up to which its stored messages are copied in this round. `at`: the
    /// position of this step in `uncopied`.
    fn next_session(&mut self, sessions: &Sessions, at: &mut usize) -> Option<(SessionKey, u64)> {
        if let Some(uncopied) = &self.uncopied {
            let is_reading = |key: SessionKey| self.copiers.iter().any(|copier| copier.key == key);
            let mut left = uncopied.iter().copied().skip(*at).inspect(|_| *at += 1);
            return left.find(|(key, _)| !is_reading(*key));
        }
        loop {
            let session = sessions.slots(self.position, 1)?.next();
            self.position += 1;
            if let Some(session) = session {
                return Some((session.key(), session.last_number_in_store()));
            }
        }
    }
}

impl WorkerExport {
    /// As [`Engine::copy_held`](crate::engine::Engine::copy_held).
    pub fn copy_held(
        &mut self,
        session: &Session,
        stored: &StoredPart,
        from: u64,
        storing: Option<&mut Storing>,
    ) -> Option<(Vec<QueuedMessage>, u64)> {
        let Self { id, held_reader, last_request, .. } = self;
        let mut session_reader = SessionReader {
            export: *id,
            key: stored.key,
            session: session.id,
            base: session.stored_base(),
            last: session.number_of_stored(stored.numbers.highest().unwrap_or_default()),
            reader: held_reader,
            last_request,
            storing,
        };
        let Read::Part(queued_messages, next) = session_reader.read(from) else {
            return None;
        };
        let count = queued_messages.len().min(HELD_STEP);
        let some: Vec<QueuedMessage> = queued_messages.drain(..count).collect();
        let next = queued_messages.front().map_or(next, |first| first.stored);
        let some = some.into_iter().filter(|queued_message| stored.numbers.contains(queued_message.stored));
        let some = some.map(|queued_message| session.as_its(queued_message));
        Some((some.collect(), next))
    }

    /// As [`Core::has_uncopied`](crate::core::Core::has_uncopied), for this worker.
    pub fn has_uncopied(&mut self, sessions: &Sessions) -> bool {
        let Self { id, uncopied, copiers, .. } = self;
        let uncopied = uncopied.get_or_insert_with(|| {
            copiers.clear();
            let with_backlog = sessions.iter().filter(|session| session.has_backlog());
            with_backlog.map(|session| (session.key(), session.last_number_in_store())).collect()
        });
        uncopied.retain(|(key, last)| {
            sessions.get(*key).is_some_and(|session| session.has_uncopied_up_to(*id, *last))
        });
        !uncopied.is_empty()
    }

    /// Begins again, because the region has changed.
    pub fn begin_again(&mut self) {
        (self.position, self.uncopied) = (0, None);
        self.copiers.clear();
    }
}

impl SessionCopier {
    /// `export`: its number, and the number of the last request to the store.
    fn copy(
        &mut self,
        (export, last_request): (u64, &mut u64),
        region: Region<'_>,
        sessions: &mut Sessions,
        storing: Option<&mut Storing>,
        step: &mut CopyStep,
    ) -> CopyProgress {
        let Self { key, last, reader } = self;
        let Some(session) = sessions.get_mut(*key) else {
            return CopyProgress::Done;
        };
        let (key, last, base) = (*key, *last, session.stored_base());
        let mut session_reader =
            SessionReader { export, key, session: session.id, base, last, reader, last_request, storing };
        session.copy(region, step, &mut session_reader)
    }
}
