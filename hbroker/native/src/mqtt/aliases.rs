//! Topic aliases.
