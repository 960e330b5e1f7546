//! The part of an address that identifies a host.

use std::net::IpAddr;
use std::num::NonZeroU64;

/// An IPv4 address, or an IPv6 network of 64 bits, within which a host may choose any address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix(NonZeroU64);

/// Where the bits of IPv4 addresses lie: the networks `0:1::/32` to `0:1:ffff:ffff::/64` are not assigned
/// (RFC 4291 §2.4).
const IPV4: u64 = 1 << 32;

impl From<IpAddr> for Prefix {
    fn from(address: IpAddr) -> Self {
        let bits = match address.to_canonical() {
            IpAddr::V4(address) => IPV4 | u64::from(address.to_bits()),
            IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
        };
        Self(NonZeroU64::new(bits).unwrap_or(NonZeroU64::MIN))
    }
}

impl Prefix {
    /// Different for any two prefixes.
    pub fn bits(self) -> u64 {
        self.0.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_by_address_and_by_network() {
        let of = |text: &str| Prefix::from(text.parse::<IpAddr>().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("0.0.0.0"), of("::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
