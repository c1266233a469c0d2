//! The paths of a kind as OpenAPI operations.

use super::document::{self, Parameter, Response};
use super::operations::{self, Operation};
use super::schemas::Dialect;
use coracle_kinds::registry::kinds::Kind;
use serde_json::{Map, Value, json};

const PRODUCES: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
/// What a patch may be written in; custom resources do not take the last.
const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// A path with its operations.
pub struct PathItem {
    /// Such as `/api/v1/namespaces/{namespace}/pods/{name}`.
    pub path: String,
    /// Operations by method.
    pub item: Value,
}

/// Every path of a kind.
pub fn of(kind: &Kind, dialect: Dialect) -> Vec<PathItem> {
    let root = match kind.group.as_str() {
        "" => format!("/api/{}", kind.version),
        group => format!("/apis/{group}/{}", kind.version),
    };
    let scoped = if kind.namespaced() { format!("{root}/namespaces/{{namespace}}") } else { root.clone() };
    let collection = format!("{scoped}/{}", kind.plural);
    let one = format!("{collection}/{{name}}");
    let mut paths = Vec::new();
    let mut add = |path: &str, operations: Vec<Operation<'_>>| {
        if !operations.is_empty() {
            paths.push(item(path, kind, &operations, dialect));
        }
    };
    add(&collection, operations::of_collection(kind));
    add(&one, operations::of_object(kind));
    if kind.namespaced() && kind.verbs.contains(&"list") {
        add(&format!("{root}/{}", kind.plural), vec![operations::list(kind)]);
    }
    let subresources: Vec<_> = kind.subresources.iter().map(|sub| sub.exposed(kind)).collect();
    for sub in &subresources {
        add(&format!("{one}/{}", sub.name), operations::of_subresource(sub, kind));
    }
    paths
}

fn item(path: &str, kind: &Kind, operations: &[Operation<'_>], dialect: Dialect) -> PathItem {
    let mut item = Map::new();
    for operation in operations {
        item.insert(operation.method.to_owned(), written(path, kind, operation, dialect));
    }
    let mut parameters = Vec::new();
    for (name, what) in [("namespace", "object name and auth scope"), ("name", "name of the object")] {
        if path.contains(&format!("{{{name}}}")) {
            let described = if name == "name" { format!("{what}'s {}", kind.kind) } else { what.to_owned() };
            parameters.push(parameter(name, "path", "string", &described, dialect));
        }
    }
    parameters.push(parameter("pretty", "query", "string", "Whether the reply is indented.", dialect));
    item.insert("parameters".to_owned(), Value::Array(parameters));
    PathItem { path: path.to_owned(), item: Value::Object(item) }
}

fn parameter(name: &str, place: &str, kind: &str, described: &str, dialect: Dialect) -> Value {
    let mut made = Parameter { name, place, description: Some(described), ..Parameter::default() };
    made.required = (place == "path").then_some(true);
    match dialect {
        Dialect::V2 => (made.kind, made.unique_items) = (Some(kind), Some(true)),
        Dialect::V3 => made.schema = Some(json!({"type": kind, "uniqueItems": true})),
    }
    json!(made)
}

/// `core_v1`, `apps_v1`: the tag of an operation.
fn tag(kind: &Kind) -> String {
    let group = kind.group.split('.').next().unwrap_or_default();
    format!("{}_{}", if group.is_empty() { "core" } else { group }, kind.version)
}

fn operation_id(path: &str, kind: &Kind, operation: &Operation<'_>) -> String {
    let verb = match operation.verb {
        "get" => "read",
        "update" => "replace",
        "deletecollection" => "deleteCollection",
        other => other,
    };
    let capital = |text: &str| {
        let mut chars = text.chars();
        chars.next().map(|c| c.to_uppercase().chain(chars).collect::<String>()).unwrap_or_default()
    };
    let tag: String = tag(kind).split('_').map(capital).collect();
    let scope = if path.contains("{namespace}") { "Namespaced" } else { "" };
    let everywhere = if kind.namespaced() && scope.is_empty() { "ForAllNamespaces" } else { "" };
    let method = if verb == "connect" { capital(operation.method) } else { String::new() };
    let sub = path.split_once("{name}/").map(|(_, sub)| capital(sub)).unwrap_or_default();
    format!("{verb}{method}{tag}{scope}{}{sub}{everywhere}", kind.kind)
}

fn written(path: &str, kind: &Kind, operation: &Operation<'_>, dialect: Dialect) -> Value {
    let (group, version, of) = operation.kind;
    let code = if operation.method == "post" && operation.verb == "create" { "201" } else { "200" };
    let mut parameters: Vec<Value> = operation
        .query
        .iter()
        .map(|(name, kind, described)| parameter(name, "query", kind, described, dialect))
        .collect();
    let reply = (!operation.reply.is_empty()).then(|| dialect.reference(&operation.reply));
    let mut codes = vec![("200", "OK"), ("401", "Unauthorized")];
    if code == "201" {
        codes.insert(1, ("201", "Created"));
    }
    let mut responses = Map::new();
    for (code, described) in codes {
        let mut response = Response { description: described, schema: None, content: None };
        match (&reply, dialect) {
            (_, _) if code == "401" => {}
            (Some(schema), Dialect::V2) => response.schema = Some(schema.clone()),
            (Some(schema), Dialect::V3) => {
                let content: Map<String, Value> =
                    PRODUCES.iter().map(|media| ((*media).to_owned(), json!({"schema": schema}))).collect();
                response.content = Some(Value::Object(content));
            }
            (None, Dialect::V2) => response.schema = Some(json!({"type": "string"})),
            (None, Dialect::V3) => response.content = Some(json!({"*/*": {"schema": {"type": "string"}}})),
        }
        responses.insert(code.to_owned(), json!(response));
    }
    // kubectl picks the form of a patch by what is listed here.
    let consumes: &[&str] = match (operation.verb, &kind.custom) {
        ("patch", Some(_)) => &PATCHES[..3],
        ("patch", None) => &PATCHES,
        _ => &["*/*"],
    };
    let mut request_body = None;
    if let Some(body) = &operation.body {
        let schema = dialect.reference(body);
        let required = operation.verb != "delete" && operation.verb != "deletecollection";
        match dialect {
            Dialect::V2 => {
                let required = required.then_some(true);
                let schema = Some(schema);
                let body =
                    Parameter { name: "body", place: "body", required, schema, ..Parameter::default() };
                parameters.push(json!(body));
            }
            Dialect::V3 => {
                let content: Map<String, Value> =
                    consumes.iter().map(|media| ((*media).to_owned(), json!({"schema": schema}))).collect();
                request_body = Some(json!({"content": content, "required": required}));
            }
        }
    }
    let v2 = dialect == Dialect::V2;
    json!(document::Operation {
        operation_id: operation_id(path, kind, operation),
        description: format!("{} {}", operation.verb, of),
        tags: [tag(kind)],
        action: match operation.verb {
            "create" => "post",
            "update" => "put",
            verb => verb,
        },
        kind: json!({"group": group, "kind": of, "version": version}),
        responses,
        request_body,
        consumes: v2.then_some(consumes),
        produces: v2.then_some(PRODUCES),
        schemes: v2.then_some(["https"]),
        parameters,
    })
}
