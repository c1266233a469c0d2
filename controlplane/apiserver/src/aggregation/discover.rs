//! Reads the discovery documents of an aggregated API server: its resources, from aggregated or legacy discovery, and
//! the locations of its OpenAPI documents.

use super::Extensions;
use super::proxy::BackendResponse;
use super::requestheader::set_requestheaders;
use super::routes::DiscoveredApi;
use super::target::{Target, Unavailable};
use super::transport::{TransportError, address};
use crate::nodes::connection::exchange;
use crate::nodes::dial::Endpoint;
use bytes::Bytes;
use coracle_cli::causes;
use coracle_client::user::{MASTERS, User};
use coracle_fields::Schema as _;
use coracle_fields::meta::APIResourceList;
use coracle_proto::status::ApiError;
use coracle_validation::tree::{Grow, Tree};
use futures::FutureExt;
use http::{Method, Request};
use http_body_util::Empty;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Timeout of probes and discovery requests.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of endpoints probed concurrently.
const TRIES: usize = 5;
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
const PLAIN: &str = "application/json";

/// Error of a probe.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error("failing or missing response from {url}: Get {url:?}: {error}")]
    Get { url: String, error: Box<GetError> },
    #[error("failing or missing response from {url}: bad status from {url}: {code}")]
    Status { url: String, code: u16 },
}

/// Error of a discovery request.
#[derive(Debug, thiserror::Error)]
enum GetError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error(transparent)]
    Exchange(#[from] ApiError),
    #[error("context deadline exceeded")]
    Timeout,
}

/// The user of probes and discovery requests.
pub fn aggregator() -> User {
    User::new("system:kube-aggregator", [MASTERS.to_owned()])
}

impl Extensions {
    /// Checks availability: at least one endpoint must serve the group and version.
    pub async fn check(&self, target: &Target) -> Result<(), Unavailable> {
        let endpoints = self.dialer.endpoints(target)?;
        let failed = |message| Err(Unavailable { reason: "FailedDiscoveryCheck", message });
        if endpoints.is_empty() {
            return failed(format!("no endpoints available for service {:?}", target.service));
        }
        let probes = endpoints.iter().take(TRIES).map(|endpoint| self.probe(target, endpoint).boxed());
        match futures::future::select_ok(probes).await {
            Ok(_) => Ok(()),
            Err(error) => failed(error.to_string()),
        }
    }

    /// Probes one endpoint. The serving certificate is not verified, as upstream does.
    async fn probe(&self, target: &Target, endpoint: &Endpoint) -> Result<(), ProbeError> {
        let url = format!("https://{}{}", address(endpoint), target.root());
        let asked = async {
            let stream = self.dialer.connect(target, endpoint, true).await?;
            let request =
                Request::get(target.root()).header("host", address(endpoint)).header("accept", PLAIN);
            let mut request = request.body(Empty::<Bytes>::new())?;
            set_requestheaders(request.headers_mut(), &aggregator())?;
            Ok::<_, GetError>(exchange(stream, request).await?.status())
        };
        match tokio::time::timeout(REQUEST_TIMEOUT, asked).await.unwrap_or(Err(GetError::Timeout)) {
            Ok(code) if code.is_success() => Ok(()),
            Ok(code) => Err(ProbeError::Status { url, code: code.as_u16() }),
            Err(error) => Err(ProbeError::Get { url, error: Box::new(error) }),
        }
    }

    /// Reads discovery and the OpenAPI index; empty and not `fresh` if discovery fails.
    pub async fn discover(&self, target: &Target) -> DiscoveredApi {
        let resources = match self.resources(target).await {
            Ok(resources) => resources,
            Err(error) => {
                tracing::debug!(api = target.api_version(), error = %causes::chain(&error), "discovery of an aggregated API failed");
                return DiscoveredApi::default();
            }
        };
        let openapi = self.get(target, "/openapi/v3", PLAIN).await;
        let openapi = openapi.ok().filter(|answer| answer.code == 200).map(|answer| json_of(&answer));
        let openapi = openapi.map(|index| documents(target, &index)).unwrap_or_default();
        DiscoveredApi { resources, fresh: true, openapi }
    }

    async fn resources(&self, target: &Target) -> Result<Vec<Value>, TransportError> {
        let answer = self.get(target, "/apis", AGGREGATED).await?;
        let kind = answer.headers.get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let aggregated = kind.is_some_and(|kind| kind.contains("as=APIGroupDiscoveryList"));
        if answer.code == 200 && aggregated {
            return Ok(from_aggregated(target, json_of(&answer)));
        }
        if answer.code == 503 {
            return Err(TransportError::Broken("it is unavailable".into()));
        }
        let root = target.root();
        let answer = self.get(target, &root, PLAIN).await?;
        if answer.code != 200 {
            return Err(TransportError::Broken(format!(
                "failed to download legacy discovery for {root}: {}",
                answer.code
            )));
        }
        Ok(from_legacy(target, &json_of(&answer)))
    }

    async fn get(
        &self,
        target: &Target,
        path: &str,
        accept: &'static str,
    ) -> Result<BackendResponse, TransportError> {
        self.ask(target, &aggregator(), (Method::GET, path, accept), REQUEST_TIMEOUT).await
    }
}

fn json_of(answer: &BackendResponse) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

