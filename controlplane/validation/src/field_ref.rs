//! A field of an object under validation: its value, its path, and the list that collects errors.
//!
//! [`Field`] has a type of the schema table, and with it a method per field; [`FieldRef`] is the same without a type, for JSON
//! that has no schema. Rules are written for [`FieldRef`], to which [`Field`] dereferences.

use crate::path::Path;
use crate::tree::{NULL, Tree, is_empty};
use coracle_fields::{Access, At, Elements, Reader, Schema};
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::cell::RefCell;

/// Where errors go.
pub struct Sink(pub(crate) RefCell<Vec<FieldError>>);

/// A place in an object.
#[derive(Clone)]
pub struct FieldRef<'a> {
    /// What is there, `null` when nothing is.
    pub value: &'a Value,
    pub(crate) path: Path<'a>,
    pub(crate) sink: &'a Sink,
}

/// A place of type `T` in an object.
///
/// The methods of `T`'s fields hide methods of [`FieldRef`] with the same name (`path`, `required`, `items`, `key`); these are
/// called as `FieldRef::path(&field)`.
pub type Field<'a, T> = At<FieldRef<'a>, T>;

/// Walks an object without a schema with rules and adds the errors.
///
/// ```
/// use coracle_validation::field_ref::walk;
/// let (object, mut errors) = (serde_json::json!({"spec": {"replicas": -1}}), Vec::new());
/// walk(&object, &mut errors, |root| root.at("spec.replicas").non_negative());
/// assert_eq!(errors[0].to_string(), "spec.replicas: Invalid value: -1: must be greater than or equal to 0");
/// ```
pub fn walk(object: &Value, errors: &mut Vec<FieldError>, rules: impl FnOnce(FieldRef<'_>)) {
    let sink = Sink(RefCell::new(std::mem::take(errors)));
    rules(FieldRef { value: object, path: Path::root(), sink: &sink });
    *errors = sink.0.into_inner();
}

/// Walks an object of a type with rules and adds the errors.
///
/// ```
/// use coracle_fields::apps::v1::Deployment;
/// use coracle_validation::field_ref::walk_as;
/// let (object, mut errors) = (serde_json::json!({"spec": {"replicas": -1}}), Vec::new());
/// walk_as::<Deployment>(&object, &mut errors, |deployment| deployment.spec().replicas().non_negative());
/// assert_eq!(errors[0].to_string(), "spec.replicas: Invalid value: -1: must be greater than or equal to 0");
/// ```
pub fn walk_as<T: Schema>(object: &Value, errors: &mut Vec<FieldError>, rules: impl FnOnce(Field<'_, T>)) {
    walk(object, errors, |root| rules(At::new(root)));
}

/// The value of a field with the path of another place, such as an item with the path of its list: upstream reports some errors
/// there.
pub fn reported_at<'a, T>(field: &Field<'a, T>, place: &FieldRef<'a>) -> Field<'a, T> {
    At::new(place.with(field.value))
}

impl Access for FieldRef<'_> {
    #[inline]
    fn field(&self, field: coracle_fields::Field) -> Self {
        let value = self.value.get(field.name).unwrap_or(&NULL);
        FieldRef { value, path: self.path.field(field.name), sink: self.sink }
    }

    #[inline]
    fn reader<'a>(&self) -> Reader<'a>
    where
        Self: 'a,
    {
        Reader::Tree(self.value)
    }
}

impl<'a> Elements for FieldRef<'a> {
    type Items = Items<'a>;
    type Key = &'a str;
    type Entries = Entries<'a>;

    fn list_items(&self) -> Items<'a> {
        let items = self.value.as_array().map_or(&[][..], Vec::as_slice);
        Items { items: items.iter().enumerate(), path: self.path.shared(), sink: self.sink }
    }

    fn map_entries(&self) -> Entries<'a> {
        let entries = self.value.as_object().map(serde_json::Map::iter);
        Entries { entries, path: self.path.shared(), sink: self.sink }
    }

    fn map_entry(&self, key: &str) -> Self {
        let (value, path) = match self.value.as_object().and_then(|entries| entries.get_key_value(key)) {
            Some((key, value)) => (value, self.path.entry(key)),
            None => (&NULL, self.path.key(key)),
        };
        FieldRef { value, path, sink: self.sink }
    }
}

/// Items of a list.
pub struct Items<'a> {
    items: std::iter::Enumerate<std::slice::Iter<'a, Value>>,
    path: Path<'a>,
    sink: &'a Sink,
}

impl<'a> Iterator for Items<'a> {
    type Item = FieldRef<'a>;

    fn next(&mut self) -> Option<FieldRef<'a>> {
        let (index, value) = self.items.next()?;
        Some(FieldRef { value, path: self.path.index(index), sink: self.sink })
    }
}

