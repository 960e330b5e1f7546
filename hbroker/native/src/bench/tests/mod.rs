//! The load without its thread: what is counted, and what the languages make of any bytes.

mod checking;
mod languages;
mod loads;
mod securing;
