//! Generates one marker type per struct of `proto/schema`, with one method per field.
//!
//! Output: `$OUT_DIR/fields.rs`, a module per package (`core::v1`, `meta`), included by `src/lib.rs`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::{env, fs, path::Path};

/// Names of methods that every place has; a field of that name gets an underscore.
const TAKEN: &[&str] = &["is_set", "is_empty", "erased", "to_value"];
/// Words that Rust reserves.
const KEYWORDS: &[&str] = &[
    "as", "const", "continue", "default", "else", "enum", "false", "for", "if", "in", "loop", "match", "mod",
    "move", "ref", "return", "self", "static", "struct", "true", "type", "use", "where", "while",
];

struct Field<'a> {
    name: &'a str,
    shape: &'a str,
    omit: bool,
}

struct Type<'a> {
    fields: Vec<Field<'a>>,
    inlines: Vec<&'a str>,
    kind: bool,
}

struct Package<'a> {
    group: &'a str,
    version: &'a str,
    types: BTreeMap<&'a str, Type<'a>>,
}

fn main() {
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let folder = Path::new(&root).join("../proto/schema");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut texts: Vec<String> = Vec::new();
    for file in fs::read_dir(folder).expect("the schema is a folder") {
        texts.push(fs::read_to_string(file.expect("it is listed").path()).expect("it is a text"));
    }
    let packages: BTreeMap<&str, Package<'_>> = texts.iter().map(|text| parse(text)).collect();
    let mut out = String::new();
    for (short, package) in &packages {
        let (module, inner) = modules(short);
        let _ = writeln!(out, "/// `{short}`.\npub mod {module} {{");
        if let Some(inner) = inner {
            let _ = writeln!(out, "/// Version `{inner}`.\npub mod {inner} {{");
        }
        out.push_str("use crate::*;\n");
        for (name, one) in &package.types {
            write_type(&mut out, &packages, short, package, name, one);
        }
        out.push_str(if inner.is_some() { "}}\n" } else { "}\n" });
    }
    let target = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&target).join("fields.rs"), out).expect("the output can be written");
}

/// `core/v1` is `core::v1`, `meta` is `meta`. A group with two versions (`autoscaling`) is one module per version:
/// `autoscaling_v2`.
fn modules(short: &str) -> (String, Option<&str>) {
    match short.split_once('/') {
        Some(("autoscaling", version)) => (format!("autoscaling_{version}"), None),
        Some((group, version)) => (group.to_owned(), Some(version)),
        None => (short.to_owned(), None),
    }
}

/// Parses a schema file; the head of `proto/src/schema/table.rs` defines the format.
fn parse(text: &str) -> (&str, Package<'_>) {
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let group = if head[3] == "-" { "" } else { head[3] };
    let mut package = Package { group, version: head[4], types: BTreeMap::new() };
    let mut current = "";
    for line in lines {
        if let Some(line) = line.strip_prefix("type ") {
            current = line.split(' ').next().unwrap_or_default();
            let kind = line.split(' ').any(|word| word == "kind");
            package.types.insert(current, Type { fields: Vec::new(), inlines: Vec::new(), kind });
        } else if let (Some(line), Some(one)) = (line.strip_prefix(' '), package.types.get_mut(current)) {
            let words: Vec<&str> = line.split(' ').collect();
            match words[0] {
                "-" => one.inlines.push(words[2]),
                name => {
                    let flags = words.get(3).copied().unwrap_or_default();
                    let omit = flags.contains('?') || flags.contains('z');
                    one.fields.push(Field { name, shape: words[2], omit });
                }
            }
        }
    }
    (head[1], package)
}

/// The fields of a struct in JSON: its own and those of the structs it inlines, each with the package that its shape is
/// relative to.
fn flat<'a>(
    packages: &'a BTreeMap<&str, Package<'a>>,
    short: &'a str,
    one: &'a Type<'a>,
) -> Vec<(&'a str, &'a Field<'a>)> {
    let mut all: Vec<_> = one.fields.iter().map(|field| (short, field)).collect();
    for inline in &one.inlines {
        let (short, name) = place(short, inline);
        let inner = flat(packages, short, &packages[short].types[name]);
        all.extend(inner.into_iter().filter(|(_, field)| one.fields.iter().all(|f| f.name != field.name)));
    }
    all
}

