//! The border: alone in naming pyo3.

use pyo3::prelude::*;

/// The native core: every message.
#[pymodule]
mod _native {
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
