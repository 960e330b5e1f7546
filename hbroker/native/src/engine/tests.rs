//! Whole engines over a faulty network, in virtual time: what §7 promises must hold whatever the network does.

mod adoption;
mod again;
mod apart;
mod barrier;
mod copies;
mod credit;
mod deliveries;
mod delivery;
mod early;
mod flow;
mod gathered;
mod groups;
mod handover;
mod hostile;
mod large;
mod load;
pub mod network;
mod publisher_ids;
mod redirect;
mod replays;
mod rest;
mod retained;
mod run;
mod sessions;
mod speed;
mod unclaimed;
mod workers;
