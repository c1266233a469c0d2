//! What the server serves.

use super::respond::{self, Body};
use crate::registry::index::Registry;
use coracle_proto::status::ApiError;
use http::Response;
use serde_json::{Value, json};
use std::sync::Arc;

/// The discovery documents.
pub struct Discovery {
    registry: Arc<Registry>,
}

impl Discovery {
    /// Of a table of kinds.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self { registry }
    }

    /// Every path that is served.
    pub fn paths(&self) -> Vec<String> {
        vec!["/api".into(), "/apis".into()]
    }

    /// Serves `/api`, `/apis` and what is below.
    pub fn serve(&self, path: &str, _accept: &str, _etag: &str) -> Result<Response<Body>, ApiError> {
        let all = self.registry.all();
        let mut versions: Vec<(String, String)> =
            all.iter().map(|k| (k.group.clone(), k.version.clone())).collect();
        versions.dedup();
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version) = match parts.as_slice() {
            ["api"] => {
                return Ok(respond::json(
                    200,
                    &json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
                ));
            }
            ["apis"] => {
                let groups: Vec<Value> = versions
                    .iter()
                    .filter(|(g, _)| !g.is_empty())
                    .map(|(g, v)| {
                        let gv = json!({"groupVersion": format!("{g}/{v}"), "version": v});
                        json!({"name": g, "versions": [gv], "preferredVersion": gv})
                    })
                    .collect();
                return Ok(respond::json(
                    200,
                    &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}),
                ));
            }
            ["api", version] => ("", *version),
            ["apis", group, version] => (*group, *version),
            _ => return Err(ApiError::no_such_path()),
        };
        let resources: Vec<Value> = all.iter().filter(|k| k.group == group && k.version == version).map(|k| {
            json!({"name": k.plural, "singularName": k.singular, "namespaced": k.namespaced(), "kind": k.kind, "verbs": k.verbs, "shortNames": k.short_names})
        }).collect();
        let gv = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        Ok(respond::json(
            200,
            &json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": gv, "resources": resources}),
        ))
    }
}
