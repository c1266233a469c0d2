//! What an expression refers to: variables, functions, and fields of the value that it is about. What can be told from names
//! alone is told when a rule is written, the rest when it is evaluated. Types are checked in `types`.

use super::Program;
use super::error::located;
use cel::common::ast::{EntryExpr, Expr, IdedExpr, operators};
use coracle_fields::apiextensions::v1::JSONSchemaProps;
use coracle_fields::{Made, Schema as _, View};
use serde_json::{Value, json};

/// A schema or part of one.
type Props<'s> = View<'s, JSONSchemaProps>;

/// Words that CEL keeps for itself.
const RESERVED: [&str; 20] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
];

/// What stands for characters that names of fields may have and identifiers not.
const ESCAPES: [(&str, &str); 4] =
    [("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")];

/// Names of types and of groups of functions.
const GIVEN: [&str; 26] = [
    "bool",
    "bytes",
    "double",
    "duration",
    "dyn",
    "int",
    "list",
    "map",
    "null_type",
    "optional_type",
    "string",
    "timestamp",
    "type",
    "uint",
    "google",
    "base64",
    "cidr",
    "format",
    "ip",
    "jsonpatch",
    "lists",
    "math",
    "optional",
    "sets",
    "strings",
    "url",
];

/// Every function there is.
const FUNCTIONS: [&str; 150] = [
    "abs",
    "add",
    "allowed",
    "asApproximateFloat",
    "asInteger",
    "bitAnd",
    "bitNot",
    "bitOr",
    "bitShiftLeft",
    "bitShiftRight",
    "bitXor",
    "bool",
    "byte",
    "bytes",
    "ceil",
    "charAt",
    "check",
    "cidr",
    "compareTo",
    "contains",
    "containsCIDR",
    "containsIP",
    "date",
    "datetime",
    "decode",
    "distinct",
    "dns1035Label",
    "dns1035LabelPrefix",
    "dns1123Label",
    "dns1123LabelPrefix",
    "dns1123Subdomain",
    "dns1123SubdomainPrefix",
    "double",
    "duration",
    "dyn",
    "encode",
    "endsWith",
    "equivalent",
    "error",
    "errored",
    "escapeKey",
    "family",
    "fieldSelector",
    "find",
    "findAll",
    "first",
    "flatten",
    "floor",
    "format",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getEscapedPath",
    "getFullYear",
    "getHost",
    "getHostname",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getPort",
    "getQuery",
    "getScheme",
    "getSeconds",
    "greatest",
    "group",
    "hasValue",
    "indexOf",
    "int",
    "intersects",
    "ip",
    "isCIDR",
    "isCanonical",
    "isFinite",
    "isGlobalUnicast",
    "isGreaterThan",
    "isIP",
    "isInf",
    "isInteger",
    "isLessThan",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isLoopback",
    "isNaN",
    "isQuantity",
    "isSemver",
    "isSorted",
    "isURL",
    "isUnspecified",
    "join",
    "labelSelector",
    "labelValue",
    "last",
    "lastIndexOf",
    "least",
    "lowerAscii",
    "major",
    "masked",
    "matches",
    "max",
    "min",
    "minor",
    "name",
    "named",
    "namespace",
    "none",
    "of",
    "ofNonZeroValue",
    "or",
    "orValue",
    "patch",
    "path",
    "prefixLength",
    "qualifiedName",
    "quantity",
    "quote",
    "range",
    "reason",
    "replace",
    "resource",
    "reverse",
    "round",
    "semver",
    "serviceAccount",
    "sign",
    "size",
    "slice",
    "sort",
    "split",
    "sqrt",
    "startsWith",
    "string",
    "sub",
    "subresource",
    "substring",
    "sum",
    "timestamp",
    "trim",
    "trunc",
    "type",
    "uint",
    "unwrap",
    "unwrapOpt",
    "upperAscii",
    "uri",
    "url",
    "uuid",
    "validate",
    "value",
];

/// A field's name as an identifier.
pub fn escaped(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    // Underscores first: what stands for the others has some.
    ESCAPES.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
}

