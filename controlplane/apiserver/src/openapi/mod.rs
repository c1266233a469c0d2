//! OpenAPI documents: OpenAPI 3 per group and version, OpenAPI 2 as one document.
//!
//! Documents are large and rarely requested: each is rendered on demand, compressed with gzip while it is written, and
//! cached compressed until the table of kinds changes.

// Descriptions of types and fields.
mod descriptions;
// Types as JSON schemas.
mod schemas;
// Schemas of custom resources.
mod custom;
// Parts of documents.
mod document;
// Operations of a kind.
mod operations;
// Paths of a kind.
mod paths;
// OpenAPI 2 as protobuf.
mod protobuf;

use super::context::Context;
use super::discovery::{hash, rank};
use super::respond::{self, Body};
use crate::aggregation::routes::RouteTable;
use bytes::Bytes;
use coracle_kinds::registry::index::Registry;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::schema;
use coracle_proto::status::ApiError;
use custom::OBJECT_META;
use descriptions::Descriptions;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, ETAG, HeaderValue, LOCATION, VARY};
use http::{Response, StatusCode};
use parking_lot::Mutex;
use paths::PathItem;
use schemas::Dialect;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::sync::Arc;

const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The OpenAPI documents.
pub struct OpenApi {
    registry: Arc<Registry>,
    aggregated_apis: Arc<RouteTable>,
    made: Mutex<Cached>,
}

#[derive(Default)]
struct Cached {
    generation: u64,
    documents: HashMap<DocumentKey, Document>,
}

/// Identifies a document.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum DocumentKey {
    V2Json,
    V2Protobuf,
    /// `api/v1`, `apis/apps/v1`.
    V3(String),
}

/// A cached document.
#[derive(Clone)]
struct Document {
    gzip: Bytes,
    etag: String,
}

/// Headers of a request for a document.
struct DocumentRequest<'a> {
    accept: &'a str,
    gzip: bool,
    if_none_match: &'a str,
    hash: &'a str,
}

impl OpenApi {
    /// Of the kinds that are served here; where the documents of others are is in the index.
    pub fn new(registry: Arc<Registry>, aggregated_apis: Arc<RouteTable>) -> Self {
        Self { registry, aggregated_apis, made: Mutex::default() }
    }

