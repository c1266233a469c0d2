//! Discovery documents: `/api`, `/apis` and below, in the legacy and the aggregated format.
//!
//! Documents are rendered on demand and cached until the table of kinds changes.

// Groups and versions, in order.
mod groups;
// The aggregated format.
mod aggregated;

pub(crate) use groups::rank;

use super::respond::{self, Body};
use crate::aggregation::routes::RouteTable;
use aggregated::aggregated;
use base64::Engine;
use bytes::Bytes;
use coracle_fields::meta::{APIGroup, APIGroupList, APIResource, APIResourceList, GroupVersionForDiscovery};
use coracle_fields::{Made, make};
use coracle_kinds::registry::index::Registry;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::ApiError;
use groups::{Group, Served, Version};
use http::header::{CACHE_CONTROL, ETAG, HeaderValue, VARY};
use http::{Response, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

/// The discovery documents.
pub struct Discovery {
    registry: Arc<Registry>,
    aggregated_apis: Arc<RouteTable>,
    made: Mutex<Cached>,
}

/// Documents of one generation of the tables.
#[derive(Default)]
struct Cached {
    generation: (u64, u64),
    documents: HashMap<(String, Form), Document>,
}

/// The requested format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Form {
    /// One document per group and version.
    Legacy,
    /// All of it at once: `APIGroupDiscoveryList` of this version.
    Aggregated(&'static str),
}

#[derive(Clone)]
struct Document {
    bytes: Bytes,
    etag: HeaderValue,
}

impl Discovery {
    /// Discovery of local kinds and aggregated APIs.
    pub fn new(registry: Arc<Registry>, aggregated_apis: Arc<RouteTable>) -> Self {
        Self { registry, aggregated_apis, made: Mutex::default() }
    }

    fn groups(&self) -> Vec<Group> {
        groups::all(&self.registry.all(), &self.aggregated_apis.all())
    }

    /// Every path that is served.
    pub fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> =
            ["/api", "/apis", "/debug/scheduler", "/healthz", "/livez", "/metrics", "/readyz", "/version"]
                .iter()
                .chain(&[
                    "/flagz",
                    "/statusz",
                    "/openapi/v2",
                    "/openapi/v3",
                    "/.well-known/openid-configuration",
                    "/openid/v1/jwks",
                ])
                .map(|path| (*path).to_owned())
                .collect();
        for group in self.groups() {
            let root =
                if group.name.is_empty() { "/api".to_owned() } else { format!("/apis/{}", group.name) };
            paths.extend(group.versions.iter().map(|version| format!("{root}/{}", version.name)));
            paths.push(root);
        }
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// Serves `/api`, `/apis` and what is below; 304 when the client has it already, 404 when there is no such thing.
    pub fn serve(&self, path: &str, accept: &str, if_none_match: &str) -> Result<Response<Body>, ApiError> {
        let path = path.trim_end_matches('/');
        let form = match path {
            "/api" | "/apis" => form(accept),
            _ => Form::Legacy,
        };
        let document = self.document(path, form)?;
        let Form::Aggregated(version) = form else {
            return Ok(respond::bytes(200, respond::JSON, document.bytes));
        };
        let content_type =
            format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
        let fresh = document.etag.to_str().is_ok_and(|etag| etag == if_none_match);
        let mut response =
            respond::bytes(200, &content_type, if fresh { Bytes::new() } else { document.bytes });
        if fresh {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        response.headers_mut().insert(ETAG, document.etag);
        response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public"));
        Ok(response)
    }

    fn document(&self, path: &str, form: Form) -> Result<Document, ApiError> {
        let generation = (*self.registry.changes().borrow(), self.aggregated_apis.generation());
        let key = (path.to_owned(), form);
        let mut made = self.made.lock();
        if made.generation != generation {
            *made = Cached { generation, ..Cached::default() };
        }
        if let Some(document) = made.documents.get(&key) {
            return Ok(document.clone());
        }
        let value = render(&self.groups(), path, form).ok_or_else(ApiError::no_such_path)?;
        let bytes = Bytes::from(serde_json::to_vec(&value).map_err(ApiError::internal)?);
        let etag = HeaderValue::from_str(&format!("\"{}\"", hash(&bytes))).map_err(ApiError::internal)?;
        let document = Document { bytes, etag };
        made.documents.insert(key, document.clone());
        Ok(document)
    }
}

/// Upper-case hex of the document's hash.
pub(super) fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02X}");
        text
    })
}

