//! The operations of a path of a kind.

use super::schemas::PATCH;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::registry::subresources::Exposed;
use coracle_proto::schema;

const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// One operation before it is written down.
pub(super) struct Operation<'a> {
    pub(super) verb: &'static str,
    pub(super) method: &'static str,
    /// Schema of the request body.
    pub(super) body: Option<String>,
    /// Schema of the reply.
    pub(super) reply: String,
    /// Query parameters: name, type, description.
    pub(super) query: Vec<(&'static str, &'static str, &'static str)>,
    pub(super) kind: GroupVersionKind<'a>,
}

type GroupVersionKind<'a> = (&'a str, &'a str, &'a str);

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
    ("shardSelector", "string", "Ignored: the feature ShardedListAndWatch is off."),
    ("timeoutSeconds", "integer", "How long the call may last."),
    ("watch", "boolean", "Watch for changes instead of listing."),
];
/// With the feature gate `Initializers` only.
const UNINITIALIZED: (&str, &str, &str) =
    ("includeUninitialized", "boolean", "Whether to show objects whose initializers are pending.");
const DELETE: &[(&str, &str, &str)] = &[
    DRY_RUN,
    ("gracePeriodSeconds", "integer", "How long the object may take to end."),
    ("orphanDependents", "boolean", "Deprecated: use propagationPolicy."),
    ("propagationPolicy", "string", "What happens to dependents: Orphan, Background or Foreground."),
];

/// Of all objects of a kind, or of those in a namespace.
pub(super) fn of_collection(kind: &Kind) -> Vec<Operation<'_>> {
    let mut operations = Vec::new();
    if kind.verbs.contains(&"list") {
        operations.push(list(kind));
    }
    if kind.verbs.contains(&"create") {
        let mut create = write("create", "post", &kind.schema, own(kind));
        create.query.extend(schema::has_initializers().then_some(UNINITIALIZED));
        operations.push(create);
    }
    if kind.verbs.contains(&"deletecollection") {
        operations.push(delete("deletecollection", [LIST, DELETE].concat(), own(kind)));
    }
    operations
}

/// Of one object.
pub(super) fn of_object(kind: &Kind) -> Vec<Operation<'_>> {
    let mut operations = Vec::new();
    if kind.verbs.contains(&"get") {
        operations.push(get(&kind.schema, own(kind)));
    }
    if kind.verbs.contains(&"update") {
        operations.push(write("update", "put", &kind.schema, own(kind)));
    }
    if kind.verbs.contains(&"patch") {
        operations.push(patch(&kind.schema, own(kind)));
    }
    if kind.verbs.contains(&"delete") {
        operations.push(delete("delete", DELETE.to_vec(), own(kind)));
    }
    operations
}

/// Of a subresource of an object.
pub(super) fn of_subresource<'a>(sub: &'a Exposed, kind: &Kind) -> Vec<Operation<'a>> {
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
            "get" => get(&found, of),
            "create" => write("create", "post", &found, of),
            "update" => write("update", "put", &found, of),
            "patch" => patch(&found, of),
            _ => continue,
        });
    }
    operations
}

/// The list of all objects of a kind, or of those in a namespace.
pub(super) fn list(kind: &Kind) -> Operation<'_> {
    let list = format!("{}List", kind.schema);
    let reply = if schema::type_of(&list).is_some() { list } else { kind.schema.clone() };
    let query = list_query(schema::has_initializers());
    Operation { verb: "list", method: "get", body: None, reply, query, kind: own(kind) }
}

/// Query parameters of lists and watches.
fn list_query(initializers: bool) -> Vec<(&'static str, &'static str, &'static str)> {
    let mut query = LIST.to_vec();
    if initializers {
        let place = query.partition_point(|(name, ..)| *name < UNINITIALIZED.0);
        query.insert(place, UNINITIALIZED);
    }
    query
}

fn own(kind: &Kind) -> GroupVersionKind<'_> {
    (kind.group.as_str(), kind.version.as_str(), kind.kind.as_str())
}

fn get<'a>(schema: &str, kind: GroupVersionKind<'a>) -> Operation<'a> {
    Operation { verb: "get", method: "get", body: None, reply: schema.to_owned(), query: vec![], kind }
}

fn write<'a>(
    verb: &'static str,
    method: &'static str,
    schema: &str,
    kind: GroupVersionKind<'a>,
) -> Operation<'a> {
    let query = vec![DRY_RUN, MANAGER, VALIDATION];
    Operation { verb, method, body: Some(schema.to_owned()), reply: schema.to_owned(), query, kind }
}

fn patch<'a>(schema: &str, kind: GroupVersionKind<'a>) -> Operation<'a> {
    let query = vec![DRY_RUN, MANAGER, VALIDATION, FORCE];
    let (body, reply) = (Some(PATCH.to_owned()), schema.to_owned());
    Operation { verb: "patch", method: "patch", body, reply, query, kind }
}

fn delete<'a>(
    verb: &'static str,
    query: Vec<(&'static str, &'static str, &'static str)>,
    kind: GroupVersionKind<'a>,
) -> Operation<'a> {
    let body = Some(DELETE_OPTIONS.to_owned());
    Operation { verb, method: "delete", body, reply: STATUS.into(), query, kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uninitialized_objects_can_be_listed_with_the_gate() {
        for gate in [false, true] {
            let names: Vec<&str> = list_query(gate).into_iter().map(|(name, ..)| name).collect();
            assert_eq!(names.contains(&"includeUninitialized"), gate);
            assert!(names.is_sorted(), "{names:?}");
        }
    }
}
