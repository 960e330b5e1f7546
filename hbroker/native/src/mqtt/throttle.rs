//! Rate.
