//! A field of an object under validation: its value, its path, and the list that collects errors.
//!
//! [`Field`] has a type of the schema table, and with it a method per field and reads of that type. [`FieldRef`], to which it
//! dereferences, is for what needs no type: the path, the errors, and the value as a whole. It finds no fields by name, so that a
//! wrong name or type does not compile.

use crate::path::Path;
use crate::tree::{NULL, is_empty};
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
/// The methods of `T`'s fields hide methods of [`FieldRef`] with the same name (`path`, `required`); these are
/// called as `FieldRef::path(&field)`.
pub type Field<'a, T> = At<FieldRef<'a>, T>;

/// Passes a value without a type to rules and adds the errors.
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
/// use coracle_validation::field_rules::NumberRules as _;
/// let (object, mut errors) = (serde_json::json!({"spec": {"replicas": -1}}), Vec::new());
/// walk_as::<Deployment>(&object, &mut errors, |deployment| deployment.spec().replicas().non_negative());
/// assert_eq!(errors[0].to_string(), "spec.replicas: Invalid value: -1: must be greater than or equal to 0");
/// ```
///
/// A field is not found by name, and not read as another type:
///
/// ```compile_fail,E0599
/// use coracle_fields::apps::v1::Deployment;
/// use coracle_validation::field_ref::walk_as;
/// walk_as::<Deployment>(&serde_json::json!({}), &mut Vec::new(), |deployment| deployment.at("spec").required(""));
/// ```
/// ```compile_fail,E0599
/// use coracle_fields::apps::v1::Deployment;
/// use coracle_validation::field_ref::walk_as;
/// walk_as::<Deployment>(&serde_json::json!({}), &mut Vec::new(), |deployment| {
///     deployment.spec().replicas().text();
/// });
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
    /// A path below that upstream gives a field in errors though the object has the field elsewhere. Nothing is there:
    /// [`reported_at`] gives it the value of the field.
    pub fn below(&self, path: &str) -> FieldRef<'a> {
        FieldRef { value: &NULL, path: self.path.dotted(path), sink: self.sink }
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
    use crate::field_rules::{NumberRules as _, TextRules as _};
    use coracle_fields::core::v1::Pod;
    use serde_json::json;

    fn texts(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn values_at_other_paths() {
        let (object, mut errors) = (json!({"spec": {"priority": -1}}), Vec::new());
        walk_as::<Pod>(&object, &mut errors, |pod| {
            let spec = pod.spec();
            pod.below("old").required("say something");
            spec.below("[0].rank").with(&json!("x")).duplicate();
            reported_at(&spec.priority(), &pod.below("old.rank")).non_negative();
            reported_at(&spec.node_name(), &spec.below("Node")).one_of(&["A", "B"]);
        });
        walk(&json!("v"), &mut errors, |root| root.below("metadata.labels").with(root.value).invalid("bad"));
        assert_eq!(
            texts(&errors),
            [
                "old: Required value: say something",
                "spec.[0].rank: Duplicate value: \"x\"",
                "old.rank: Invalid value: -1: must be greater than or equal to 0",
                "spec.Node: Unsupported value: \"\": supported values: \"A\", \"B\"",
                "metadata.labels: Invalid value: \"v\": bad",
            ]
        );
    }

    #[test]
    fn paths_and_texts() {
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