/// The documents of a group and version, and of its group; what else a server has is not its own here.
fn documents(target: &Target, index: &Value) -> BTreeMap<String, Value> {
    let name = target.root().trim_start_matches('/').to_owned();
    let own = |key: &str| key == name || key == format!("apis/{}", target.group);
    let paths = index.entries("paths");
    paths.filter(|(key, _)| own(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The resources of one group and version in a document of many.
fn from_aggregated(target: &Target, mut document: Value) -> Vec<Value> {
    let groups = list_mut(&mut document, "items");
    let own = groups.filter(|group| group.text("metadata.name") == target.group);
    let mut versions = own.flat_map(|group| list_mut(group, "versions"));
    let found = versions.find(|version| version.text("version") == target.version);
    let mut resources = match found.and_then(|version| version.get_mut("resources")).map(Value::take) {
        Some(Value::Array(resources)) => resources,
        _ => Vec::new(),
    };
    resources.retain(Value::is_object);
    for resource in &mut resources {
        ensure_response_kind(resource);
        list_mut(resource, "subresources").for_each(ensure_response_kind);
    }
    resources
}

/// A list in a document of somebody else, which may hold anything.
fn list_mut<'a>(value: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Sets an empty `responseKind` where it is missing: some client versions crash without it.
fn ensure_response_kind(resource: &mut Value) {
    if !resource.has("responseKind")
        && let Some(fields) = resource.as_object_mut()
    {
        fields.insert("responseKind".into(), json!({"group": "", "version": "", "kind": ""}));
    }
}

/// The same from an `APIResourceList`: subresources go to what they belong to.
fn from_legacy(target: &Target, list: &Value) -> Vec<Value> {
    let mut resources: Vec<Value> = Vec::new();
    let at = |resources: &[Value], name: &str| resources.iter().position(|r| r.text("resource") == name);
    for row in APIResourceList::of(list).resources() {
        let group = row.group().filled().unwrap_or(&target.group);
        let version = row.version().filled().unwrap_or(&target.version);
        let kind = json!({"group": group, "version": version, "kind": row.kind().text()});
        let scope = if row.namespaced().flag() { "Namespaced" } else { "Cluster" };
        let name = row.name().text();
        let (name, subresource) = name.split_once('/').map_or((name, None), |(name, sub)| (name, Some(sub)));
        let place = at(&resources, name).unwrap_or_else(|| {
            // A subresource may come without what it belongs to.
            resources
                .push(json!({"resource": name, "responseKind": {"group": "", "version": "", "kind": ""},
                "scope": scope, "singularResource": "", "verbs": []}));
            resources.len() - 1
        });
        let resource = &mut resources[place];
        if let Some(subresource) = subresource {
            let sub =
                json!({"subresource": subresource, "responseKind": kind, "verbs": row.verbs().to_values()});
            match resource.get_mut("subresources").and_then(Value::as_array_mut) {
                Some(list) => list.push(sub),
                None => resource.put("subresources", json!([sub])),
            }
            continue;
        }
        let mut more = Map::new();
        more.insert("responseKind".into(), kind);
        more.insert("scope".into(), json!(scope));
        more.insert("singularResource".into(), json!(row.singular_name().text()));
        more.insert("verbs".into(), json!(row.verbs().to_values()));
        for (field, texts) in [("shortNames", row.short_names()), ("categories", row.categories())] {
            if !texts.is_empty() {
                more.insert(field.into(), json!(texts));
            }
        }
        if let Some(fields) = resource.as_object_mut() {
            fields.extend(more);
        }
    }
    resources
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_fields::apiregistration::v1::APIService;

    fn target() -> Target {
        let service = json!({"namespace": "apart", "name": "boats"});
        let registration = json!({"spec": {"group": "demo.io", "version": "v1", "service": service}});
        Target::of(APIService::of(&registration)).unwrap()
    }

    #[test]
    fn both_forms_of_discovery_say_the_same() {
        let legacy = json!({"kind": "APIResourceList", "groupVersion": "demo.io/v1", "resources": [
            {"name": "boats", "singularName": "boat", "namespaced": true, "kind": "Boat", "verbs": ["get", "list"], "shortNames": ["b"]},
            {"name": "boats/scale", "singularName": "", "namespaced": true, "kind": "Scale", "group": "autoscaling",
             "version": "v1", "verbs": ["get"]}]});
        let resources = json!([{"resource": "boats", "singularResource": "boat", "scope": "Namespaced",
            "responseKind": {"group": "demo.io", "version": "v1", "kind": "Boat"}, "verbs": ["get", "list"], "shortNames": ["b"],
            "subresources": [{"subresource": "scale", "verbs": ["get"],
                "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}}]}]);
        let aggregated = json!({"items": [{"metadata": {"name": "other.io"}, "versions": [{"version": "v1", "resources": []}]},
            {"metadata": {"name": "demo.io"}, "versions": [{"version": "v2"}, {"version": "v1", "resources": resources}]}]});
        assert_eq!(json!(from_legacy(&target(), &legacy)), resources);
        assert_eq!(json!(from_aggregated(&target(), aggregated)), resources);
        assert!(from_aggregated(&target(), Value::Null).is_empty());
        let bare = json!({"items": [{"metadata": {"name": "demo.io"}, "versions": [
            {"version": "v1", "resources": [{"resource": "boats"}]}]}]});
        let kind = json!({"group": "", "version": "", "kind": ""});
        assert_eq!(
            json!(from_aggregated(&target(), bare)),
            json!([{"resource": "boats", "responseKind": kind}])
        );
    }

    #[test]
    fn only_own_documents_are_taken() {
        let index = json!({"paths": {"api/v1": {}, "apis/demo.io/v1": {"serverRelativeURL": "/x"}, "apis/demo.io/v2": {}}});
        let want = BTreeMap::from([("apis/demo.io/v1".to_owned(), json!({"serverRelativeURL": "/x"}))]);
        assert_eq!(documents(&target(), &index), want);
    }
}
