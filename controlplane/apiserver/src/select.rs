//! Label and field selectors on cached objects. Field selectors may name only fields that the kind declares.

use coracle_client::options::ListOptions;
use coracle_fields::View;
use coracle_fields::meta::ObjectMeta;
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::selector::{FieldSelector, LabelSelector};
use coracle_proto::status::ApiError;

/// Where the value of a field term is found.
#[derive(Debug, Clone, Copy)]
enum SelectorField {
    Name,
    Namespace,
    Field(usize),
}

/// What a list or watch selects.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    labels: LabelSelector,
    fields: Vec<(SelectorField, String, bool)>,
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
            let field_kind = match term.field.as_str() {
                "metadata.name" => SelectorField::Name,
                "metadata.namespace" if kind.namespaced() => SelectorField::Namespace,
                field => {
                    let field_kind = kind.fields.iter().position(|f| f.name == field);
                    SelectorField::Field(field_kind.ok_or_else(|| unknown_field(kind, field))?)
                }
            };
            Ok((field_kind, term.value, term.negated))
        });
        Ok(Self { labels, fields: fields.collect::<Result<_, ApiError>>()? })
    }

    /// Only what has this name, too, unless it is empty: nothing else was authorized.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        if !name.is_empty() {
            self.fields.push((SelectorField::Name, name.to_owned(), false));
        }
        self
    }

    /// Whether everything is selected.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether more is looked at than names, which are the same in all versions.
    pub fn selects_by_content(&self) -> bool {
        !self.labels.is_empty() || self.reads_fields()
    }

    /// Whether fields are looked at that not all kinds have.
    pub fn reads_fields(&self) -> bool {
        self.fields.iter().any(|(field_kind, ..)| matches!(field_kind, SelectorField::Field(_)))
    }

    /// Whether the names of an object are among those selected.
    pub fn names(&self, object: &Object) -> bool {
        self.fields.iter().all(|(field_kind, value, negated)| match field_kind {
            SelectorField::Name => (object.meta.name == *value) != *negated,
            SelectorField::Namespace => (object.meta.namespace == *value) != *negated,
            SelectorField::Field(_) => true,
        })
    }

    /// Whether an object that is stored nowhere is selected, by its metadata: other fields it offers none.
    pub fn matches_metadata(&self, meta: View<'_, ObjectMeta>) -> bool {
        let field = |field_kind: SelectorField| match field_kind {
            SelectorField::Name => meta.name().text(),
            SelectorField::Namespace => meta.namespace().text(),
            SelectorField::Field(_) => "",
        };
        self.fields.iter().all(|(field_kind, value, negated)| (field(*field_kind) == value) != *negated)
            && self.labels.matches(|key| meta.labels().key(key).get())
    }

    /// Whether an object is selected.
    pub fn matches(&self, object: &Object) -> bool {
        let field = |field_kind: SelectorField| match field_kind {
            SelectorField::Name => object.meta.name.as_str(),
            SelectorField::Namespace => object.meta.namespace.as_str(),
            SelectorField::Field(i) => object.fields.get(i).map_or("", String::as_str),
        };
        self.fields.iter().all(|(field_kind, value, negated)| (field(*field_kind) == value) != *negated)
            && self.labels.matches(|key| object.meta.labels.get(key).map(String::as_str))
    }
}
