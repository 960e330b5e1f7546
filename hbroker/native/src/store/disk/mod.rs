//! The files of a store, and what a disk must do for it.
//!
//! All files of a store lie in one folder, and are named by it. Tests and the simulator have other disks
//! (`fault`), which lose what was not synced, tear writes, flip bits, or fail.

#[cfg(any(test, feature = "python"))]
pub mod fault;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files of one store. Every method may fail as the system's calls do.
pub trait Disk {
    /// The names and lengths of all files.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;

    /// Makes an empty file, in place of one with this name.
    fn create(&mut self, name: &str) -> io::Result<()>;

    /// Writes all these bytes at an offset.
    fn write(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Reads into `bytes` from an offset. Returns how many bytes there were.
    fn read(&self, name: &str, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;

    /// Returns when the content of a file would survive a loss of power.
    fn sync(&mut self, name: &str) -> io::Result<()>;

    /// Shortens a file.
    fn truncate(&mut self, name: &str, length: u64) -> io::Result<()>;

    /// Gives a file another name, in place of a file that has this name.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&mut self, name: &str) -> io::Result<()>;

    /// Returns when the names of files would survive a loss of power.
    fn sync_folder(&mut self) -> io::Result<()>;
}

/// How many files are kept open.
const MOST_OPEN: usize = 16;

/// A folder of the file system. Only its owner may read it, since messages are in it.
pub struct Folder {
    path: PathBuf,
    /// The files that were used last, most recent first.
    open: parking_lot::Mutex<Vec<(String, Arc<File>)>>,
}

impl Folder {
    /// Opens a folder, or makes it.
    ///
    /// # Errors
    /// The folder can neither be opened nor made.
    pub fn open(path: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())?;
        Ok(Self { path: path.into(), open: parking_lot::Mutex::default() })
    }

    fn file(&self, name: &str) -> io::Result<Arc<File>> {
        let mut open = self.open.lock();
        if let Some(at) = open.iter().position(|(known, _)| known == name) {
            open[..=at].rotate_right(1);
            return Ok(Arc::clone(&open[0].1));
        }
        let file = Arc::new(OpenOptions::new().read(true).write(true).open(self.path.join(name))?);
        open.insert(0, (name.to_owned(), Arc::clone(&file)));
        open.truncate(MOST_OPEN);
        Ok(file)
    }

    fn forget(&self, name: &str) {
        self.open.lock().retain(|(known, _)| known != name);
    }
}

impl Disk for Folder {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if let (true, Ok(name)) = (metadata.is_file(), entry.file_name().into_string()) {
                files.push((name, metadata.len()));
            }
        }
        Ok(files)
    }

    fn create(&mut self, name: &str) -> io::Result<()> {
        self.forget(name);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(self.path.join(name)).map(drop)
    }

    fn write(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(name)?.write_all_at(bytes, offset)
    }

    fn read(&self, name: &str, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let (file, mut read) = (self.file(name)?, 0);
        while read < bytes.len() {
            match file.read_at(&mut bytes[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(count) => read += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.file(name)?.sync_data()
    }

    fn truncate(&mut self, name: &str, length: u64) -> io::Result<()> {
        self.file(name)?.set_len(length)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.forget(from);
        self.forget(to);
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.forget(name);
        fs::remove_file(self.path.join(name))
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}
