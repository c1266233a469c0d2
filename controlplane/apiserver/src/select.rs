//! Label and field selectors on cached objects; only fields that the kind offers can be named.

use coracle_client::options::ListOptions;
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::selector::{FieldSelector, LabelSelector};
use coracle_proto::status::ApiError;

/// Where the value of a field term is found.
#[derive(Debug, Clone, Copy)]
enum Place {
    Name,
    Namespace,
    Field(usize),
}

/// What a list or watch selects.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    labels: LabelSelector,
    fields: Vec<(Place, String, bool)>,
}

/// kubectl puts the selector before it.
fn unknown_field(kind: &Kind, field: &str) -> ApiError {
    ApiError::bad_request(if kind.fields.is_empty() && kind.custom.is_none() {
        format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    } else {
        format!("field label not supported: {field}")
    })
}

impl Selection {
    /// Reads both selectors; 400 for a broken one and for a field that the kind does not offer.
    pub fn parse(kind: &Kind, options: &ListOptions) -> Result<Self, ApiError> {
        let labels: LabelSelector =
            options.label_selector.parse().map_err(|e| ApiError::bad_request(format!("{e}")))?;
        let fields: FieldSelector =
            options.field_selector.parse().map_err(|e| ApiError::bad_request(format!("{e}")))?;
        let fields = fields.terms.into_iter().map(|term| {
            let place = match term.field.as_str() {
                "metadata.name" => Place::Name,
                "metadata.namespace" if kind.namespaced() => Place::Namespace,
                field => {
                    let place = kind.fields.iter().position(|f| f.name == field);
                    Place::Field(place.ok_or_else(|| unknown_field(kind, field))?)
                }
            };
            Ok((place, term.value, term.negated))
        });
        Ok(Self { labels, fields: fields.collect::<Result<_, ApiError>>()? })
    }

    /// Only what has this name, too, unless it is empty: nothing else was authorized.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        if !name.is_empty() {
            self.fields.push((Place::Name, name.to_owned(), false));
        }
        self
    }

    /// Whether everything is selected.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether more is looked at than names, which are the same in all versions.
    pub fn looks_inside(&self) -> bool {
        !self.labels.is_empty() || self.reads_fields()
    }

    /// Whether fields are looked at that not all kinds have.
    pub fn reads_fields(&self) -> bool {
        self.fields.iter().any(|(place, ..)| matches!(place, Place::Field(_)))
    }

    /// Whether the names of an object are among those selected.
    pub fn names(&self, object: &Object) -> bool {
        self.fields.iter().all(|(place, value, negated)| match place {
            Place::Name => (object.meta.name == *value) != *negated,
            Place::Namespace => (object.meta.namespace == *value) != *negated,
            Place::Field(_) => true,
        })
    }

    /// Whether an object that is stored nowhere is selected, by its metadata: other fields it offers none.
    pub fn matches_metadata(&self, meta: &serde_json::Value) -> bool {
        let field = |place: Place| match place {
            Place::Name => meta["name"].as_str().unwrap_or_default(),
            Place::Namespace => meta["namespace"].as_str().unwrap_or_default(),
            Place::Field(_) => "",
        };
        self.fields.iter().all(|(place, value, negated)| (field(*place) == value) != *negated)
            && self.labels.matches_value(&meta["labels"])
    }

    /// Whether an object is selected.
    pub fn matches(&self, object: &Object) -> bool {
        let field = |place: Place| match place {
            Place::Name => object.meta.name.as_str(),
            Place::Namespace => object.meta.namespace.as_str(),
            Place::Field(i) => object.fields.get(i).map_or("", String::as_str),
        };
        self.fields.iter().all(|(place, value, negated)| (field(*place) == value) != *negated)
            && self.labels.matches(|key| object.meta.labels.get(key).map(String::as_str))
    }
}
