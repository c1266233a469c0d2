//! Validates issuers: their addresses, audiences and authorities.

use super::file::IssuerFields;
use super::problems::Problems;
use crate::authn::oidc::{ALGORITHMS, Issuer};
use crate::https_client::root_store;
use coracle_proto::status::FieldError;
use std::collections::HashSet;

/// The one policy that there is.
const MATCH_ANY: &str = "MatchAny";

/// The issuer of the fields; what is wrong with them is among the problems then.
pub(super) fn validated(of: &IssuerFields, own: &[String], field: &str, problems: &mut Problems) -> Issuer {
    let url_field = format!("{field}.url");
    if of.url.is_empty() {
        problems.required(&url_field, "");
    } else {
        if own.contains(&of.url) {
            let why = format!("URL must not overlap with disallowed issuers: [{}]", own.join(" "));
            problems.invalid(&url_field, &of.url, &why);
        }
        url(&of.url, &url_field, problems);
    }
    let discovery_url = of.discovery_url.clone().filter(|url| !url.is_empty());
    if let Some(other) = &discovery_url {
        let field = format!("{field}.discoveryURL");
        if other.trim_end_matches('/') == of.url.trim_end_matches('/') {
            problems.invalid(&field, other, "discoveryURL must be different from URL");
        }
        url(other, &field, problems);
    }
    audiences(of, field, problems);
    if !of.certificate_authority.is_empty()
        && let Err(error) = root_store(Some(of.certificate_authority.as_bytes()))
    {
        problems.invalid(format!("{field}.certificateAuthority"), "<omitted>", &error.to_string());
    }
    if !of.egress_selector_type.is_empty() {
        let why = "egress selectors are not supported";
        problems.add(FieldError::forbidden(format!("{field}.egressSelectorType"), why));
    }
    Issuer {
        url: of.url.clone(),
        discovery_url,
        authority: Some(of.certificate_authority.clone()).filter(|pem| !pem.is_empty()),
        audiences: of.audiences.clone(),
        algorithms: ALGORITHMS.to_vec(),
    }
}

fn url(text: &str, field: &str, problems: &mut Problems) {
    let url = match reqwest::Url::parse(text) {
        Ok(url) => url,
        Err(error) => return problems.invalid(field, text, &error.to_string()),
    };
    let password = !url.username().is_empty() || url.password().is_some();
    for (wrong, why) in [
        (url.scheme() != "https", "URL scheme must be https"),
        (password, "URL must not contain a username or password"),
        (url.query().is_some_and(|query| !query.is_empty()), "URL must not contain a query"),
        (url.fragment().is_some_and(|fragment| !fragment.is_empty()), "URL must not contain a fragment"),
    ] {
        if wrong {
            // It may have a password.
            let shown = if password { "<omitted>" } else { text };
            problems.invalid(field, shown, why);
        }
    }
}

fn audiences(of: &IssuerFields, field: &str, problems: &mut Problems) {
    let list = format!("{field}.audiences");
    if of.audiences.is_empty() {
        return problems.required(&list, &format!("at least one {list} is required"));
    }
    let mut seen = HashSet::new();
    for (index, audience) in of.audiences.iter().enumerate() {
        if audience.is_empty() {
            problems.required(format!("{list}[{index}]"), "");
        }
        if !seen.insert(audience) {
            problems.duplicate(format!("{list}[{index}]"), audience);
        }
    }
    let policy = of.audience_match_policy.as_str();
    let why = match (of.audiences.len(), policy) {
        (_, MATCH_ANY) | (1, "") => return,
        (1, _) => "audienceMatchPolicy must be empty or MatchAny for single audience",
        _ => "audienceMatchPolicy must be MatchAny for multiple audiences",
    };
    problems.invalid(format!("{field}.audienceMatchPolicy"), policy, why);
}
