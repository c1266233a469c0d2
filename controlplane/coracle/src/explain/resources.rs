//! Resources as users write them: kind, plural or short name, found by discovery.

use super::connect::Connected;
use serde::Deserialize;
use serde_json::Value;

/// All groups in one answer, from servers that have it.
const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// A resource of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// API group, empty for the core group.
    pub group: String,
    /// The version that the server prefers.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Name in paths, such as `pods`.
    pub plural: String,
    /// Abbreviations, such as `po`.
    pub short: Vec<String>,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
}

impl Resource {
    /// `deployments.apps`, and `pods` in the core group.
    pub fn key(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `apps/v1`, and `v1` in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The path of its objects in a namespace.
    pub fn path(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        let (version, plural) = (&self.version, &self.plural);
        if self.namespaced && !namespace.is_empty() {
            format!("{root}/{version}/namespaces/{namespace}/{plural}")
        } else {
            format!("{root}/{version}/{plural}")
        }
    }

    /// Whether a user who writes `name` means this resource: `deployment`, `deploy`, `deployments.apps`,
    /// `deployments.v1.apps`, in any case.
    fn is_called(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        let (name, group) =
            name.split_once('.').map_or((name.as_str(), None), |(name, group)| (name, Some(group)));
        let named = self.kind.to_lowercase() == name
            || self.plural == name
            || self.short.iter().any(|short| short == name);
        named
            && group.is_none_or(|group| {
                self.group == group || format!("{}.{}", self.version, self.group) == group
            })
    }
}

/// The resource that a name means; of several the first of the server's order.
pub fn find<'a>(resources: &'a [Resource], name: &str) -> Option<&'a Resource> {
    resources.iter().find(|resource| resource.is_called(name))
}

/// The resource of a key such as `deployments.apps`.
pub fn by_key<'a>(resources: &'a [Resource], key: &str) -> Option<&'a Resource> {
    let (plural, group) = key.split_once('.').unwrap_or((key, ""));
    resources.iter().find(|resource| resource.plural == plural && resource.group == group)
}

/// The resources of a server, the core group first.
pub async fn discover(connected: &Connected) -> Result<Vec<Resource>, kube::Error> {
    let (core, others) =
        futures::try_join!(connected.get_as("/api", AGGREGATED), connected.get_as("/apis", AGGREGATED))?;
    let mut all = Vec::new();
    for answer in [core, others] {
        match aggregated(&answer) {
            Some(resources) => all.extend(resources),
            None => all.extend(separately(connected, &answer).await),
        }
    }
    Ok(all)
}

/// Reads each group by itself, for servers that cannot give all of them at once. A group that is away is left out.
async fn separately(connected: &Connected, answer: &Value) -> Vec<Resource> {
    let versions = match Groups::deserialize(answer) {
        // The core group has only versions.
        Ok(list) if list.groups.is_empty() => vec![(String::new(), "v1".to_owned())],
        Ok(list) => {
            list.groups.into_iter().map(|group| (group.name, group.preferred_version.version)).collect()
        }
        Err(_) => Vec::new(),
    };
    let lists = versions.into_iter().map(|(group, version)| async move {
        let path =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let list = Resources::deserialize(&connected.get(&path).await.ok()?).ok()?;
        let whole = list.resources.into_iter().filter(|resource| !resource.name.contains('/'));
        let resources = whole.map(|resource| Resource {
            group: group.clone(),
            version: version.clone(),
            kind: resource.kind,
            plural: resource.name,
            short: resource.short_names,
            namespaced: resource.namespaced,
        });
        Some(resources.collect::<Vec<_>>())
    });
    futures::future::join_all(lists).await.into_iter().flatten().flatten().collect()
}

/// The resources of an aggregated answer; none if it is another one.
fn aggregated(answer: &Value) -> Option<Vec<Resource>> {
    if answer.get("kind").and_then(Value::as_str) != Some("APIGroupDiscoveryList") {
        return None;
    }
    let mut all: Vec<Resource> = Vec::new();
    for group in Discovery::deserialize(answer).ok()?.items {
        for version in group.versions {
            for resource in version.resources {
                // The versions are in order of preference.
                let is_known = |known: &Resource| {
                    known.group == group.metadata.name && known.plural == resource.resource
                };
                if all.iter().any(is_known) {
                    continue;
                }
                all.push(Resource {
                    group: group.metadata.name.clone(),
                    version: version.version.clone(),
                    kind: resource.response_kind.kind,
                    plural: resource.resource,
                    short: resource.short_names,
                    namespaced: resource.scope == "Namespaced",
                });
            }
        }
    }
    Some(all)
}

#[derive(Deserialize)]
struct Discovery {
    items: Vec<GroupDiscovery>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GroupDiscovery {
    metadata: Metadata,
    versions: Vec<VersionDiscovery>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
struct VersionDiscovery {
    version: String,
    #[serde(default)]
    resources: Vec<ResourceDiscovery>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceDiscovery {
    resource: String,
    #[serde(default)]
    response_kind: ResponseKind,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    short_names: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResponseKind {
    kind: String,
}

#[derive(Deserialize)]
struct Groups {
    #[serde(default)]
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    name: String,
    preferred_version: PreferredVersion,
}

#[derive(Deserialize)]
struct PreferredVersion {
    version: String,
}

#[derive(Deserialize)]
struct Resources {
    resources: Vec<ListedResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedResource {
    name: String,
    kind: String,
    namespaced: bool,
    #[serde(default)]
    short_names: Vec<String>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn resources() -> Vec<Resource> {
        let deployments = json!({"resource": "deployments", "responseKind": {"group": "apps", "version": "v1", "kind": "Deployment"},
            "scope": "Namespaced", "singularResource": "deployment", "shortNames": ["deploy"], "verbs": ["get"]});
        let older =
            json!({"resource": "deployments", "responseKind": {"kind": "Deployment"}, "scope": "Namespaced"});
        let nodes = json!({"resource": "nodes", "responseKind": {"kind": "Node"}, "scope": "Cluster", "shortNames": ["no"]});
        let answer = json!({"kind": "APIGroupDiscoveryList", "items": [
            {"versions": [{"version": "v1", "resources": [nodes]}]},
            {"metadata": {"name": "apps"}, "versions": [
                {"version": "v1", "resources": [deployments]}, {"version": "v1beta1", "resources": [older]}]}]});
        aggregated(&answer).unwrap()
    }

    #[test]
    fn names_that_users_write() {
        let all = resources();
        assert_eq!(all.len(), 2, "of two versions the preferred one");
        for name in ["deployment", "Deployments", "deploy", "deployments.apps", "deployment.v1.apps"] {
            assert_eq!(find(&all, name).unwrap().key(), "deployments.apps", "{name}");
        }
        for name in ["deployments.batch", "dep", ""] {
            assert_eq!(find(&all, name), None, "{name}");
        }
        assert_eq!(by_key(&all, "nodes").unwrap().kind, "Node");
        assert_eq!(by_key(&all, "deployments"), None);
    }

    #[test]
    fn paths() {
        let all = resources();
        assert_eq!(find(&all, "deploy").unwrap().path("a"), "/apis/apps/v1/namespaces/a/deployments");
        assert_eq!(find(&all, "no").unwrap().path("a"), "/api/v1/nodes");
    }

    #[test]
    fn other_answers_are_not_aggregated() {
        assert_eq!(aggregated(&json!({"kind": "APIVersions", "versions": ["v1"]})), None);
    }
}
