//! Rules for names and addresses.

use super::field_ref::Field;
use super::field_rules::TextRules as _;
pub use coracle_expressions::addresses::{cidr, network};
use coracle_fields::Text;
use coracle_proto::names;
use std::net::IpAddr;

/// Checks a name, or the prefix of one that will be generated; returns upstream's sentences.
pub type Rule = fn(&str, bool) -> Vec<String>;

fn masked(name: &str, prefix: bool) -> String {
    if prefix { names::mask_trailing_dash(name) } else { name.to_owned() }
}

/// A DNS-1123 subdomain.
pub fn subdomain(name: &str, prefix: bool) -> Vec<String> {
    names::dns1123_subdomain(&masked(name, prefix))
}

/// A DNS-1123 label.
pub fn label(name: &str, prefix: bool) -> Vec<String> {
    names::dns1123_label(&masked(name, prefix))
}

/// Anything that fits into a path.
pub fn path_segment(name: &str, prefix: bool) -> Vec<String> {
    if prefix { names::path_segment_prefix(name) } else { names::path_segment(name) }
}

/// A canonical IP address.
pub fn ip(name: &str, _prefix: bool) -> Vec<String> {
    match name.parse::<IpAddr>() {
        Ok(address) if address.to_string() == name => Vec::new(),
        Ok(address) => vec![format!("must be in canonical form ({:?})", address.to_string())],
        Err(_) => vec![NOT_AN_IP.into()],
    }
}

const NOT_AN_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const NOT_A_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// The text is an IP address.
pub fn is_ip(field: &Field<'_, Text>) -> Option<IpAddr> {
    let address = field.text().parse().ok();
    if address.is_none() {
        field.invalid(NOT_AN_IP);
    }
    address
}

/// The text is an IP address, in a field from the days when leading zeros were nothing to think about.
pub fn is_old_ip(field: &Field<'_, Text>) -> Option<IpAddr> {
    let address = coracle_proto::names::sloppy_address(field.text());
    if address.is_none() {
        field.invalid(NOT_AN_IP);
    }
    address
}

/// The text is a CIDR.
pub fn is_cidr(field: &Field<'_, Text>) -> Option<(IpAddr, u8)> {
    let parsed = cidr(field.text());
    if parsed.is_none() {
        field.invalid(NOT_A_CIDR);
    }
    parsed
}

/// The name of a CSI driver: a domain name of at most 63 characters, in any case.
pub(super) fn driver_name(name: &Field<'_, Text>) {
    if !name.has_text("") {
        return;
    }
    if name.text().len() > 63 {
        name.too_long(63);
    }
    for message in names::dns1123_subdomain(&name.text().to_lowercase()) {
        name.invalid(message);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses() {
        assert!(ip("10.0.0.1", false).is_empty() && ip("2001:db8::1", false).is_empty());
        assert_eq!(ip("2001:DB8::1", false), ["must be in canonical form (\"2001:db8::1\")"]);
        assert_eq!(ip("10.0.0", false), [NOT_AN_IP]);
        assert_eq!(cidr("10.0.0.0/33"), None);
        assert_eq!(cidr("10.0.0.0/08"), None);
        let (address, bits) = cidr("10.1.2.3/16").unwrap();
        assert_eq!(network(address, bits).to_string(), "10.1.0.0");
        assert_eq!(network("fe80::1".parse().unwrap(), 0).to_string(), "::");
    }
}