    /// Serves `/openapi/…`: 304 for what the client has, a redirect for a hash that is out of date.
    pub fn serve(&self, path: &str, context: &Context) -> Result<Response<Body>, ApiError> {
        let query =
            |name: &str| context.query.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value);
        let wanted = DocumentRequest {
            accept: context.header("accept"),
            gzip: context.header("accept-encoding").contains("gzip"),
            if_none_match: context.header("if-none-match"),
            hash: query("hash"),
        };
        self.answer(path, &wanted)
    }

    fn answer(&self, path: &str, wanted: &DocumentRequest<'_>) -> Result<Response<Body>, ApiError> {
        let path = path.trim_end_matches('/');
        match path.strip_prefix("/openapi/") {
            Some("v2") if wanted.accept.contains("protobuf") => {
                Ok(reply(&self.packed(&DocumentKey::V2Protobuf)?, V2_PROTOBUF, wanted))
            }
            Some("v2") => Ok(reply(&self.packed(&DocumentKey::V2Json)?, respond::JSON, wanted)),
            Some("v3") => Ok(respond::json(200, &self.index())),
            Some(rest) => {
                let name = rest.strip_prefix("v3/").ok_or_else(ApiError::no_such_path)?;
                self.group_version(name, wanted)
            }
            None => Err(ApiError::no_such_path()),
        }
    }

    fn group_version(&self, name: &str, wanted: &DocumentRequest<'_>) -> Result<Response<Body>, ApiError> {
        let rows = self.by_version();
        let kinds = rows.get(name).ok_or_else(ApiError::no_such_path)?;
        let current = fingerprint(name, kinds);
        if !wanted.hash.is_empty() && wanted.hash != current {
            let mut response = respond::bytes(301, respond::JSON, Bytes::new());
            if let Ok(value) = HeaderValue::from_str(&format!("/openapi/v3/{name}?hash={current}")) {
                response.headers_mut().insert(LOCATION, value);
            }
            return Ok(response);
        }
        let mut response = reply(&self.packed(&DocumentKey::V3(name.to_owned()))?, respond::JSON, wanted);
        if !wanted.hash.is_empty() {
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
        }
        Ok(response)
    }

    /// Kinds by `api/v1`, `apis/apps/v1` …
    fn by_version(&self) -> BTreeMap<String, Vec<Arc<Kind>>> {
        let mut all: BTreeMap<String, Vec<Arc<Kind>>> = BTreeMap::new();
        for kind in self.registry.all() {
            let root = if kind.group.is_empty() { "api" } else { "apis" };
            all.entry(format!("{root}/{}", kind.api_version())).or_default().push(kind);
        }
        all
    }

    fn index(&self) -> Value {
        let mut paths: serde_json::Map<String, Value> = self
            .by_version()
            .iter()
            .map(|(name, kinds)| {
                let url = format!("/openapi/v3/{name}?hash={}", fingerprint(name, kinds));
                (name.clone(), json!({"serverRelativeURL": url}))
            })
            .collect();
        let aggregated_apis = self.aggregated_apis.all();
        let documents = aggregated_apis.iter().flat_map(|entry| entry.discovered.openapi.clone());
        paths.extend(documents);
        json!({"paths": paths})
    }

    fn packed(&self, what: &DocumentKey) -> Result<Document, ApiError> {
        let generation = *self.registry.changes().borrow();
        let mut made = self.made.lock();
        if made.generation != generation {
            *made = Cached { generation, ..Cached::default() };
        }
        if let Some(packed) = made.documents.get(what) {
            return Ok(packed.clone());
        }
        let packed = self.make(what).map_err(ApiError::internal)?;
        made.documents.insert(what.clone(), packed.clone());
        Ok(packed)
    }

    fn make(&self, what: &DocumentKey) -> std::io::Result<Document> {
        let rows = self.by_version();
        let every: Vec<Arc<Kind>> = rows.values().flatten().cloned().collect();
        let mut versions: Vec<(String, String)> =
            every.iter().map(|kind| (kind.group.clone(), kind.version.clone())).collect();
        versions.sort_by_key(|(group, version)| (group.clone(), Reverse(rank(version))));
        versions.dedup();
        let none = Vec::new();
        let (kinds, dialect) = match what {
            DocumentKey::V3(name) => (rows.get(name).unwrap_or(&none), Dialect::V3),
            _ => (&every, Dialect::V2),
        };
        let source = Source { kinds, dialect, versions: &versions, docs: Descriptions::load() };
        let mut out = GzEncoder::new(Vec::new(), Compression::fast());
        match what {
            DocumentKey::V2Protobuf => out.write_all(&source.protobuf())?,
            _ => source.write_json(&mut out)?,
        }
        let gzip = out.finish()?;
        let etag = format!("\"{}\"", hash(&gzip));
        Ok(Document { gzip: gzip.into(), etag })
    }
}

/// Changes when the document would: with the rows, the table or the program.
fn fingerprint(name: &str, kinds: &[Arc<Kind>]) -> String {
    let table = (schema::types().len(), schema::has_initializers());
    let mut text = format!("{} {name} {table:?}", env!("CARGO_PKG_VERSION"));
    for kind in kinds {
        let Kind { kind, plural, schema, verbs, subresources, scope, custom, .. } = &**kind;
        if let Some(custom) = custom {
            text.push_str(&custom.schema.to_string());
        }
        text.push_str(&format!("\n{kind} {plural} {schema} {verbs:?} {subresources:?} {scope:?}"));
    }
    hash(text.as_bytes())
}