fn place<'a>(short: &'a str, text: &'a str) -> (&'a str, &'a str) {
    text.split_once('.').unwrap_or((short, text))
}

fn write_type(
    out: &mut String,
    packages: &BTreeMap<&str, Package<'_>>,
    short: &str,
    package: &Package<'_>,
    name: &str,
    one: &Type<'_>,
) {
    let _ =
        writeln!(out, "/// `{name}`.\n#[derive(Debug)] pub enum {name} {{}}\nimpl Schema for {name} {{}}");
    if one.kind {
        let version = match package.group {
            "" => package.version.to_owned(),
            group => format!("{group}/{}", package.version),
        };
        let _ = writeln!(
            out,
            "impl Kind for {name} {{ const API_VERSION: &'static str = {version:?}; const KIND: &'static str = {name:?}; }}"
        );
    }
    // Shared access takes `&self`; what is edited is borrowed mutably.
    let fields = flat(packages, short, one);
    let _ = writeln!(out, "impl<C: Access> At<C, {name}> {{");
    for (of, field) in &fields {
        let (json, method, leaf) = (field.name, method(field.name), leaf(of, field.shape));
        let step = if field.omit { "omit_at" } else { "field_at" };
        let _ = writeln!(
            out,
            "/// `{json}`.\n#[inline] pub fn {method}(&self) -> At<C, {leaf}> {{ self.{step}({json:?}) }}"
        );
    }
    let _ = writeln!(out, "}}\nimpl At<Writer<'_>, {name}> {{");
    for (of, field) in &fields {
        let (json, method, leaf) = (field.name, method(field.name), leaf(of, field.shape));
        let _ = writeln!(
            out,
            "/// `{json}`.\n#[inline] pub fn {method}(&mut self) -> At<Writer<'_>, {leaf}> {{ self.edit_at({json:?}) }}"
        );
    }
    out.push_str("}\n");
}

/// The Rust type of a shape of the table.
fn leaf(short: &str, shape: &str) -> String {
    if let Some(item) = shape.strip_prefix("[]") {
        return format!("List<{}>", leaf(short, item));
    }
    if let Some(value) = shape.strip_prefix("{}") {
        return format!("Map<{}>", leaf(short, value));
    }
    let base = match shape.strip_suffix('>').and_then(|text| text.split_once('<')) {
        Some(("items", inner)) => {
            let item = inner.split_once(',').map_or(inner, |(_, item)| item);
            return format!("List<{}>", leaf(short, item));
        }
        Some((base, _)) => base,
        None => shape,
    };
    match base {
        "string" => "Text",
        "int32" => "Int32",
        "int64" => "Int64",
        "bool" => "Bool",
        "float" | "double" => "Double",
        "bytes" => "Base64",
        "quantity" => "Amount",
        "intorstring" => "IntOrString",
        "time" | "microtime" => "Time",
        "duration" => "Duration",
        "raw" | "fieldsv1" | "json" | "any" => "Json",
        "schemaorarray" | "schemaorbool" | "schemaorstrings" => "Json",
        _ => {
            let (short, name) = place(short, base);
            let (module, inner) = modules(short);
            return match inner {
                Some(inner) => format!("crate::{module}::{inner}::{name}"),
                None => format!("crate::{module}::{name}"),
            };
        }
    }
    .to_owned()
}

/// `clusterIPs` is `cluster_ips`, `podCIDR` is `pod_cidr`, `type` is `type_`.
fn method(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut out = String::new();
    for (at, letter) in letters.iter().enumerate() {
        if !letter.is_ascii_alphanumeric() {
            out.push('_');
            continue;
        }
        let before = at.checked_sub(1).map(|at| letters[at]);
        let plural = |at: usize| {
            letters.get(at) == Some(&'s') && letters.get(at + 1).is_none_or(|c| c.is_ascii_uppercase())
        };
        if letter.is_ascii_uppercase() {
            let after_word = before.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
            let begins_word = before.is_some_and(|c| c.is_ascii_uppercase())
                && letters.get(at + 1).is_some_and(|c| c.is_ascii_lowercase())
                && !plural(at + 1);
            if after_word || begins_word {
                out.push('_');
            }
        }
        out.push(letter.to_ascii_lowercase());
    }
    let out = out.trim_start_matches('_').to_owned();
    if KEYWORDS.contains(&out.as_str()) || TAKEN.contains(&out.as_str()) { format!("{out}_") } else { out }
}
