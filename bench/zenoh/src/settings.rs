//! A node of Zenoh as its documentation says how to have it fast: the sample configuration (`DEFAULT_CONFIG.json5`) tells what each setting does.

use serde_json::json;
use zenoh::Config;

use crate::Result;
use crate::flags::Flags;

/// What a node is to be.
pub struct Settings {
    /// `tcp/HOST:PORT` or `udp/HOST:PORT`.
    endpoint: String,
    /// Each message leaves by itself: no priorities, no batches.
    is_low_latency: bool,
}

impl Settings {
    /// # Errors
    /// Where to is not told.
    pub fn of(flags: &Flags) -> Result<Self> {
        let (transport, to): (String, String) = (flags.need("transport")?, flags.need("to")?);
        Ok(Self {
            endpoint: format!("{transport}/{to}"),
            is_low_latency: flags.get("low-latency")?.unwrap_or(false),
        })
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
        let settings = json!({
            "mode": mode,
            verb: { "endpoints": [self.endpoint] },
            "scouting": { "multicast": { "enabled": false }, "gossip": { "enabled": false } },
            // A router would put the time into each message.
            "timestamping": { "enabled": false },
            "transport": {
                "unicast": {
                    "max_sessions": 100_000, // 1,000 by default
                    "lowlatency": self.is_low_latency,
                    "qos": { "enabled": !self.is_low_latency }, // they exclude each other
                },
                // The most that it allows: 16 batches may wait for a link, 2 by default.
                "link": { "tx": { "queue": { "size": { "data": 16 } } } },
            },
        });
        Config::from_json5(&settings.to_string())
    }
}
