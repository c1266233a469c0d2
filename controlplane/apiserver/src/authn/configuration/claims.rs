//! Validates and compiles the rules and mappings of claims.

use super::file::{
    ClaimMappings, ClaimRule, ExtraMapping, JwtAuthenticator, PrefixedClaimOrExpression, UserRule,
};
use super::problems::Problems;
use crate::authn::oidc::expression::{Expression, ExpressionError, Scope};
use crate::authn::oidc::mapping::{Mapping, Rule, Source};
use coracle_proto::names::dns1123_subdomain;
use std::collections::HashSet;

const EMAIL_RULE: &str = "claims.email_verified must be used in claimMappings.username.expression or \
    claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in \
    claimMappings.username.expression";
const BOTH: &str = "claim and expression can't both be set";

/// The rules and mappings of an authenticator; nothing if users would have no names.
pub(super) fn compiled(of: &JwtAuthenticator, field: &str, problems: &mut Problems) -> Option<Mapping> {
    let rules = format!("{field}.claimValidationRules");
    let (required, claim_rules) = claim_rules(&of.claim_validation_rules, &rules, problems);
    let mappings = format!("{field}.claimMappings");
    let ClaimMappings { username, groups, uid, extra } = &of.claim_mappings;
    let name_field = format!("{mappings}.username");
    if username.claim.is_empty() && username.expression.is_empty() {
        problems.required(&name_field, "claim or expression is required");
    }
    let named = source(username, &name_field, problems);
    let groups = source(groups, &format!("{mappings}.groups"), problems);
    let uid = match (uid.claim.is_empty(), uid.expression.is_empty()) {
        (true, true) => None,
        (false, false) => {
            problems.invalid(format!("{mappings}.uid"), "", BOTH);
            None
        }
        (false, true) => Some(Source::Claim { name: uid.claim.clone(), prefix: String::new() }),
        (true, false) => expression(format!("{mappings}.uid.expression"), &uid.expression, problems)
            .map(Source::Expression),
    };
    let extra = extras(extra, &mappings, problems);
    let verified = claim_rules.iter().map(|rule| &rule.expression).chain(extra.iter().map(|(_, one)| one));
    if let Some(Source::Expression(name)) = &named {
        // What cannot be searched reads the address, and does not ask whether it is verified.
        let asks = |one: &Expression| one.reads_claim("email_verified").unwrap_or(false);
        if name.reads_claim("email").unwrap_or(true) && !asks(name) && !verified.into_iter().any(asks) {
            problems.invalid(format!("{name_field}.expression"), &username.expression, EMAIL_RULE);
        }
    }
    let user_rules = user_rules(&of.user_validation_rules, &format!("{field}.userValidationRules"), problems);
    Some(Mapping { required, claim_rules, username: named?, groups, uid, extra, user_rules })
}

/// Claims with their values, and expressions.
type ClaimRules = (Vec<(String, String)>, Vec<Rule>);

fn claim_rules(rules: &[ClaimRule], list: &str, problems: &mut Problems) -> ClaimRules {
    let (mut required, mut compiled) = (Vec::new(), Vec::new());
    let (mut claims, mut expressions) = (HashSet::new(), HashSet::new());
    for (index, rule) in rules.iter().enumerate() {
        let field = format!("{list}[{index}]");
        match (rule.claim.is_empty(), rule.expression.is_empty()) {
            (false, false) => problems.invalid(field, &rule.claim, BOTH),
            (true, true) => problems.required(field, "claim or expression is required"),
            (false, true) => {
                if !rule.message.is_empty() {
                    let why = "may not be specified when claim is set";
                    problems.invalid(format!("{field}.message"), &rule.message, why);
                }
                if !claims.insert(&rule.claim) {
                    problems.duplicate(format!("{field}.claim"), &rule.claim);
                }
                required.push((rule.claim.clone(), rule.required_value.clone()));
            }
            (true, false) => {
                if !rule.required_value.is_empty() {
                    let why = "may not be specified when expression is set";
                    problems.invalid(format!("{field}.requiredValue"), &rule.required_value, why);
                }
                let field = format!("{field}.expression");
                if !expressions.insert(&rule.expression) {
                    problems.duplicate(field, &rule.expression);
                    continue;
                }
                let text = (rule.expression.as_str(), rule.message.as_str());
                compiled.extend(condition(field, text, Scope::Claims, problems));
            }
        }
    }
    (required, compiled)
}