/// Whether a name is one that stands for another.
pub fn is_escaped(name: &str) -> bool {
    let keyword = name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"));
    keyword.is_some_and(|keyword| RESERVED.contains(&keyword))
        || ESCAPES.iter().any(|(_, to)| name.contains(to))
}

/// The first thing in the program that is not there, as upstream reports it. `variables` are the names that it may use,
/// each with the schema of its value.
pub fn check_references(program: &Program, variables: &[(&str, &Value)]) -> Option<String> {
    let scope = variables
        .iter()
        .map(|(name, schema)| ((*name).to_owned(), Some(JSONSchemaProps::of(schema))))
        .collect();
    let mut reader = Reader { scope, found: None };
    reader.read(program.expression());
    let (id, why) = reader.found?;
    Some(located(program.source_info(), id, &why))
}

/// Walks an expression with the schemas of its variables; what is unknown has none.
struct Reader<'s> {
    scope: Vec<(String, Option<Props<'s>>)>,
    found: Option<(u64, String)>,
}

impl<'s> Reader<'s> {
    fn report(&mut self, id: u64, why: String) -> Option<Props<'s>> {
        self.found.get_or_insert((id, why));
        None
    }

    /// The schema of the value, when there is one.
    fn read(&mut self, node: &IdedExpr) -> Option<Props<'s>> {
        match &node.expr {
            Expr::Ident(name) => {
                let known =
                    self.scope.iter().rev().find(|(known, _)| known == name).map(|(_, schema)| *schema);
                match known {
                    Some(schema) => schema,
                    None if name.starts_with(['@', '#']) || GIVEN.contains(&name.as_str()) => None,
                    None => {
                        self.report(node.id, format!("undeclared reference to '{name}' (in container '')"))
                    }
                }
            }
            Expr::Select(select) => {
                let of = self.read(&select.operand)?;
                self.field(of, &select.field, node.id)
            }
            Expr::Call(call) => {
                let name = call.func_name.as_str();
                let plain = name.starts_with(|c: char| c.is_ascii_alphabetic()) && !name.contains(['.', '@']);
                if plain && !FUNCTIONS.contains(&name) {
                    return self
                        .report(node.id, format!("undeclared reference to '{name}' (in container '')"));
                }
                if let Some(target) = &call.target {
                    self.read(target);
                }
                let args: Vec<Option<Props<'s>>> = call.args.iter().map(|arg| self.read(arg)).collect();
                let first = args.into_iter().next().flatten();
                first.filter(|_| name == operators::INDEX).and_then(within)
            }
            Expr::Comprehension(loops) => {
                let over = self.read(&loops.iter_range);
                let depth = self.scope.len();
                self.read(&loops.accu_init);
                let is_list = over.is_some_and(|schema| schema.type_() == "array");
                let inside = over.and_then(within);
                let (one, two) = match (&loops.iter_var2, is_list) {
                    (None, true) => (inside, None),
                    (None, false) => (None, None),
                    (Some(_), _) => (None, inside),
                };
                self.scope.push((loops.accu_var.clone(), None));
                self.scope.push((loops.iter_var.clone(), one));
                if let Some(second) = &loops.iter_var2 {
                    self.scope.push((second.clone(), two));
                }
                for part in [&loops.loop_cond, &loops.loop_step, &loops.result] {
                    self.read(part);
                }
                self.scope.truncate(depth);
                None
            }
            Expr::List(list) => {
                list.elements.iter().for_each(|element| _ = self.read(element));
                None
            }
            Expr::Map(map) => {
                self.entries(map.entries.iter().map(|entry| &entry.expr));
                None
            }
            Expr::Struct(made) => {
                self.entries(made.entries.iter().map(|entry| &entry.expr));
                None
            }
            Expr::Literal(_) | Expr::Unspecified => None,
        }
    }

    fn entries<'e>(&mut self, entries: impl Iterator<Item = &'e EntryExpr>) {
        for entry in entries {
            match entry {
                EntryExpr::StructField(field) => _ = self.read(&field.value),
                EntryExpr::MapEntry(entry) => {
                    self.read(&entry.key);
                    self.read(&entry.value);
                }
            }
        }
    }

    fn field(&mut self, of: Props<'s>, name: &str, id: u64) -> Option<Props<'s>> {
        if let Some((_, schema)) = of.properties().entries().find(|(field, _)| escaped(field) == name) {
            return Some(schema);
        }
        let entries = of.additional_properties();
        if entries.is_object() {
            return Some(entries.as_type());
        }
        let open = of.x_kubernetes_preserve_unknown_fields().flag()
            || of.x_kubernetes_int_or_string().flag()
            || of.x_kubernetes_embedded_resource().flag();
        let typed = of.type_().get().is_some();
        match typed && !open && !entries.is_set() {
            true => self.report(id, format!("undefined field '{name}'")),
            false => None,
        }
    }
}

