//! Reads `proto/schema/*.txt`. A line is `package`, `enum`, `type` or, indented, a field of the type above it:
//! name, protobuf number, shape, flags (`*` pointer, `?` omitempty, `z` omitzero, `!` required, `e` an empty list is not an unset
//! one), then options. Fields with the option `gated` are those of initializers, which are not in the table unless
//! [`enable_initializers`] was called.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

use super::{Field, Inline, List, ListKind, Named, Object, Patch, Scalar, Shape, Type};

/// A package of types: one API group and version.
#[derive(Debug, PartialEq, Eq)]
pub struct Package {
    /// The prefix in the table, such as `core/v1`.
    pub short: &'static str,
    /// The prefix of OpenAPI names, such as `io.k8s.api.core.v1`.
    pub model: &'static str,
    /// API group, empty for core.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
}

const FILES: &[&str] = &[
    include_str!("../../schema/meta.txt"),
    include_str!("../../schema/core-v1.txt"),
    include_str!("../../schema/admissionregistration-v1.txt"),
    include_str!("../../schema/apiextensions-v1.txt"),
    include_str!("../../schema/apiregistration-v1.txt"),
    include_str!("../../schema/apps-v1.txt"),
    include_str!("../../schema/authentication-v1.txt"),
    include_str!("../../schema/authorization-v1.txt"),
    include_str!("../../schema/autoscaling-v1.txt"),
    include_str!("../../schema/autoscaling-v2.txt"),
    include_str!("../../schema/batch-v1.txt"),
    include_str!("../../schema/certificates-v1.txt"),
    include_str!("../../schema/coordination-v1.txt"),
    include_str!("../../schema/discovery-v1.txt"),
    include_str!("../../schema/events-v1.txt"),
    include_str!("../../schema/extensions-v1beta1.txt"),
    include_str!("../../schema/flowcontrol-v1.txt"),
    include_str!("../../schema/initializers-v1alpha1.txt"),
    include_str!("../../schema/metrics-v1beta1.txt"),
    include_str!("../../schema/networking-v1.txt"),
    include_str!("../../schema/node-v1.txt"),
    include_str!("../../schema/policy-v1.txt"),
    include_str!("../../schema/rbac-v1.txt"),
    include_str!("../../schema/resource-v1.txt"),
    include_str!("../../schema/scheduling-v1.txt"),
    include_str!("../../schema/storage-v1.txt"),
];

/// How the line of a field of initializers ends.
const GATED: &str = " gated";

struct Table {
    types: Box<[Type]>,
    index: Index,
}

/// Type numbers by package and name.
type Index = HashMap<(&'static str, &'static str), u16>;

/// The packages, in the order of the files.
pub fn packages() -> &'static [Package] {
    static PACKAGES: OnceLock<Box<[Package]>> = OnceLock::new();
    PACKAGES.get_or_init(|| FILES.iter().map(|file| package_line(file)).collect())
}

fn package_line(file: &'static str) -> Package {
    let line = file.lines().next().unwrap_or_default();
    let mut words = line.split(' ').skip(1);
    let mut next = || words.next().expect("a package line has four words");
    let (short, model, group, version) = (next(), next(), next(), next());
    Package { short, model, group: if group == "-" { "" } else { group }, version }
}

static TABLE: OnceLock<Table> = OnceLock::new();
/// Whether the table has the fields of initializers. What is decided first holds as long as the process.
static INITIALIZERS: OnceLock<bool> = OnceLock::new();

fn table() -> &'static Table {
    TABLE.get_or_init(|| parse(has_initializers()))
}

/// The table is in use already, without the fields of initializers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("types were read before the feature gate Initializers was set")]
pub struct TableInUse;

/// Adds `metadata.initializers` to the types of all objects. To be called before the first use of the table.
pub fn enable_initializers() -> Result<(), TableInUse> {
    if *INITIALIZERS.get_or_init(|| true) { Ok(()) } else { Err(TableInUse) }
}

/// Whether objects may have `metadata.initializers`.
pub fn has_initializers() -> bool {
    *INITIALIZERS.get_or_init(|| false)
}

/// Every built-in type.
pub fn types() -> &'static [Type] {
    &table().types
}

/// A built-in type by its OpenAPI name, such as `io.k8s.api.core.v1.Pod`.
pub fn type_of(name: &str) -> Option<&'static Type> {
    let (model, name) = name.rsplit_once('.')?;
    let package = packages().iter().find(|p| p.model == model)?;
    let table = table();
    table.index.get(&(package.short, name)).map(|i| &table.types[usize::from(*i)])
}