/// The first form of the `Accept` header that we have; legacy when none is named.
fn form(accept: &str) -> Form {
    for offer in accept.split(',') {
        let mut parts = offer.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let (mut group, mut version, mut kind) = ("", "", "");
        for part in parts {
            match part.split_once('=') {
                Some(("g", value)) => group = value,
                Some(("v", value)) => version = value,
                Some(("as", value)) => kind = value,
                _ => {}
            }
        }
        if media != "application/json" {
            continue;
        }
        match (group, version, kind) {
            ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList") => return Form::Aggregated("v2"),
            ("apidiscovery.k8s.io", "v2beta1", "APIGroupDiscoveryList") => {
                return Form::Aggregated("v2beta1");
            }
            (_, _, "") => return Form::Legacy,
            _ => {}
        }
    }
    Form::Legacy
}

fn render(groups: &[Group], path: &str, form: Form) -> Option<Value> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let find = |name: &str| groups.iter().find(|g| g.name == name);
    match (parts.as_slice(), form) {
        (["api"], Form::Aggregated(version)) => Some(aggregated(find("").into_iter(), version)),
        (["apis"], Form::Aggregated(version)) => {
            Some(aggregated(groups.iter().filter(|g| !g.name.is_empty()), version))
        }
        (["api"], Form::Legacy) => {
            let versions: Vec<&str> = find("")?.versions.iter().map(|v| v.name.as_str()).collect();
            Some(json!({"kind": "APIVersions", "versions": versions, "serverAddressByClientCIDRs": []}))
        }
        (["apis"], Form::Legacy) => {
            let groups: Vec<_> = groups.iter().filter(|g| !g.name.is_empty()).map(legacy_group).collect();
            let list = make!(part APIGroupList { kind: "APIGroupList", api_version: "v1", groups });
            Some(list.into_value())
        }
        (["apis", name], _) if !name.is_empty() => {
            let mut group = legacy_group(find(name)?);
            group.edit().kind().set("APIGroup");
            group.edit().api_version().set("v1");
            Some(group.into_value())
        }
        (["api", version], _) => resources(find("")?, version),
        (["apis", name, version], _) if !name.is_empty() => resources(find(name)?, version),
        _ => None,
    }
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn legacy_group(group: &Group) -> Made<APIGroup> {
    let named = |version: &Version| {
        make!(part GroupVersionForDiscovery {
            group_version: group_version(&group.name, &version.name),
            version: &version.name,
        })
    };
    let versions: Vec<_> = group.versions.iter().map(named).collect();
    make!(part APIGroup { name: &group.name, preferred_version: versions.first(), versions })
}

/// Which stored kind the objects are, in a form that clients compare.
fn storage_version_hash(kind: &Kind) -> String {
    let (group, version) = kind.stored_as.map_or((&*kind.group, &*kind.version), |s| (s.group, s.version));
    let digest = Sha256::digest(format!("{group}/{version}/{}", kind.kind));
    base64::engine::general_purpose::STANDARD.encode(&digest[..8])
}

fn resources(group: &Group, version: &str) -> Option<Value> {
    let found = group.versions.iter().find(|v| v.name == version)?;
    // Who serves elsewhere answers for itself.
    let Served::Local(kinds) = &found.served else { return None };
    let mut list = Vec::new();
    for kind in kinds {
        list.push(make!(part APIResource {
            name: &kind.plural,
            singular_name: &kind.singular,
            namespaced: kind.namespaced(),
            kind: &kind.kind,
            verbs: kind.verbs.to_vec(),
            short_names: some(&kind.short_names),
            categories: some(&kind.categories),
            storage_version_hash: kind.stored.then(|| storage_version_hash(kind)),
        }));
        let mut subresources: Vec<_> = kind.subresources.iter().map(|s| s.exposed(kind)).collect();
        subresources.sort_by_key(|s| s.name);
        for sub in subresources {
            let own = (&*sub.group, &*sub.version) == (&*kind.group, &*kind.version);
            list.push(make!(part APIResource {
                name: format!("{}/{}", kind.plural, sub.name),
                singular_name: "",
                namespaced: kind.namespaced(),
                kind: sub.kind,
                verbs: sub.verbs.to_vec(),
                group: (!own).then_some(sub.group),
                version: (!own).then_some(sub.version),
            }));
        }
    }
    let made = make!(part APIResourceList {
        kind: "APIResourceList",
        api_version: "v1",
        group_version: group_version(&group.name, version),
        resources: list,
    });
    Some(made.into_value())
}

