//! Writes the secrets of associations to a file, for who may read what they seal (docs/security.md).
//!
//! ```text
//!     SEAL  id of the association (16 digits)  algorithm  secret of one direction (64 digits)
//! ```
//!
//! The id is the one in the datagrams of that direction. Whoever has the file can open all of them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use ring::aead::{Algorithm, CHACHA20_POLY1305};

use crate::association::keys::SECRET;
use crate::association::packet::AssociationId;

#[derive(Clone)]
pub struct KeyLog(Arc<Mutex<File>>);

impl KeyLog {
    /// Appends to this file. It is made with mode 0600.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        Ok(Self(Arc::new(Mutex::new(file))))
    }

    /// Notes the first secret for datagrams to an association. If the file cannot be written, the secret is
    /// not noted: datagrams go on.
    pub fn note(&self, to: AssociationId, algorithm: &Algorithm, secret: &[u8; SECRET]) {
        let algorithm = if *algorithm == CHACHA20_POLY1305 { "ChaCha20-Poly1305" } else { "AES-128-GCM" };
        let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let line = format!("SEAL {to:016x} {algorithm} {secret}\n");
        _ = self.0.lock().write_all(line.as_bytes());
    }
}
