//! The settings of a Zenoh node, as they come on the command line: JSON, in the form of its configuration file.

use serde_json::{Value, json};
use zenoh::Config;

use crate::Result;
use crate::flags::Flags;

/// What a node is to be.
pub struct Settings {
    /// `tcp/HOST:PORT` or `udp/HOST:PORT`.
    endpoint: String,
    config: Value,
}

impl Settings {
    /// # Errors
    /// Where to is not told, or the rest is no JSON.
    pub fn of(flags: &Flags) -> Result<Self> {
        let (transport, to): (String, String) = (flags.need("transport")?, flags.need("to")?);
        let config = flags.get("config")?.unwrap_or_else(|| json!({}));
        Ok(Self { endpoint: format!("{transport}/{to}"), config })
    }

    /// # Errors
    /// Zenoh does not take them.
    pub fn router(&self) -> Result<Config> {
        self.config("router", "listen")
    }

    /// # Errors
    /// Zenoh does not take them.
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
