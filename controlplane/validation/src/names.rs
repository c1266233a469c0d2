//! Rules for names and addresses.

use super::field_ref::Field;
use super::field_rules::TextRules as _;
pub use coracle_expressions::addresses::{cidr, network};
use coracle_fields::Text;
use coracle_proto::names::{self, sloppy_address};
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
    match sloppy_address(name) {
        None => vec![NOT_AN_IP.into()],
        Some(address) => ambiguous(name, address)
            .map(str::to_owned)
            .or_else(|| other_form(name, &address.to_string()))
            .into_iter()
            .collect(),
    }
}

/// What is wrong with the text of an address that some programs read differently.
fn ambiguous(text: &str, address: IpAddr) -> Option<&'static str> {
    if text.parse::<IpAddr>().is_err() {
        return Some("must not have leading 0s");
    }
    is_mapped(address).then_some("must not be an IPv4-mapped IPv6 address")
}

/// The text is not in canonical form.
fn other_form(text: &str, canonical: &str) -> Option<String> {
    (text != canonical).then(|| format!("must be in canonical form ({canonical:?})"))
}

const NOT_AN_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const NOT_A_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// The text is an IP address, in no form that some programs read differently.
pub fn is_ip(field: &Field<'_, Text>) -> Option<IpAddr> {
    let address = is_old_ip(field);
    new_ip(field, &[]);
    address
}

/// The text is an IP address, also in a form that only objects from before Kubernetes 1.36 have.
pub fn is_old_ip(field: &Field<'_, Text>) -> Option<IpAddr> {
    let address = sloppy_address(field.text());
    if address.is_none() {
        field.invalid(NOT_AN_IP);
    }
    address
}

/// An address that [`is_old_ip`] accepts is none that some programs read differently, unless the object had it before.
pub fn new_ip(field: &Field<'_, Text>, before: &[&str]) {
    let text = field.text();
    let Some(address) = sloppy_address(text).filter(|_| !before.contains(&text)) else { return };
    if let Some(why) = ambiguous(text, address) {
        field.invalid(why);
    }
}

/// An address that [`is_old_ip`] accepts is in canonical form.
pub fn canonical_ip(field: &Field<'_, Text>) {
    if sloppy_address(field.text()).is_some() {
        field.all_good(ip(field.text(), false));
    }
}

/// A CIDR that [`is_old_cidr`] accepts is in canonical form.
pub fn canonical_cidr(field: &Field<'_, Text>) {
    let text = field.text();
    match cidr(text) {
        Some((address, bits)) if !is_mapped(address) && network(address, bits) == address => {
            field.all_good(other_form(text, &format!("{address}/{bits}")).into_iter().collect());
        }
        _ => new_cidr(field, &[]),
    }
}

/// The text is a CIDR, with neither bits beyond its prefix nor a form that some programs read differently.
pub fn is_cidr(field: &Field<'_, Text>) -> Option<(IpAddr, u8)> {
    let parsed = is_old_cidr(field);
    new_cidr(field, &[]);
    parsed
}

/// The text is a CIDR, also in a form that only objects from before Kubernetes 1.36 have.
pub fn is_old_cidr(field: &Field<'_, Text>) -> Option<(IpAddr, u8)> {
    let parsed = sloppy_cidr(field.text());
    if parsed.is_none() {
        field.invalid(NOT_A_CIDR);
    }
    parsed
}

/// A CIDR that [`is_old_cidr`] accepts means the same everywhere, unless the object had it before.
pub fn new_cidr(field: &Field<'_, Text>, before: &[&str]) {
    let text = field.text();
    let Some((address, bits)) = sloppy_cidr(text).filter(|_| !before.contains(&text)) else { return };
    if cidr(text).is_none() {
        field.invalid("must not have leading 0s in IP or prefix length");
    } else if is_mapped(address) {
        field.invalid("must not have an IPv4-mapped IPv6 address");
    } else if network(address, bits) != address {
        field.invalid("must not have bits set beyond the prefix length");
    }
}

