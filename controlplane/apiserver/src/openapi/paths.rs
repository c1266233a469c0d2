//! The paths of a kind as OpenAPI operations.

use super::schemas::{Dialect, PATCH};
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::schema;
use serde_json::{Map, Value, json};

const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
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

/// One operation before it is written down.
struct Operation<'a> {
    verb: &'static str,
    method: &'static str,
    /// Schema of the request body.
    body: Option<String>,
    /// Schema of the reply.
    reply: String,
    /// Query parameters.
    query: Vec<(&'static str, &'static str, &'static str)>,
    kind: (&'a str, &'a str, &'a str),
}

const DRY_RUN: (&str, &str, &str) = ("dryRun", "string", "All: everything but storing the change.");
const MANAGER: (&str, &str, &str) = ("fieldManager", "string", "Who makes the change.");
const VALIDATION: (&str, &str, &str) =
    ("fieldValidation", "string", "What to do with unknown and repeated fields: Ignore, Warn or Strict.");
const FORCE: (&str, &str, &str) = ("force", "boolean", "Apply: take over fields of other managers.");
const LIST: &[(&str, &str, &str)] = &[
    ("allowWatchBookmarks", "boolean", "Whether a watch may send bookmarks."),
    ("continue", "string", "Where the next page begins."),
    ("fieldSelector", "string", "Restricts the list by fields."),
    ("labelSelector", "string", "Restricts the list by labels."),
    ("limit", "integer", "How many objects a page holds at most."),
    ("resourceVersion", "string", "The version from which, or at which, to read."),
    ("resourceVersionMatch", "string", "How resourceVersion is meant: NotOlderThan or Exact."),
    ("sendInitialEvents", "boolean", "Whether a watch begins with the objects that are there."),
    ("timeoutSeconds", "integer", "How long the call may last."),
    ("watch", "boolean", "Watch for changes instead of listing."),
];
const DELETE: &[(&str, &str, &str)] = &[
    DRY_RUN,
    ("gracePeriodSeconds", "integer", "How long the object may take to end."),
    ("orphanDependents", "boolean", "Deprecated: use propagationPolicy."),
    ("propagationPolicy", "string", "What happens to dependents: Orphan, Background or Foreground."),
];

/// Every path of a kind.
pub fn of(kind: &Kind, dialect: Dialect) -> Vec<PathItem> {
    let root = match kind.group.as_str() {
        "" => format!("/api/{}", kind.version),
        group => format!("/apis/{group}/{}", kind.version),
    };
    let scoped = if kind.namespaced() { format!("{root}/namespaces/{{namespace}}") } else { root.clone() };
    let collection = format!("{scoped}/{}", kind.plural);
    let one = format!("{collection}/{{name}}");
    let own = (kind.group.as_str(), kind.version.as_str(), kind.kind.as_str());
    let list = format!("{}List", kind.schema);
    let list = if schema::type_of(&list).is_some() { list } else { kind.schema.clone() };
    let can = |verb: &str| kind.verbs.contains(&verb);
    let mut paths = Vec::new();
    let mut add = |path: &str, operations: Vec<Operation<'_>>| {
        if !operations.is_empty() {
            paths.push(item(path, kind, &operations, dialect));
        }
    };
    let mut operations = Vec::new();
    let listing = || Operation {
        verb: "list",
        method: "get",
        body: None,
        reply: list.clone(),
        query: LIST.to_vec(),
        kind: own,
    };
    if can("list") {
        operations.push(listing());
    }
    if can("create") {
        operations.push(write("create", "post", &kind.schema, own));
    }
    if can("deletecollection") {
        let query = [LIST, DELETE].concat();
        let body = Some(DELETE_OPTIONS.to_owned());
        operations.push(Operation {
            verb: "deletecollection",
            method: "delete",
            body,
            reply: STATUS.into(),
            query,
            kind: own,
        });
    }
    add(&collection, operations);
    let mut operations = Vec::new();
    if can("get") {
        operations.push(Operation {
            verb: "get",
            method: "get",
            body: None,
            reply: kind.schema.clone(),
            query: vec![],
            kind: own,
        });
    }
    if can("update") {
        operations.push(write("update", "put", &kind.schema, own));
    }
    if can("patch") {
        operations.push(patch(&kind.schema, own));
    }
    if can("delete") {
        let body = Some(DELETE_OPTIONS.to_owned());
        operations.push(Operation {
            verb: "delete",
            method: "delete",
            body,
            reply: STATUS.into(),
            query: DELETE.to_vec(),
            kind: own,
        });
    }
    add(&one, operations);
    if kind.namespaced() && can("list") {
        add(&format!("{root}/{}", kind.plural), vec![listing()]);
    }
    let subresources: Vec<_> = kind.subresources.iter().map(|s| s.exposed(kind)).collect();
    for sub in &subresources {
        let of = (sub.group.as_str(), sub.version.as_str(), sub.kind.as_str());
        let found =
            schema::kind_type(of.0, of.1, of.2).map_or_else(|| kind.schema.clone(), schema::Type::full_name);
        // What connects instead of answering has options for a kind and text for a reply.
        let connects = of.2.ends_with("Options") || sub.name == "log";
        let mut operations = Vec::new();
        for verb in sub.verbs {
            operations.push(match *verb {
                _ if connects => {
                    let method = match *verb {
                        "create" => "post",
                        "update" => "put",
                        "get" | "patch" | "delete" => *verb,
                        _ => continue,
                    };
                    let verb = if sub.name == "log" { "get" } else { "connect" };
                    Operation { verb, method, body: None, reply: String::new(), query: vec![], kind: of }
                }
                "get" => Operation {
                    verb: "get",
                    method: "get",
                    body: None,
                    reply: found.clone(),
                    query: vec![],
                    kind: of,
                },
                "create" => write("create", "post", &found, of),
                "update" => write("update", "put", &found, of),
                "patch" => patch(&found, of),
                _ => continue,
            });
        }
        add(&format!("{one}/{}", sub.name), operations);
    }
    paths
}