/// The schema of what is inside a list or a map.
pub(super) fn within(schema: Props<'_>) -> Option<Props<'_>> {
    let mut inside = [schema.items(), schema.additional_properties()].into_iter();
    inside.find(|inside| inside.is_object()).map(|inside| inside.as_type())
}

/// The schema of a whole object: what every object has, too.
pub fn of_root(schema: &Value) -> Value {
    let mut whole = schema.clone();
    if !whole.is_object() {
        return whole;
    }
    let text = json!({"type": "string"});
    let mut props = JSONSchemaProps::edit(&mut whole);
    let mut fields = props.properties();
    for (field, of) in [
        ("apiVersion", text.clone()),
        ("kind", text.clone()),
        ("metadata", json!({"type": "object", "properties": {"name": text, "generateName": text}})),
    ] {
        fields.insert(field, Made::<JSONSchemaProps>::new(of));
    }
    whole
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::compile;
    use super::*;

    #[test]
    fn names_that_are_no_identifiers_have_others() {
        for (name, want) in [
            ("plain", "plain"),
            ("a-b", "a__dash__b"),
            ("a.b/c", "a__dot__b__slash__c"),
            ("a__b", "a__underscores__b"),
            ("namespace", "__namespace__"),
        ] {
            assert_eq!(escaped(name), want);
        }
    }

    #[test]
    fn what_is_not_there_is_found() {
        let schema = json!({"type": "object", "properties": {
            "size": {"type": "integer"}, "on": {"type": "boolean"}, "a-b": {"type": "string"},
            "parts": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "any": {"x-kubernetes-preserve-unknown-fields": true}}});
        let said = |text: &str| {
            check_references(&compile(text).unwrap(), &[("self", &schema), ("oldSelf", &schema)])
        };
        for good in [
            "self.size > 0 && has(self.on)",
            "self.parts.all(p, p.name != '' && self.parts.exists_one(q, q.name == p.name))",
            "self.labels.x == 'y' && self.labels['z'] != '' && self.any.thing.other == 1",
            "self.a__dash__b.startsWith('x') && oldSelf.size <= self.size",
            "type(self.size) == int && math.greatest(1, 2) == 2 && sets.contains([1], [1])",
            "self.?on.orValue(false) || self.parts[0].name == 'a'",
        ] {
            assert_eq!(said(good), None, "{good}");
        }
        for (bad, want) in [
            ("self.sise > 0", "ERROR: <input>:1:5: undefined field 'sise'\n | self.sise > 0\n | ....^"),
            (
                "other > 0",
                "ERROR: <input>:1:1: undeclared reference to 'other' (in container '')\n | other > 0\n | ^",
            ),
        ] {
            assert_eq!(said(bad).as_deref(), Some(want));
        }
        assert!(said("self.parts.all(p, p.nam == '')").unwrap().contains("undefined field 'nam'"));
        assert_eq!(said("self.labels.transformMap(k, v, v + k).size() == 0"), None);
        assert!(
            said("self.parts.all(i, p, i < 2 && p.nam == '')").unwrap().contains("undefined field 'nam'")
        );
        assert!(
            said("self.labels.transformMaps(k, v, v)")
                .unwrap()
                .contains("undeclared reference to 'transformMaps'")
        );
        assert!(said("self.parts[0].nam == ''").unwrap().contains("undefined field 'nam'"));
        let asks = said("authorizer.path('/').check('get').allowed()").unwrap();
        assert!(asks.contains("undeclared reference to 'authorizer'"), "rules of custom resources have none");
        assert!(said("self.size.startWith('a')").unwrap().contains("undeclared reference to 'startWith'"));
    }
}
