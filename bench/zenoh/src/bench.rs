//! The load of `hbroker bench`, from the same source files: window, payload, checker. They use no socket.

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
