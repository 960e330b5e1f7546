//! What an end proves itself with, and whom it believes.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::association::credentials;
use crate::association::handshake::MOST_TOKEN;
use crate::association::key_log::KeyLog;
use crate::association::table::Shared;
use crate::python::NativeError;

#[pyclass(module = "hbroker._native", frozen)]
pub struct Credentials(pub credentials::Credentials);

#[pymethods]
impl Credentials {
    #[new]
    #[pyo3(signature = (authorities, identity = None, key_log = None, token = None))]
    fn new(
        authorities: Vec<Vec<u8>>,
        identity: Option<(Vec<Vec<u8>>, Vec<u8>)>,
        key_log: Option<PathBuf>,
        token: Option<Vec<u8>>,
    ) -> PyResult<Self> {
        let certificates = |all: Vec<Vec<u8>>| all.into_iter().map(CertificateDer::from).collect::<Vec<_>>();
        let identity = identity
            .map(|(chain, key)| (certificates(chain), PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key))));
        let mut credentials = credentials::Credentials::new(certificates(authorities), identity)
            .map_err(|error| NativeError::new_err(error.to_string()))?;
        let token = token.unwrap_or_default();
        if token.len() > MOST_TOKEN {
            return Err(NativeError::new_err(format!("a token has at most {MOST_TOKEN} bytes")));
        }
        credentials.token = token.into();
        credentials.key_log = key_log.map(|path| KeyLog::open(&path)).transpose()?;
        Ok(Self(credentials))
    }
}

impl Credentials {
    /// From now on the handshakes of an address use these.
    ///
    /// # Errors
    /// It has no associations: security is off.
    pub fn replace_in(&self, associations: Option<&Arc<Shared>>) -> PyResult<()> {
        let associations = associations.ok_or_else(|| NativeError::new_err("security is off"))?;
        associations.set_credentials(self.0.clone());
        Ok(())
    }
}