/// Groups and versions whose types are those of v1, and the group of these.
const OLDER: [(&str, &str, &str); 11] = [
    ("admissionregistration.k8s.io", "v1alpha1", "admissionregistration.k8s.io"),
    ("admissionregistration.k8s.io", "v1beta1", "admissionregistration.k8s.io"),
    ("apps", "v1beta1", "apps"),
    ("apps", "v1beta2", "apps"),
    ("authentication.k8s.io", "v1beta1", "authentication.k8s.io"),
    ("batch", "v1beta1", "batch"),
    ("extensions", "v1beta1", "apps"),
    ("networking.k8s.io", "v1beta1", "networking.k8s.io"),
    ("policy", "v1beta1", "policy"),
    ("resource.k8s.io", "v1beta2", "resource.k8s.io"),
    ("storage.k8s.io", "v1beta1", "storage.k8s.io"),
];

/// The type of a kind. The options kinds of `meta/v1` (`DeleteOptions` …) are known in every group and version.
pub fn kind_type(group: &str, version: &str, kind: &str) -> Option<&'static Type> {
    let table = table();
    let at = |short| table.index.get(&(short, kind));
    let of = |group: &str, version: &str| {
        packages().iter().find(|p| p.group == group && p.version == version).and_then(|p| at(p.short))
    };
    let older = || OLDER.iter().find(|(of, older, _)| (*of, *older) == (group, version));
    let own = of(group, version).or_else(|| older().and_then(|(.., stored)| of(stored, "v1")));
    let found = own.or_else(|| at("meta")).map(|i| &table.types[usize::from(*i)])?;
    found.kind.then_some(found)
}

/// The values of a closed string type by its OpenAPI name, such as `io.k8s.api.core.v1.Protocol`.
pub fn enum_values(named: &Named) -> Option<Vec<&'static str>> {
    let package = named.package?;
    let at = packages().iter().position(|p| p == package)?;
    FILES[at].lines().filter_map(|l| l.strip_prefix("enum ")).find_map(|line| {
        let (name, values) = line.split_once(' ')?;
        (name == named.name).then(|| values.split('|').map(|v| if v == "\"\"" { "" } else { v }).collect())
    })
}

fn parse(with_initializers: bool) -> Table {
    let mut index = Index::new();
    for (file, package) in FILES.iter().zip(packages()) {
        for line in file.lines().filter_map(|l| l.strip_prefix("type ")) {
            let name = line.split(' ').next().unwrap_or_default();
            let number = u16::try_from(index.len()).expect("fewer than 65536 types");
            index.insert((package.short, name), number);
        }
    }
    let mut types: Vec<Type> = Vec::with_capacity(index.len());
    for (file, package) in FILES.iter().zip(packages()) {
        let reader = Reader { package, index: &index };
        let mut fields = Vec::new();
        let mut inlines = Vec::new();
        for line in file.lines().rev() {
            if let Some(line) = line.strip_prefix(' ') {
                if with_initializers || !line.ends_with(GATED) {
                    reader.field(line, &mut fields, &mut inlines);
                }
            } else if let Some(line) = line.strip_prefix("type ") {
                let mut words = line.split(' ');
                let name = words.next().unwrap_or_default();
                let flags: Vec<&str> = words.collect();
                types.push(Type {
                    name: Cow::Borrowed(name),
                    package: Some(package),
                    fields: std::mem::take(&mut fields).into(),
                    inlines: std::mem::take(&mut inlines).into(),
                    kind: flags.contains(&"kind"),
                    atomic: flags.contains(&"atomic"),
                    open: false,
                });
            }
        }
    }
    types.sort_by_key(|t| index[&(t.package.map_or("", |p| p.short), name_of(t))]);
    flatten(&mut types);
    Table { types: types.into(), index }
}

fn name_of(t: &Type) -> &'static str {
    match t.name {
        Cow::Borrowed(name) => name,
        Cow::Owned(_) => "",
    }
}

/// Gives every struct the JSON fields of those it inlines and sorts; atomic structs mark the fields that hold them.
fn flatten(types: &mut [Type]) {
    let atomic: Vec<bool> = types.iter().map(|t| t.atomic).collect();
    for t in types.iter_mut() {
        for field in &mut t.fields {
            if let Shape::Object(Object::Table(at)) = &field.shape {
                field.atomic |= atomic[usize::from(*at)];
            }
        }
    }
    for at in 0..types.len() {
        let inherited = inherited(types, at);
        if !inherited.is_empty() {
            let mut fields = std::mem::take(&mut types[at].fields).into_vec();
            fields.extend(inherited);
            types[at].fields = fields.into();
        }
        types[at].fields.sort_by(|a, b| a.name.cmp(&b.name));
    }
}

