//! Computes how a request changes the usage of the quotas of its namespace. Pure: no clock, no store.

use crate::admission::config::only;
use coracle_fields::core::v1::{Pod, ResourceQuota, ScopedResourceSelectorRequirement};
use coracle_fields::{Amount, Map, Schema as _, View};
use coracle_kinds::registry::usage::{self, Amounts};
use coracle_proto::quantity::Quantity;
use coracle_proto::status::ApiError;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A resource that may only be used where a quota covers it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Limited {
    api_group: String,
    resource: String,
    match_contains: Vec<String>,
    #[serde(deserialize_with = "scopes")]
    match_scopes: Vec<Value>,
}

fn scopes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    only(deserializer, &["scopeName", "operator", "values"])
}

/// What is asked for.
pub struct Request {
    /// Group and resource.
    pub kind: (String, String),
    /// The new object.
    pub object: Value,
    /// The object as it was.
    pub old: Option<Value>,
    /// What the new object uses.
    pub added: Amounts,
    /// What the old one used.
    pub had: Option<Amounts>,
    /// Whether nothing is to be charged.
    pub dry_run: bool,
}

/// A quota while requests are checked against it.
#[derive(Debug, Clone)]
pub struct Quota {
    /// The object.
    pub object: Value,
    /// What is used by now.
    pub used: Amounts,
    /// What may be used.
    pub hard: Amounts,
}

impl Quota {
    /// A quota as it is stored.
    pub fn new(object: Value) -> Self {
        let status = ResourceQuota::of(&object).status();
        let used = usage::amounts(&status.used().as_value());
        let hard = usage::amounts(&status.hard().as_value());
        Self { object, used, hard }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.view().metadata().name().text()
    }

    fn view(&self) -> View<'_, ResourceQuota> {
        ResourceQuota::of(&self.object)
    }
}

/// Why a request is refused.
#[derive(Debug)]
pub enum Refusal {
    /// A sentence for a 403.
    Forbidden(String),
    /// The quotas could not be read or written.
    Failed(ApiError),
}

impl Refusal {
    /// As the client sees it.
    pub fn into_error(self, at: &super::Attributes<'_>) -> ApiError {
        match self {
            Self::Forbidden(why) => at.forbidden(why),
            Self::Failed(error) => error,
        }
    }
}

/// What a request adds to each quota (by position), or why it may not. The quotas are left as they are.
pub fn check(
    quotas: &[Quota],
    request: &Request,
    limited: &[Limited],
) -> Result<BTreeMap<usize, Amounts>, Refusal> {
    let kind = (request.kind.0.as_str(), request.kind.1.as_str());
    let mut charges = BTreeMap::new();
    let mut held: BTreeSet<&str> = BTreeSet::new();
    for (index, quota) in quotas.iter().enumerate() {
        let spec: BTreeSet<&str> = names(quota.view().spec().hard());
        let touches = spec.iter().any(|resource| usage::concerns(kind, resource));
        if !touches || !usage::covered(&quota.object, kind, &request.object) {
            continue;
        }
        let concerned: Vec<&str> = quota
            .hard
            .keys()
            .map(String::as_str)
            .filter(|resource| usage::concerns(kind, resource))
            .collect();
        if kind == ("", "pods") {
            check_specified(&concerned, &request.object)
                .map_err(|why| Refusal::Forbidden(format!("failed quota: {}: {why}", quota.name())))?;
        }
        // Before the controller has looked at a quota nobody knows what is used.
        let unknown = quota.hard.is_empty() || concerned.iter().any(|name| !quota.used.contains_key(*name));
        if unknown {
            let names: Vec<&str> = if quota.hard.is_empty() {
                spec.into_iter().filter(|resource| usage::concerns(kind, resource)).collect()
            } else {
                concerned
            };
            return Err(Refusal::Forbidden(format!(
                "status unknown for quota: {}, resources: {}",
                quota.name(),
                names.join(",")
            )));
        }
        held.extend(concerned);
        let delta = delta(request, quota);
        if !delta.is_empty() {
            charges.insert(index, delta);
        }
    }
    check_limited(request, limited, &held, quotas)?;
    for (index, delta) in &charges {
        fits(&quotas[*index], delta)?;
    }
    Ok(charges)
}

fn names(amounts: View<'_, Map<Amount>>) -> BTreeSet<&str> {
    amounts.entries().map(|(name, _)| name).collect()
}

