//! The new store, and the thread that writes it.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::store::disk::Disk;
use crate::store::index::Index;
use crate::store::record::Batch;
use crate::store::{Failure, Store};

/// So many batches may wait for the thread.
const WAITING: usize = 8;

/// Where batches of records go.
pub struct Batches(SyncSender<Vec<u8>>);

impl Batches {
    /// Both ends.
    pub fn new() -> (Self, Receiver<Vec<u8>>) {
        let (sender, receiver) = sync_channel(WAITING);
        (Self(sender), receiver)
    }

    /// Sends the records of a batch, and empties it.
    ///
    /// # Errors
    /// The thread has ended; it says why.
    pub fn send(&self, batch: &mut Batch) -> io::Result<()> {
        self.0.send(batch.take()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Stores all batches, and makes a checkpoint.
///
/// # Errors
/// The disk fails.
pub fn store_batches<D: Disk, I: Index>(
    into: &mut Store<D, I>,
    batches: Receiver<Vec<u8>>,
) -> io::Result<()> {
    for records in batches {
        into.apply(&records);
        into.commit().map_err(error_of)?;
        while into.maintain().map_err(error_of)? {}
    }
    into.make_checkpoint().map_err(error_of)
}

fn error_of(failure: Failure) -> io::Error {
    match failure {
        Failure::Unwritten(error) | Failure::Fatal(error) => error,
    }
}
