//! Blocks of addresses in NetworkPolicies.

use std::net::IpAddr;

fn bits(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    }
}

/// Whether a block such as `10.0.0.0/8` has an address. A text that is no block has none.
pub fn contains(block: &str, address: IpAddr) -> bool {
    let Some((network, length)) = block.split_once('/') else { return false };
    let (Ok(network), Ok(length)) = (network.parse::<IpAddr>(), length.parse::<u32>()) else { return false };
    let ((network, width), (address, other)) = (bits(network), bits(address));
    if width != other || length > width {
        return false;
    }
    // A shift by the whole width is not defined: such a block has every address.
    let shift = width - length;
    shift == 128 || network >> shift == address >> shift
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::contains;

    #[test]
    fn blocks() {
        for (block, address, expected) in [
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.1.2.3/32", "10.1.2.3", true),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "fd00::1", true),
            ("fd00::/8", "fe80::1", false),
            ("10.0.0.0/33", "10.0.0.1", false),
            ("x/8", "10.0.0.1", false),
            ("10.0.0.1", "10.0.0.1", false),
        ] {
            assert_eq!(contains(block, address.parse().unwrap()), expected, "{block} {address}");
        }
    }
}