fn write<'a>(
    verb: &'static str,
    method: &'static str,
    schema: &str,
    kind: (&'a str, &'a str, &'a str),
) -> Operation<'a> {
    let query = vec![DRY_RUN, MANAGER, VALIDATION];
    Operation { verb, method, body: Some(schema.to_owned()), reply: schema.to_owned(), query, kind }
}

fn patch<'a>(schema: &str, kind: (&'a str, &'a str, &'a str)) -> Operation<'a> {
    let query = vec![DRY_RUN, MANAGER, VALIDATION, FORCE];
    Operation {
        verb: "patch",
        method: "patch",
        body: Some(PATCH.to_owned()),
        reply: schema.to_owned(),
        query,
        kind,
    }
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
    let mut made = json!({"name": name, "in": place, "description": described});
    if place == "path" {
        made["required"] = json!(true);
    }
    match dialect {
        Dialect::V2 => {
            made["type"] = json!(kind);
            made["uniqueItems"] = json!(true);
        }
        Dialect::V3 => made["schema"] = json!({"type": kind, "uniqueItems": true}),
    }
    made
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
    let mut made = json!({
        "operationId": operation_id(path, kind, operation),
        "description": format!("{} {}", operation.verb, of),
        "tags": [tag(kind)],
        "x-kubernetes-action": match (operation.verb, operation.method) { ("create", _) => "post", ("update", _) => "put", (verb, _) => verb },
        "x-kubernetes-group-version-kind": {"group": group, "kind": of, "version": version},
    });
    let reply = (!operation.reply.is_empty()).then(|| dialect.reference(&operation.reply));
    let mut codes = vec![("200", "OK"), ("401", "Unauthorized")];
    if code == "201" {
        codes.insert(1, ("201", "Created"));
    }
    let mut responses = Map::new();
    for (code, described) in codes {
        let mut response = json!({"description": described});
        match (&reply, dialect) {
            (_, _) if code == "401" => {}
            (Some(schema), Dialect::V2) => response["schema"] = schema.clone(),
            (Some(schema), Dialect::V3) => {
                let content: Map<String, Value> =
                    PRODUCES.iter().map(|media| ((*media).to_owned(), json!({"schema": schema}))).collect();
                response["content"] = Value::Object(content);
            }
            (None, Dialect::V2) => response["schema"] = json!({"type": "string"}),
            (None, Dialect::V3) => response["content"] = json!({"*/*": {"schema": {"type": "string"}}}),
        }
        responses.insert(code.to_owned(), response);
    }
    made["responses"] = Value::Object(responses);
    // kubectl picks the form of a patch by what is listed here.
    let consumes: &[&str] = match (operation.verb, &kind.custom) {
        ("patch", Some(_)) => &PATCHES[..3],
        ("patch", None) => &PATCHES,
        _ => &["*/*"],
    };
    if let Some(body) = &operation.body {
        let schema = dialect.reference(body);
        let required = operation.verb != "delete" && operation.verb != "deletecollection";
        match dialect {
            Dialect::V2 => {
                let mut parameter = json!({"name": "body", "in": "body", "schema": schema});
                if required {
                    parameter["required"] = json!(true);
                }
                parameters.push(parameter);
            }
            Dialect::V3 => {
                let content: Map<String, Value> =
                    consumes.iter().map(|media| ((*media).to_owned(), json!({"schema": schema}))).collect();
                made["requestBody"] = json!({"content": content, "required": required});
            }
        }
    }
    if dialect == Dialect::V2 {
        made["consumes"] = json!(consumes);
        made["produces"] = json!(PRODUCES);
        made["schemes"] = json!(["https"]);
    }
    if !parameters.is_empty() {
        made["parameters"] = Value::Array(parameters);
    }
    made
}