fn inherited(types: &[Type], at: usize) -> Vec<Field> {
    let mut all = Vec::new();
    for inline in &types[at].inlines {
        let Object::Table(inner) = inline.object else { continue };
        let inner = usize::from(inner);
        all.extend(types[inner].fields.iter().filter(|f| f.number != 0).cloned());
        all.extend(inherited(types, inner));
    }
    for field in &mut all {
        field.number = 0;
    }
    all
}

struct Reader<'a> {
    package: &'static Package,
    index: &'a Index,
}

impl Reader<'_> {
    fn field(&self, line: &'static str, fields: &mut Vec<Field>, inlines: &mut Vec<Inline>) {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let number = words.next().and_then(|n| n.parse().ok()).expect("a field has a number");
        let mut shape = self.shape(words.next().expect("a field has a shape"));
        if name == "-" {
            if let Shape::Object(object) = shape {
                inlines.push(Inline { number, object });
            }
            return;
        }
        let flags = words.next().unwrap_or_default();
        let mut field = Field {
            name: Cow::Borrowed(name),
            number,
            shape: Shape::plain(Scalar::String),
            required: flags.contains('!'),
            pointer: flags.contains('*'),
            omitempty: flags.contains('?'),
            omitzero: flags.contains('z'),
            keeps_empty: flags.contains('e'),
            atomic: false,
            nullable: false,
            discriminator: false,
            patch: None,
            default: None,
        };
        for word in words {
            let (option, value) = word.split_once(':').unwrap_or((word, ""));
            match (option, &mut shape) {
                ("map", Shape::List(list)) => {
                    list.kind = ListKind::Map(value.split(',').map(Cow::Borrowed).collect());
                }
                ("set", Shape::List(list)) => list.kind = ListKind::Set,
                ("atomic", Shape::List(_)) => {}
                ("atomic", _) => field.atomic = true,
                ("patch", _) => field.patch = Some(Box::new(patch(value))),
                ("default", _) => field.default = serde_json::from_str(value).ok().map(Box::new),
                ("discriminator", _) => field.discriminator = true,
                ("gated", _) => {}
                _ => debug_assert!(false, "unknown option in {line}"),
            }
        }
        field.shape = shape;
        fields.push(field);
    }

    fn shape(&self, text: &'static str) -> Shape {
        if let Some(item) = text.strip_prefix("[]") {
            return self.list(item, false);
        }
        if let Some(value) = text.strip_prefix("{}") {
            return Shape::Map(Box::new(self.shape(value)));
        }
        let (base, named) = match text.strip_suffix('>').and_then(|t| t.split_once('<')) {
            Some(("items", inner)) => {
                let item = inner.split_once(',').map_or(inner, |(_, item)| item);
                return self.list(item, true);
            }
            Some((base, named)) => (base, Some(self.named(named))),
            None => (text, None),
        };
        match scalar(base) {
            Some(of) => Shape::Scalar { of, named },
            None => {
                let (package, name) = self.place(base);
                Shape::Object(Object::Table(self.index[&(package.map_or("", |p| p.short), name)]))
            }
        }
    }

    fn list(&self, item: &'static str, wrapped: bool) -> Shape {
        Shape::List(Box::new(List { item: self.shape(item), kind: ListKind::Atomic, wrapped }))
    }

    fn named(&self, text: &'static str) -> Named {
        let (package, name) = self.place(text);
        Named { package, name }
    }

    fn place(&self, text: &'static str) -> (Option<&'static Package>, &'static str) {
        match text.split_once('.') {
            Some((short, name)) => (packages().iter().find(|p| p.short == short), name),
            None => (Some(self.package), text),
        }
    }
}

fn patch(value: &'static str) -> Patch {
    let (strategies, key) = value.split_once(':').map_or((value, None), |(s, k)| (s, Some(k)));
    let has = |name: &str| strategies.split(',').any(|s| s == name);
    Patch {
        merge: has("merge"),
        retain_keys: has("retainKeys"),
        replace: has("replace"),
        key: key.map(Cow::Borrowed),
    }
}

