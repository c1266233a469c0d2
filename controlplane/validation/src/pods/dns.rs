//! Name servers and search paths of a pod.

use crate::field_ref::Field;
use crate::names::is_ip;
use coracle_fields::core::v1::PodSpec;
use coracle_proto::names::dns1123_subdomain_with_underscore;

/// The DNS configuration of a pod.
pub(super) fn check(spec: &Field<'_, PodSpec>) {
    let config = spec.dns_config();
    let servers = config.nameservers();
    if spec.view().dns_policy() == "None" {
        if !config.is_set() {
            return config.required("must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if servers.is_empty() {
            return servers.required("must provide at least one DNS nameserver when `dnsPolicy` is None");
        }
    }
    if servers.len() > 3 {
        servers.invalid("must not have more than 3 nameservers");
    }
    servers.items().for_each(|server| {
        is_ip(&server);
    });
    let searches = config.searches();
    if searches.len() > 32 {
        searches.invalid("must not have more than 32 search paths");
    }
    let length: usize = searches.view().texts().map(|search| search.len() + 1).sum();
    if length > 2049 {
        searches.invalid("must not have more than 2048 characters (including spaces) in the search list");
    }
    for search in searches.items().filter(|search| search.text() != ".") {
        let name = search.text().strip_suffix('.').unwrap_or(search.text());
        for message in dns1123_subdomain_with_underscore(name) {
            search.invalid_as(name, message);
        }
    }
    for option in config.options().items() {
        if option.view().name() == "" {
            option.required("must not be empty");
        }
    }
}