/// A CIDR as old fields take it: octets and prefix length may have leading zeros.
pub fn sloppy_cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    if bits.is_empty() || !bits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (address, bits) = (sloppy_address(address)?, bits.parse().ok()?);
    let width = if address.is_ipv4() { 32 } else { 128 };
    (bits <= width).then_some((address, bits))
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
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

/// A path below a domain, such as `acme.io/foo`.
pub(super) fn domain_prefixed_path(field: &Field<'_, Text>) {
    match field.text().split_once('/') {
        _ if field.text().is_empty() => field.required(""),
        Some((host, path)) if !host.is_empty() && !path.is_empty() => {
            for message in names::dns1123_subdomain(host) {
                field.invalid_as(host, message);
            }
            let allowed = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
            if !path.chars().all(allowed) {
                let why = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
                field.invalid_as(path, why);
            }
        }
        _ => field.invalid("must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_fields::core::v1::Service;
    use serde_json::json;

    #[test]
    fn new_addresses_mean_the_same_everywhere() {
        let object = json!({"spec": {"externalIPs": ["010.0.0.1", "::ffff:10.0.0.1", "2001:DB8::1", "010.0.0.2", "x"],
            "loadBalancerSourceRanges": ["10.0.0.0/08", "010.0.0.0/8", "::ffff:10.0.0.0/104", "10.1.0.0/8",
                "10.2.0.0/8", "2001:DB8::/32", "10.0.0.0/33"]}});
        let mut errors = Vec::new();
        crate::field_ref::walk_as::<Service>(&object, &mut errors, |service| {
            let spec = service.spec();
            for address in spec.external_ips().items() {
                is_old_ip(&address);
                new_ip(&address, &["010.0.0.2"]);
            }
            for range in spec.load_balancer_source_ranges().items() {
                is_old_cidr(&range);
                new_cidr(&range, &["10.2.0.0/8"]);
            }
        });
        let errors: Vec<String> = errors.iter().map(|error| error.to_string().replace("spec.", "")).collect();
        assert_eq!(
            errors,
            [
                "externalIPs[0]: Invalid value: \"010.0.0.1\": must not have leading 0s".to_owned(),
                "externalIPs[1]: Invalid value: \"::ffff:10.0.0.1\": must not be an IPv4-mapped IPv6 address".into(),
                format!("externalIPs[4]: Invalid value: \"x\": {NOT_AN_IP}"),
                "loadBalancerSourceRanges[0]: Invalid value: \"10.0.0.0/08\": must not have leading 0s in IP or prefix length".into(),
                "loadBalancerSourceRanges[1]: Invalid value: \"010.0.0.0/8\": must not have leading 0s in IP or prefix length".into(),
                "loadBalancerSourceRanges[2]: Invalid value: \"::ffff:10.0.0.0/104\": must not have an IPv4-mapped IPv6 address".into(),
                "loadBalancerSourceRanges[3]: Invalid value: \"10.1.0.0/8\": must not have bits set beyond the prefix length".into(),
                format!("loadBalancerSourceRanges[6]: Invalid value: \"10.0.0.0/33\": {NOT_A_CIDR}"),
            ]
        );
    }

    #[test]
    fn addresses() {
        assert!(ip("10.0.0.1", false).is_empty() && ip("2001:db8::1", false).is_empty());
        assert_eq!(ip("2001:DB8::1", false), ["must be in canonical form (\"2001:db8::1\")"]);
        assert_eq!(ip("10.0.0", false), [NOT_AN_IP]);
        assert_eq!(ip("10.0.0.01", false), ["must not have leading 0s"]);
        assert_eq!(cidr("10.0.0.0/33"), None);
        assert_eq!(cidr("10.0.0.0/08"), None);
        let (address, bits) = cidr("10.1.2.3/16").unwrap();
        assert_eq!(network(address, bits).to_string(), "10.1.0.0");
        assert_eq!(network("fe80::1".parse().unwrap(), 0).to_string(), "::");
    }
}
