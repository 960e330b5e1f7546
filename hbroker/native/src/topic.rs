//! (See docs/architecture.md.)
