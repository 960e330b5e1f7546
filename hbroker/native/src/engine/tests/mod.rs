//! Whole engines over a faulty network, in virtual time: what §7 promises must hold whatever the network
//! does.
//!
//! ```text
//! delivery   from publishers to subscribers            handover   a subtree moves to another node
//! batches    messages that come many at once           workers    from one worker of a node to another
//! retained   the latest message of a topic             flow       who publishes too much is held back
//! sessions   they stall, go away, come back            hostile    what strangers and liars send
//! load       what a node counts by topic               speed      measurements, which no test run makes
//!    all of them ──> network   nodes, clients, and what is between them
//! ```
//!
//! The helpers of a folder are in its `mod.rs`. A test may use those of any folder. The helpers use
//! `network`, and those of `flow` also `sessions`.

mod batches;
mod delivery;
mod flow;
mod handover;
mod hostile;
mod load;
pub mod network;
mod retained;
mod sessions;
mod spans;
mod speed;
mod workers;
