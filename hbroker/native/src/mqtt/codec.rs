//! Codec.
