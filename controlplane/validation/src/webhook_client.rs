//! Where a webhook is: a URL, or a Service of the cluster.

use super::field_ref::Field;
use super::field_rules::TextRules as _;
use coracle_fields::Text;
use coracle_fields::admissionregistration::v1::{ServiceReference, WebhookClientConfig};
use coracle_proto::names::{dns1123_subdomain, port_number};

/// Where a webhook is.
pub(super) fn client_config(config: &Field<'_, WebhookClientConfig>) {
    let (url, service) = (config.url(), config.service());
    match (url.is_set(), service.is_set()) {
        (true, false) => web_address(&url),
        (false, true) => webhook_service(&service),
        _ => config.required("exactly one of url or service is required"),
    }
}

fn web_address(url: &Field<'_, Text>) {
    let form = "; desired format: https://host[/path]";
    let Some(rest) = url.text().strip_prefix("https://") else {
        return url.invalid(format!("'https' is the only allowed URL scheme{form}"));
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.is_empty() {
        url.invalid(format!("host must be specified{form}"));
    }
    if host.contains('@') {
        url.invalid("user information is not permitted in the URL");
    }
    if rest.contains('#') {
        url.invalid("fragments are not permitted in the URL");
    }
    if rest.contains('?') {
        url.invalid("query parameters are not permitted in the URL");
    }
}

fn webhook_service(service: &Field<'_, ServiceReference>) {
    service.name().has_text("service name is required");
    service.namespace().has_text("service namespace is required");
    let wrong = port_number(service.port().or(443));
    if !wrong.is_empty() {
        service.port().invalid(format!("port is not valid: {}", wrong.join(",")));
    }
    service_path(&service.path());
}

/// The path of a webhook behind a Service; none, an empty one and `/` are the same.
fn service_path(path: &Field<'_, Text>) {
    let text = path.text();
    if matches!(text, "" | "/") {
        return;
    }
    if text == "//" {
        return path.invalid("segment[0] may not be empty");
    }
    if !text.starts_with('/') {
        path.invalid("must start with a '/'");
    }
    let mut segments: Vec<&str> = text.trim_start_matches('/').split('/').collect();
    if segments.last() == Some(&"") {
        segments.pop();
    }
    for (i, segment) in segments.into_iter().enumerate() {
        if segment.is_empty() {
            path.invalid(format!("segment[{i}] may not be empty"));
            continue;
        }
        for why in dns1123_subdomain(segment) {
            path.invalid(format!("segment[{i}]: {why}"));
        }
    }
}