/// What a request adds to a quota: everything, or what it adds to an object that was there under the same quota.
fn delta(request: &Request, quota: &Quota) -> Amounts {
    let kind = (request.kind.0.as_str(), request.kind.1.as_str());
    let before = match (&request.old, &request.had) {
        (Some(old), Some(had)) if usage::covered(&quota.object, kind, old) => Some(had),
        _ => None,
    };
    let mut delta = Amounts::new();
    for (name, amount) in &request.added {
        if !quota.hard.contains_key(name) {
            continue;
        }
        let mut more = amount.clone();
        if let Some(had) = before.and_then(|before| before.get(name)) {
            more.sub(had);
        }
        if more.signum() > 0 {
            delta.insert(name.clone(), more);
        }
    }
    delta
}

fn fits(quota: &Quota, delta: &Amounts) -> Result<(), Refusal> {
    let over = |name: &String, more: &Quantity| {
        let mut now = quota.used.get(name).cloned().unwrap_or_else(Quantity::zero);
        now.add(more);
        quota.hard.get(name).is_some_and(|hard| now > *hard)
    };
    let exceeded: Amounts =
        delta.iter().filter(|(name, more)| over(name, more)).map(|(n, q)| (n.clone(), q.clone())).collect();
    if exceeded.is_empty() {
        return Ok(());
    }
    let pick = |from: &Amounts| -> Amounts {
        let known = exceeded.keys().filter_map(|name| Some((name.clone(), from.get(name)?.clone())));
        known.collect()
    };
    Err(Refusal::Forbidden(format!(
        "exceeded quota: {}, requested: {}, used: {}, limited: {}",
        quota.name(),
        print(&exceeded),
        print(&pick(&quota.used)),
        print(&pick(&quota.hard))
    )))
}

/// Resources that containers do not ask for, with the names of the containers.
#[derive(Debug, thiserror::Error)]
#[error("must specify {}", unspecified(.0))]
struct Unspecified(BTreeMap<String, BTreeSet<String>>);

fn unspecified(missing: &BTreeMap<String, BTreeSet<String>>) -> String {
    let join = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(",");
    let parts: Vec<String> = missing.iter().map(|(name, who)| format!("{name} for: {}", join(who))).collect();
    parts.join("; ")
}

/// Where cpu or memory is under quota, every container must say what it asks for.
fn check_specified(concerned: &[&str], pod: &Value) -> Result<(), Unspecified> {
    const MUST: [&str; 6] =
        ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
    let spec = Pod::of(pod).spec();
    let whole = spec.resources();
    if [whole.requests(), whole.limits()].iter().any(|amounts| amounts.entries().next().is_some()) {
        return Ok(());
    }
    let mut missing: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for container in spec.containers().items().chain(spec.init_containers().items()) {
        let resources = container.resources();
        let requests = usage::amounts(&resources.requests().as_value());
        let has = usage::compute(&requests, &usage::amounts(&resources.limits().as_value()));
        for name in concerned.iter().filter(|name| MUST.contains(name) && !has.contains_key(**name)) {
            let container = container.name().text().to_owned();
            missing.entry((*name).to_owned()).or_default().insert(container);
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(Unspecified(missing)) }
}

fn check_limited(
    request: &Request,
    limited: &[Limited],
    held: &BTreeSet<&str>,
    quotas: &[Quota],
) -> Result<(), Refusal> {
    let kind = (request.kind.0.as_str(), request.kind.1.as_str());
    let ours = limited.iter().filter(|l| l.api_group == request.kind.0 && l.resource == request.kind.1);
    let mut uncovered: BTreeSet<&str> = BTreeSet::new();
    for rule in ours {
        for (name, amount) in &request.added {
            let limited = amount.signum() > 0 && rule.match_contains.iter().any(|part| name.contains(part));
            if limited && !held.contains(name.as_str()) {
                uncovered.insert(name);
            }
        }
        for scope in rule.match_scopes.iter().filter(|scope| usage::selected(kind, scope, &request.object)) {
            let scope = ScopedResourceSelectorRequirement::of(scope).scope_name();
            let named = |quota: &Quota| {
                let spec = quota.view().spec();
                let mut expressions = spec.scope_selector().match_expressions().items();
                let fitting = |one: View<'_, ScopedResourceSelectorRequirement>| {
                    one.scope_name().same_as(scope) && usage::selected(kind, &one.as_value(), &request.object)
                };
                expressions.any(fitting) || spec.scopes().items().any(|own| own.same_as(scope))
            };
            if !quotas.iter().any(named) {
                let scope = scope.text();
                return Err(Refusal::Forbidden(format!(
                    "insufficient quota to match these scopes: [{scope}]"
                )));
            }
        }
    }
    if uncovered.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = uncovered.into_iter().collect();
    Err(Refusal::Forbidden(format!("insufficient quota to consume: {}", names.join(","))))
}