fn user_rules(rules: &[UserRule], list: &str, problems: &mut Problems) -> Vec<Rule> {
    let (mut seen, mut compiled) = (HashSet::new(), Vec::new());
    for (index, rule) in rules.iter().enumerate() {
        let field = format!("{list}[{index}].expression");
        if rule.expression.is_empty() {
            problems.required(field, "");
        } else if !seen.insert(&rule.expression) {
            problems.duplicate(field, &rule.expression);
        } else {
            let text = (rule.expression.as_str(), rule.message.as_str());
            compiled.extend(condition(field, text, Scope::User, problems));
        }
    }
    compiled
}

fn condition(
    field: String,
    (text, message): (&str, &str),
    scope: Scope,
    problems: &mut Problems,
) -> Option<Rule> {
    let expression = Expression::rule(field.clone(), text, scope);
    let expression = reported(&field, text, expression, problems)?;
    let message = if message.is_empty() { field } else { format!("{field}: {message}") };
    Some(Rule { expression, message })
}

fn expression(field: String, text: &str, problems: &mut Problems) -> Option<Expression> {
    let expression = Expression::of_claims(field.clone(), text);
    reported(&field, text, expression, problems)
}

fn reported(
    field: &str,
    text: &str,
    expression: Result<Expression, ExpressionError>,
    problems: &mut Problems,
) -> Option<Expression> {
    expression.map_err(|why| problems.invalid(field, text, &why.to_string())).ok()
}

/// Where names or groups come from.
fn source(of: &PrefixedClaimOrExpression, field: &str, problems: &mut Problems) -> Option<Source> {
    match (of.claim.is_empty(), of.expression.is_empty()) {
        (true, true) => None,
        (false, false) => {
            problems.invalid(field, "", BOTH);
            None
        }
        (false, true) => {
            if of.prefix.is_none() {
                let why = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
                problems.required(format!("{field}.prefix"), why);
            }
            let prefix = of.prefix.clone().unwrap_or_default();
            Some(Source::Claim { name: of.claim.clone(), prefix })
        }
        (true, false) => {
            if let Some(prefix) = &of.prefix {
                let why = "may not be specified when expression is set";
                problems.invalid(format!("{field}.prefix"), prefix, why);
            }
            expression(format!("{field}.expression"), &of.expression, problems).map(Source::Expression)
        }
    }
}

fn extras(extra: &[ExtraMapping], mappings: &str, problems: &mut Problems) -> Vec<(String, Expression)> {
    let (mut seen, mut compiled) = (HashSet::new(), Vec::new());
    for (index, mapping) in extra.iter().enumerate() {
        let field = format!("{mappings}.extra[{index}]");
        let key_field = format!("{field}.key");
        key(&mapping.key, &key_field, problems);
        if !seen.insert(&mapping.key) {
            problems.duplicate(key_field, &mapping.key);
            continue;
        }
        let field = format!("{field}.valueExpression");
        if mapping.value_expression.is_empty() {
            problems.required(field, "");
            continue;
        }
        let expression = expression(field, &mapping.value_expression, problems);
        compiled.extend(expression.map(|expression| (mapping.key.clone(), expression)));
    }
    compiled
}

/// A key such as `example.com/role`.
fn key(key: &str, field: &str, problems: &mut Problems) {
    match key.split_once('/') {
        _ if key.is_empty() => problems.required(field, ""),
        Some((host, path)) if !host.is_empty() && !path.is_empty() => {
            for why in dns1123_subdomain(host) {
                problems.invalid(field, host, &why);
            }
            let allowed = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
            if !path.chars().all(allowed) {
                let why = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
                problems.invalid(field, path, why);
            }
        }
        _ => problems.invalid(field, key, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
    if key.to_lowercase() != key {
        problems.invalid(field, key, "must be lowercase");
    }
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let of = |reserved: &str| {
        domain.strip_suffix(reserved).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    if of("kubernetes.io") || of("k8s.io") {
        let why = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
        problems.invalid(field, key, why);
    }
}
