//! Links and datagrams of one engine, and what passes between it, other workers and Python.

pub mod commands;
pub mod credit;
pub mod datagrams;
pub mod delivery_records;
pub mod event;
pub mod event_queue;
pub mod links;
pub mod outbound;
pub mod outside_sessions;
pub mod publish_batch;
pub mod token_bucket;
