//! The thread that runs the turns of a node's store.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use crate::store::Store;
use crate::store::disk::Disk;
use crate::store::index::Index;
use crate::store::mailbox::Mailbox;

/// A running thread.
pub struct StoreThread(JoinHandle<()>);

impl StoreThread {
    /// Starts a thread that stores what is submitted, until the mailbox is closed.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start<D, I>(mailbox: Arc<Mailbox>, mut store: Store<D, I>) -> io::Result<Self>
    where
        D: Disk + Send + 'static,
        I: Index + Send + 'static,
    {
        let thread = Builder::new().name("hbroker-store".into()).spawn(move || {
            let on_panic = OnPanic(&mailbox);
            mailbox.run(&mut store);
            std::mem::forget(on_panic);
        });
        thread.map(Self)
    }

    /// Waits until the thread has ended. If it panicked, what was submitted since is not stored, and its
    /// publishers have no PUBACK.
    pub fn join(self) {
        let _ = self.0.join();
    }
}

/// Reports a panic of the thread.
struct OnPanic<'a>(&'a Mailbox);

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        self.0.fail("the store's thread panicked");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::store::Settings;
    use crate::store::disk::fault::FaultDisk;
    use crate::store::index::memory::MemoryIndex;
    use crate::store::record::{Batch, Target};

    #[test]
    fn it_stores_what_is_submitted_and_makes_a_checkpoint_at_its_end() {
        let (disk, index) = (FaultDisk::default(), MemoryIndex::default());
        let mailbox = Arc::new(Mailbox::new(1));
        let (send, receive) = mpsc::channel();
        mailbox.set_waker(0, Box::new(move || _ = send.send(())));
        let settings = Settings { checkpoint_bytes: 1 << 20, ..Settings::DEFAULT };
        let store = Store::open(disk.clone(), index.clone(), settings).unwrap().0;
        let thread = StoreThread::start(Arc::clone(&mailbox), store).unwrap();
        for number in 1..=1_000 {
            let mut batch = Batch::default();
            batch.add_target(Target { session: 7, number, options: &[1] });
            batch.add_message(u64::MAX, &number.to_le_bytes());
            mailbox.submit(&mut batch);
        }
        while mailbox.stored() < 1_000 {
            receive.recv_timeout(Duration::from_secs(30)).unwrap();
        }
        mailbox.close();
        thread.join();
        assert_eq!(index.size(), (1, 2), "the row of a queue, a full block, and one that is not full");
        let (store, _) = Store::open(disk, index, Settings::DEFAULT).unwrap();
        assert_eq!(store.state(7).map(|state| (state.next, state.live)), Some((1_001, 1_000)));
    }
}
