//! The settings of a Zenoh node from the command line: JSON in the form of Zenoh's configuration file.

use serde_json::{Value, json};
use zenoh::Config;

use crate::Result;
use crate::flags::Flags;

/// The settings of a node: the router's endpoint, and the JSON of `--config`.
pub struct Settings {
    /// `tcp/HOST:PORT` or `udp/HOST:PORT`.
    endpoint: String,
    config: Value,
}

impl Settings {
    /// The settings in the flags `--transport`, `--to` and `--config`.
    ///
    /// # Errors
    /// `--transport` or `--to` is missing, or the value of `--config` is not JSON.
    pub fn of(flags: &Flags) -> Result<Self> {
        let (transport, to): (String, String) = (flags.need("transport")?, flags.need("to")?);
        let config = flags.get("config")?.unwrap_or_else(|| json!({}));
        Ok(Self { endpoint: format!("{transport}/{to}"), config })
    }

    /// The configuration of a router that listens at the endpoint.
    ///
    /// # Errors
    /// Zenoh rejects the configuration.
    pub fn router(&self) -> Result<Config> {
        self.config("router", "listen")
    }

    /// The configuration of a client that connects to the endpoint.
    ///
    /// # Errors
    /// Zenoh rejects the configuration.
    pub fn client(&self) -> Result<Config> {
        self.config("client", "connect")
    }

    fn config(&self, mode: &str, verb: &str) -> Result<Config> {
        let mut config = self.config.clone();
        config["mode"] = mode.into();
        config[verb] = json!({ "endpoints": [self.endpoint] });
        Config::from_json5(&config.to_string())
    }
}
