//! MQTT: the connections of a gateway.

pub mod io;