/// Entries of a map; the path of each value ends in `[key]`.
pub struct Entries<'a> {
    entries: Option<serde_json::map::Iter<'a>>,
    path: Path<'a>,
    sink: &'a Sink,
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a str, FieldRef<'a>);

    fn next(&mut self) -> Option<(&'a str, FieldRef<'a>)> {
        let (key, value) = self.entries.as_mut()?.next()?;
        Some((key.as_str(), FieldRef { value, path: self.path.entry(key), sink: self.sink }))
    }
}

impl<'a> FieldRef<'a> {
    /// A field below, by dotted path.
    pub fn at(&self, path: &str) -> FieldRef<'a> {
        FieldRef { value: self.value.at(path), path: self.path.dotted(path), sink: self.sink }
    }

    /// The items of the list here.
    pub fn items(&self) -> Items<'a> {
        self.list_items()
    }

    /// The items of a list below.
    pub fn each(&self, path: &str) -> Items<'a> {
        self.at(path).list_items()
    }

    /// The entries of the map here; each value's path ends in `[key]`.
    pub fn entries(&self) -> Entries<'a> {
        self.map_entries()
    }

    /// An entry of a map by key: the path ends in `[key]`.
    pub fn key(&self, key: &str) -> FieldRef<'a> {
        self.map_entry(key)
    }

    /// The place as one of a type, which nothing checks.
    pub fn as_type<T>(&self) -> Field<'a, T> {
        At::new(self.clone())
    }

    /// The same place with another value, for errors about what is not in the object as such.
    pub fn with<'b>(&self, value: &'b Value) -> FieldRef<'b>
    where
        'a: 'b,
    {
        FieldRef { value, path: self.path.clone(), sink: self.sink }
    }

    /// The path, such as `spec.containers[0].image`.
    pub fn path(&self) -> String {
        self.path.to_string()
    }

    /// Whether something is here.
    pub fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    /// Whether nothing is here, or something empty or zero.
    pub fn is_empty(&self) -> bool {
        is_empty(self.value)
    }

    /// The text here, empty when there is none.
    pub fn text(&self) -> &'a str {
        self.value.as_str().unwrap_or_default()
    }

    /// The integer here.
    pub fn int(&self) -> Option<i64> {
        self.value.as_i64()
    }

    /// How many items or entries are here.
    pub fn len(&self) -> usize {
        match self.value {
            Value::Array(items) => items.len(),
            Value::Object(entries) => entries.len(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field_errors::unique;
    use coracle_fields::core::v1::Pod;
    use serde_json::json;

    fn texts(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn paths_and_texts() {
        let object = json!({"spec": {"list": [{"name": "a"}], "map": {"k.x": "v"}, "n": -1}});
        let mut errors = Vec::new();
        walk(&object, &mut errors, |root| {
            root.each("spec.list").for_each(|item| item.at("name").duplicate());
            root.at("spec.n").non_negative();
            root.at("spec.missing").required("say something");
            root.at("spec.map").entries().for_each(|(_, value)| value.invalid("bad"));
            root.at("spec.kind").one_of(&["A", "B"]);
        });
        assert_eq!(
            texts(&errors),
            [
                "spec.list[0].name: Duplicate value: \"a\"",
                "spec.n: Invalid value: -1: must be greater than or equal to 0",
                "spec.missing: Required value: say something",
                "spec.map[k.x]: Invalid value: \"v\": bad",
                "spec.kind: Unsupported value: \"\": supported values: \"A\", \"B\"",
            ]
        );
    }

    #[test]
    fn typed_places_have_the_same_paths_and_texts() {
        let object = json!({"metadata": {"labels": {"k.x": "v"}},
            "spec": {"containers": [{"image": "a", "ports": [{"containerPort": 0}]}], "priority": 3,
                "volumes": [{"name": "v"}, {"name": "v"}]}});
        let old = json!({"spec": {"priority": 4}});
        let mut errors = Vec::new();
        walk_as::<Pod>(&object, &mut errors, |pod| {
            for container in pod.spec().containers().items() {
                container.name().has_text("");
                container.ports().items().for_each(|port| port.container_port().in_range(1, 5));
                container.lifecycle().pre_stop().http_get().path().required("say something");
            }
            pod.metadata().labels().entries().for_each(|(_, value)| value.invalid("bad"));
            pod.metadata().labels().key("z").required("");
            unique(pod.spec().volumes().items().map(|volume| volume.name()));
            pod.spec().priority().immutable(Pod::of(&old).spec().priority());
        });
        assert_eq!(
            texts(&errors),
            [
                "spec.containers[0].name: Required value",
                "spec.containers[0].ports[0].containerPort: Invalid value: 0: must be between 1 and 5, inclusive",
                "spec.containers[0].lifecycle.preStop.httpGet.path: Required value: say something",
                "metadata.labels[k.x]: Invalid value: \"v\": bad",
                "metadata.labels[z]: Required value",
                "spec.volumes[1].name: Duplicate value: \"v\"",
                "spec.priority: Invalid value: 3: field is immutable",
            ]
        );
    }
}
