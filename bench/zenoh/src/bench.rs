//! The load of `hbroker bench`, its very source: window, payload, checker. They know no socket.

#[path = "../../../hbroker/native/src/bench/checker.rs"]
mod checker;
#[allow(dead_code, reason = "its MQTT has answers, too")]
#[path = "../../../hbroker/native/src/bench/load.rs"]
pub mod load;
#[path = "../../../hbroker/native/src/bench/pace.rs"]
mod pace;
#[path = "../../../hbroker/native/src/bench/payload.rs"]
mod payload;

/// Nanoseconds since the process began.
pub type Nanos = u64;