fn reply(packed: &Document, content_type: &str, wanted: &DocumentRequest<'_>) -> Response<Body> {
    let fresh = wanted.if_none_match == packed.etag;
    let body = match (fresh, wanted.gzip) {
        (true, _) => Bytes::new(),
        (false, true) => packed.gzip.clone(),
        (false, false) => {
            let mut plain = Vec::new();
            if GzDecoder::new(&packed.gzip[..]).read_to_end(&mut plain).is_err() {
                plain.clear();
            }
            plain.into()
        }
    };
    let mut response = respond::bytes(200, content_type, body);
    let headers = response.headers_mut();
    if wanted.gzip && !fresh {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    if let Ok(etag) = HeaderValue::from_str(&packed.etag) {
        headers.insert(ETAG, etag);
    }
    if fresh {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    response
}

/// What a document is made from.
struct Source<'a> {
    kinds: &'a [Arc<Kind>],
    dialect: Dialect,
    versions: &'a [(String, String)],
    docs: Descriptions,
}

impl Source<'_> {
    fn info() -> Value {
        json!({"title": "Kubernetes", "version": coracle_proto::version::KUBERNETES})
    }

    /// One after the other, so that only one is in memory at a time.
    fn paths(&self) -> impl Iterator<Item = PathItem> {
        self.kinds.iter().flat_map(|kind| paths::of(kind, self.dialect))
    }

    /// The names of all schemas that the paths need.
    fn names(&self) -> Vec<String> {
        let mut roots = vec![schemas::PATCH.to_owned()];
        for name in ["DeleteOptions", "Status", "WatchEvent", "APIResourceList", "APIGroup", "APIGroupList"] {
            roots.push(format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}"));
        }
        if self.kinds.iter().any(|kind| kind.custom.is_some()) {
            roots.push(OBJECT_META.to_owned());
        }
        for kind in self.kinds {
            roots.push(kind.schema.clone());
            roots.extend(schema::type_of(&format!("{}List", kind.schema)).map(schema::Type::full_name));
            for sub in kind.subresources.iter().map(|sub| sub.exposed(kind)) {
                let found = schema::kind_type(&sub.group, &sub.version, &sub.kind);
                roots.extend(found.map(schema::Type::full_name));
            }
        }
        schemas::reachable(roots.into_iter().filter(|name| !name.is_empty())).into_iter().collect()
    }

    fn definition(&self, name: &str) -> Value {
        let mut made = schemas::definition(name, self.dialect, &self.docs, self.versions);
        // Older versions have types of newer ones: which of them this document is about.
        let views = self.kinds.iter().filter(|kind| kind.schema == name && kind.custom.is_none());
        let views: Vec<Value> = views
            .map(|kind| json!({"group": kind.group, "kind": kind.kind, "version": kind.version}))
            .collect();
        let is_older =
            |view: &Value| !name.contains(&format!(".{}.", view["version"].as_str().unwrap_or("")));
        if views.iter().any(is_older) {
            made["x-kubernetes-group-version-kind"] = Value::Array(views);
        }
        // A kind that the table does not know is a custom resource: say at least what it is.
        if schema::type_of(name).is_none()
            && let Some(kind) = self.kinds.iter().find(|kind| kind.schema == name)
        {
            if let Some(custom) = &kind.custom {
                made = custom::definition(&custom.schema, self.dialect, &self.docs);
            }
            made["x-kubernetes-group-version-kind"] =
                json!([{"group": kind.group, "kind": kind.kind, "version": kind.version}]);
        }
        made
    }

    fn write_json(&self, out: &mut impl Write) -> std::io::Result<()> {
        let (head, schemas, tail) = match self.dialect {
            Dialect::V2 => ("\"swagger\":\"2.0\"", "\"definitions\":{", "}}"),
            Dialect::V3 => ("\"openapi\":\"3.0.0\"", "\"components\":{\"schemas\":{", "}}}"),
        };
        write!(out, "{{{head},\"info\":{},\"paths\":{{", Self::info())?;
        for (i, PathItem { path, item }) in self.paths().enumerate() {
            write!(out, "{}{}:{item}", if i == 0 { "" } else { "," }, Value::from(path))?;
        }
        write!(out, "}},{schemas}")?;
        for (i, name) in self.names().iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(out, "{comma}{}:{}", Value::from(name.as_str()), self.definition(name))?;
        }
        out.write_all(tail.as_bytes())
    }

    fn protobuf(&self) -> Vec<u8> {
        let mut written = protobuf::Message::default();
        for PathItem { path, item } in self.paths() {
            written.bytes(2, &protobuf::named(&path, &protobuf::path_item(&item)).finish());
        }
        let mut definitions = protobuf::Message::default();
        for name in self.names() {
            let schema = protobuf::schema(&self.definition(&name));
            definitions.bytes(1, &protobuf::named(&name, &schema).finish());
        }
        protobuf::document(&Self::info(), &written, &definitions).finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use http_body_util::BodyExt;

    fn plain(accept: &'static str) -> DocumentRequest<'static> {
        DocumentRequest { accept, gzip: false, if_none_match: "", hash: "" }
    }

    async fn body(response: Response<Body>) -> Bytes {
        response.into_body().collect().await.unwrap().to_bytes()
    }

    async fn json_of(api: &OpenApi, path: &str) -> Value {
        serde_json::from_slice(&body(api.answer(path, &plain("application/json")).unwrap()).await).unwrap()
    }

    #[tokio::test]
    async fn v3_has_a_document_for_every_group_and_version() {
        let api = OpenApi::new(Arc::new(Registry::builtin()), Arc::default());
        let index = json_of(&api, "/openapi/v3").await;
        let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap();
        let hash = url.split_once("?hash=").unwrap().1;
        let fresh = DocumentRequest { hash, ..plain("") };
        let response = api.answer("/openapi/v3/apis/apps/v1", &fresh).unwrap();
        assert_eq!(response.headers()[CACHE_CONTROL], "public, immutable");
        let apps: Value = serde_json::from_slice(&body(response).await).unwrap();
        let get = &apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
        assert_eq!(
            get["x-kubernetes-group-version-kind"],
            json!({"group": "apps", "kind": "Deployment", "version": "v1"})
        );
        assert!(get["parameters"].as_array().unwrap().iter().any(|p| p["name"] == "fieldValidation"));
        assert!(
            apps["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
                .is_object()
        );
        let stale =
            api.answer("/openapi/v3/apis/apps/v1", &DocumentRequest { hash: "OLD", ..plain("") }).unwrap();
        assert_eq!(stale.status(), 301);
        assert_eq!(stale.headers()[LOCATION], url);
        assert_eq!(api.answer("/openapi/v3/apis/nope/v1", &plain("")).unwrap_err().code, 404);
    }

    #[tokio::test]
    async fn v2_is_one_document_without_dangling_references() {
        let api = OpenApi::new(Arc::new(Registry::builtin()), Arc::default());
        let first = api.answer("/openapi/v2", &plain("application/json")).unwrap();
        let etag = first.headers()[ETAG].to_str().unwrap().to_owned();
        let bytes = body(first).await;
        let text = std::str::from_utf8(&bytes).unwrap();
        let document: Value = serde_json::from_str(text).unwrap();
        let definitions = document["definitions"].as_object().unwrap();
        for reference in text.split("#/definitions/").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(definitions.contains_key(reference), "{reference}");
        }
        let again = api
            .answer("/openapi/v2", &DocumentRequest { if_none_match: &etag, ..plain("application/json") })
            .unwrap();
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        let asked = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
        let packed = api.answer("/openapi/v2", &plain(asked)).unwrap();
        assert_eq!(packed.headers()[http::header::CONTENT_TYPE], V2_PROTOBUF);
        assert!(body(packed).await.starts_with(b"\x0a\x032.0\x12"));
    }

    #[test]
    fn every_row_has_its_type() {
        for kind in Registry::builtin().all() {
            let found = schema::type_of(&kind.schema).unwrap_or_else(|| panic!("{}", kind.schema));
            assert!(found.kind, "{}", kind.schema);
            let list = kind.verbs.contains(&"list");
            assert_eq!(schema::type_of(&format!("{}List", kind.schema)).is_some(), list, "{}", kind.schema);
        }
    }

    #[tokio::test]
    async fn new_kinds_appear() {
        use coracle_kinds::registry::custom::Custom;
        let registry = Arc::new(Registry::builtin());
        let api = OpenApi::new(registry.clone(), Arc::default());
        let before = json_of(&api, "/openapi/v3").await;
        let mut boat = Kind::new("demo.io", "v1", "Boat", "boats");
        boat.schema = "io.demo.v1.Boat".into();
        let schema = json!({"type": "object"});
        boat.custom = Some(Arc::new(Custom { schema: schema.into(), ..Custom::default() }));
        registry.register(boat);
        let after = json_of(&api, "/openapi/v3").await;
        assert!(
            before["paths"].get("apis/demo.io/v1").is_none()
                && after["paths"].get("apis/demo.io/v1").is_some()
        );
        let document = json_of(&api, "/openapi/v3/apis/demo.io/v1").await;
        let patch = &document["paths"]["/apis/demo.io/v1/namespaces/{namespace}/boats/{name}"]["patch"]["requestBody"];
        let forms: Vec<&String> = patch["content"].as_object().unwrap().keys().collect();
        assert!(forms.len() == 3 && !forms.iter().any(|form| form.contains("strategic")), "{forms:?}");
        assert_eq!(
            document["components"]["schemas"]["io.demo.v1.Boat"]["x-kubernetes-group-version-kind"][0]["kind"],
            "Boat"
        );
    }
}