/// Amounts as messages have them: `cpu=1,memory=64Mi`.
fn print(amounts: &Amounts) -> String {
    let parts: Vec<String> = amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn quota(name: &str, hard: Value, used: Value) -> Quota {
        let status = if used.is_null() { json!({}) } else { json!({"hard": hard, "used": used}) };
        Quota::new(json!({"metadata": {"name": name}, "spec": {"hard": hard}, "status": status}))
    }

    fn request(kind: (&str, &str), object: Value, old: Option<Value>) -> Request {
        Request {
            kind: (kind.0.into(), kind.1.into()),
            added: usage::usage(kind, &object),
            had: old.as_ref().map(|old| usage::usage(kind, old)),
            object,
            old,
            dry_run: false,
        }
    }

    fn pod(cpu: Option<&str>) -> Request {
        let resources = cpu.map_or(json!({}), |cpu| json!({"requests": {"cpu": cpu}}));
        request(("", "pods"), json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}), None)
    }

    fn outcome(quotas: &[Quota], request: &Request) -> String {
        match check(quotas, request, &[]) {
            Err(Refusal::Forbidden(why)) => why,
            Err(Refusal::Failed(error)) => error.to_string(),
            Ok(charges) => {
                charges.iter().map(|(i, c)| format!("{i}:{}", print(c))).collect::<Vec<_>>().join(" ")
            }
        }
    }

    #[test]
    fn pods_are_charged_or_refused() {
        let cases = [
            (quota("q", json!({"pods": "2"}), json!({"pods": "1"})), pod(None), "0:pods=1"),
            (
                quota("q", json!({"pods": "2"}), json!({"pods": "2"})),
                pod(None),
                "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2",
            ),
            (
                quota("q", json!({"requests.cpu": "1"}), json!({"requests.cpu": "800m"})),
                pod(Some("300m")),
                "exceeded quota: q, requested: requests.cpu=300m, used: requests.cpu=800m, limited: requests.cpu=1",
            ),
            (
                quota("q", json!({"requests.cpu": "1"}), json!({"requests.cpu": "0"})),
                pod(None),
                "failed quota: q: must specify requests.cpu for: c",
            ),
            (
                quota("q", json!({"pods": "1"}), Value::Null),
                pod(None),
                "status unknown for quota: q, resources: pods",
            ),
            (quota("q", json!({"services": "0"}), json!({"services": "0"})), pod(None), ""),
        ];
        for (quota, request, expected) in cases {
            assert_eq!(outcome(&[quota], &request), expected);
        }
    }

    #[test]
    fn a_change_is_charged_for_what_it_adds() {
        let service =
            |kind: &str, ports: usize| json!({"spec": {"type": kind, "ports": vec![json!({}); ports]}});
        let hard = json!({"services": "1", "services.nodeports": "2"});
        let quotas = [quota("q", hard, json!({"services": "1", "services.nodeports": "0"}))];
        let kind = ("", "services");
        let grown = request(kind, service("NodePort", 2), Some(service("ClusterIP", 2)));
        assert_eq!(outcome(&quotas, &grown), "0:services.nodeports=2");
        let same = request(kind, service("ClusterIP", 3), Some(service("ClusterIP", 2)));
        assert_eq!(outcome(&quotas, &same), "");
        let too_many = request(kind, service("NodePort", 3), Some(service("ClusterIP", 2)));
        assert!(
            outcome(&quotas, &too_many).starts_with("exceeded quota: q, requested: services.nodeports=3")
        );
    }

    #[test]
    fn limited_resources_need_a_quota() {
        let limited: Limited =
            serde_json::from_value(json!({"resource": "pods", "matchContains": ["requests.cpu"]})).unwrap();
        let refused = check(&[], &pod(Some("1")), std::slice::from_ref(&limited));
        assert!(
            matches!(refused, Err(Refusal::Forbidden(why)) if why == "insufficient quota to consume: requests.cpu")
        );
        let covering = [quota("q", json!({"requests.cpu": "2"}), json!({"requests.cpu": "0"}))];
        assert!(check(&covering, &pod(Some("1")), &[limited]).is_ok());
    }
}