fn scalar(text: &str) -> Option<Scalar> {
    Some(match text {
        "string" => Scalar::String,
        "int32" => Scalar::Int32,
        "int64" => Scalar::Int64,
        "bool" => Scalar::Bool,
        "float" => Scalar::Float,
        "double" => Scalar::Double,
        "bytes" => Scalar::Bytes,
        "quantity" => Scalar::Quantity,
        "intorstring" => Scalar::IntOrString,
        "time" => Scalar::Time,
        "microtime" => Scalar::MicroTime,
        "duration" => Scalar::Duration,
        "raw" => Scalar::Raw,
        "fieldsv1" => Scalar::Fields,
        "json" | "any" => Scalar::Json,
        "schemaorarray" => Scalar::SchemaOrArray,
        "schemaorbool" => Scalar::SchemaOrBool,
        "schemaorstrings" => Scalar::SchemaOrStrings,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_pod_has_its_merge_keys_and_numbers() {
        let spec = type_of("io.k8s.api.core.v1.Pod").unwrap().field("spec").unwrap();
        assert_eq!(spec.number, 2);
        let spec = spec.shape.object().unwrap();
        let containers = spec.field("containers").unwrap();
        assert_eq!((containers.number, containers.required, containers.merge_key()), (2, true, Some("name")));
        assert_eq!(containers.list_kind(), Some(&ListKind::Map(Box::new(["name".into()]))));
        let volumes = spec.field("volumes").unwrap().patch.clone().unwrap();
        assert!(volumes.merge && volumes.retain_keys && !volumes.replace);
        let selector = type_of("io.k8s.api.apps.v1.DeploymentSpec").unwrap().field("selector").unwrap();
        assert!(selector.atomic && selector.pointer && selector.required);
        assert_eq!(spec.field("restartPolicy").unwrap().shape.go_name(), "v1.RestartPolicy");
        assert_eq!(containers.shape.go_name(), "[]v1.Container");
    }

    #[test]
    fn inlined_structs_are_flat_in_json_and_nested_in_protobuf() {
        let volume = type_of("io.k8s.api.core.v1.Volume").unwrap();
        let path = volume.field("hostPath").unwrap();
        assert_eq!(path.number, 0);
        assert_eq!(volume.inlines[0].number, 2);
        assert_eq!(volume.inlines[0].object.get().field("hostPath").unwrap().number, 1);
        let rule = type_of("io.k8s.api.admissionregistration.v1.NamedRuleWithOperations").unwrap();
        assert!(rule.field("apiGroups").is_some() && rule.field("operations").is_some());
    }

    #[test]
    fn kinds_are_found_and_options_are_known_everywhere() {
        assert_eq!(
            kind_type("apps", "v1", "Deployment").unwrap().full_name(),
            "io.k8s.api.apps.v1.Deployment"
        );
        assert_eq!(kind_type("", "v1", "PodList").unwrap().go_name(), "v1.PodList");
        assert!(kind_type("apps", "v1", "DeleteOptions").is_some());
        assert!(kind_type("", "v1", "PodSpec").is_none());
        assert!(kind_type("", "v1", "Nonsense").is_none());
    }

    #[test]
    fn every_type_resolves_and_no_number_is_used_twice() {
        assert!(types().len() > 500, "{}", types().len());
        for t in types() {
            let mut numbers: Vec<u16> = t.fields.iter().map(|f| f.number).filter(|n| *n > 0).collect();
            numbers.extend(t.inlines.iter().map(|i| i.number));
            let count = numbers.len();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), count, "{}", t.full_name());
            let mut names: Vec<&str> = t.fields.iter().map(|f| f.name.as_ref()).collect();
            names.dedup();
            assert_eq!(names.len(), t.fields.len(), "{}", t.full_name());
            assert_eq!(type_of(&t.full_name()).map(|x| x.name.clone()), Some(t.name.clone()));
        }
    }

    #[test]
    fn objects_have_initializers_only_with_their_gate() {
        for with in [false, true] {
            let table = parse(with);
            let meta = &table.types[usize::from(table.index[&("meta", "ObjectMeta")])];
            assert_eq!(meta.field("initializers").map(|field| field.number), with.then_some(16));
        }
        let group = "admissionregistration.k8s.io";
        assert_eq!(
            kind_type(group, "v1alpha1", "InitializerConfiguration").unwrap().go_name(),
            "v1alpha1.InitializerConfiguration"
        );
        assert_eq!(
            kind_type(group, "v1alpha1", "MutatingAdmissionPolicy").unwrap().go_name(),
            "v1.MutatingAdmissionPolicy"
        );
    }

    /// The time is part of `start to readyz answered` in `scripts/bench api`.
    #[test]
    fn the_table_needs_little_memory() {
        let table = parse(false);
        let fields: usize = table.types.iter().map(|t| t.fields.len()).sum();
        let size = table.types.len() * size_of::<Type>() + fields * (size_of::<Field>() + size_of::<List>());
        println!("{} types, {fields} fields, about {size} bytes", table.types.len());
        assert!(size < 2 << 20, "{size}");
    }

    #[test]
    fn enum_values_are_listed() {
        let port = type_of("io.k8s.api.core.v1.ContainerPort").unwrap().field("protocol").unwrap();
        let Shape::Scalar { named: Some(named), .. } = port.shape else { panic!("not named") };
        assert_eq!(enum_values(&named).unwrap(), ["SCTP", "TCP", "UDP"]);
        assert_eq!(port.default.as_deref(), Some(&serde_json::json!("TCP")));
    }
}