/// Names, if there are any.
fn some(names: &[String]) -> Option<Vec<String>> {
    (!names.is_empty()).then(|| names.to_vec())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use http_body_util::BodyExt;

    const KUBECTL: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
        application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

    async fn get(discovery: &Discovery, path: &str, accept: &str) -> Value {
        let body = discovery.serve(path, accept, "").unwrap().into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&body).unwrap()
    }

    #[test]
    fn accept_headers_choose_the_form() {
        assert_eq!(form(KUBECTL), Form::Aggregated("v2"));
        assert_eq!(
            form("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"),
            Form::Aggregated("v2beta1")
        );
        for plain in ["", "*/*", "application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"] {
            assert_eq!(form(plain), Form::Legacy, "{plain}");
        }
    }

    #[tokio::test]
    async fn aggregated_documents_list_everything() {
        let registry = Arc::new(Registry::builtin());
        let discovery = Discovery::new(registry.clone(), Arc::default());
        let core = get(&discovery, "/api", KUBECTL).await;
        let pods = core["items"][0]["versions"][0]["resources"].as_array().unwrap();
        let pods = pods.iter().find(|r| r["resource"] == "pods").unwrap();
        assert_eq!(pods["responseKind"], json!({"group": "", "version": "v1", "kind": "Pod"}));
        let eviction =
            pods["subresources"].as_array().unwrap().iter().find(|s| s["subresource"] == "eviction").unwrap();
        assert_eq!(eviction["responseKind"], json!({"group": "policy", "version": "v1", "kind": "Eviction"}));
        let all = get(&discovery, "/apis", KUBECTL).await;
        assert_eq!(all["apiVersion"], "apidiscovery.k8s.io/v2");
        let names: Vec<&str> = all["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|g| g["metadata"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(names[..3], ["apiregistration.k8s.io", "apps", "events.k8s.io"]);
        let autoscaling =
            all["items"].as_array().unwrap().iter().find(|g| g["metadata"]["name"] == "autoscaling").unwrap();
        assert_eq!(autoscaling["versions"][0]["version"], "v2");
        registry.register(Kind::new("demo.io", "v1", "Boat", "boats"));
        let all = get(&discovery, "/apis", KUBECTL).await;
        assert_eq!(all["items"].as_array().unwrap().last().unwrap()["metadata"]["name"], "demo.io");
    }

    #[tokio::test]
    async fn legacy_documents_have_one_level_each() {
        let discovery = Discovery::new(Arc::new(Registry::builtin()), Arc::default());
        assert_eq!(get(&discovery, "/api", "").await["versions"], json!(["v1"]));
        let group = get(&discovery, "/apis/autoscaling", "").await;
        assert_eq!(group["preferredVersion"]["groupVersion"], "autoscaling/v2");
        let apps = get(&discovery, "/apis/apps/v1", KUBECTL).await;
        let rows = apps["resources"].as_array().unwrap();
        let row = |name: &str| rows.iter().find(|r| r["name"] == name).unwrap();
        assert_eq!(row("deployments/scale")["kind"], "Scale");
        assert_eq!(row("deployments/scale")["group"], "autoscaling");
        assert_eq!(row("deployments/status").get("group"), None);
        assert_eq!(row("deployments")["storageVersionHash"], "8aSe+NMegvE=");
        assert_eq!(discovery.serve("/apis/nope/v1", "", "").unwrap_err().code, 404);
        assert_eq!(discovery.serve("/api/v2", "", "").unwrap_err().code, 404);
    }

    #[test]
    fn a_known_etag_is_not_sent_again() {
        let discovery = Discovery::new(Arc::new(Registry::builtin()), Arc::default());
        let first = discovery.serve("/apis", KUBECTL, "").unwrap();
        let etag = first.headers()[ETAG].to_str().unwrap();
        assert_eq!(discovery.serve("/apis", KUBECTL, etag).unwrap().status(), StatusCode::NOT_MODIFIED);
    }
}
