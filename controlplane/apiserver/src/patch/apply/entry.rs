//! Entries of `metadata.managedFields`.

use super::Writer;
use super::set::{ElementError, Set};
use coracle_fields::Schema as _;
use coracle_fields::meta::{ManagedFieldsEntry, PartialObjectMetadata};
use serde_json::{Map, Value, json};

/// How many managers of plain writes are kept apart before the oldest are summed up.
const MAX_UPDATE_MANAGERS: usize = 10;
/// The manager that stands for summed-up ones.
const ANCIENT: &str = "ancient-changes";

/// How a manager wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By anything else.
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// What one manager owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Who.
    pub manager: String,
    /// How.
    pub operation: Operation,
    /// The version its fields are written in.
    pub api_version: String,
    /// The endpoint.
    pub subresource: String,
    /// When it last changed something.
    pub time: Option<String>,
    /// Its fields.
    pub fields: Set,
}

/// Why `managedFields` cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum EntryError {
    /// Neither `Apply` nor `Update`.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// No version.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// Not `FieldsV1`.
    #[error("invalid fieldsType {0:?} in managed fields entry {1}")]
    FieldsType(String, usize),
    /// Fields that cannot be read.
    #[error("error decoding set: {0}")]
    Fields(ElementError),
    /// Not a list of entries.
    #[error("managedFields must be a list of objects")]
    NotEntries,
}

impl Entry {
    /// A writer's own entry.
    pub fn of(writer: &Writer, operation: Operation, fields: Set) -> Self {
        let manager = if writer.manager.is_empty() { "unknown" } else { writer.manager };
        Self {
            manager: manager.to_owned(),
            operation,
            api_version: writer.api_version.to_owned(),
            subresource: writer.subresource.to_owned(),
            time: Some(writer.now.to_owned()),
            fields,
        }
    }

    /// Whether both entries belong to the same manager; an applier may change its version.
    pub fn same_manager(&self, other: &Self) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// The manager as conflicts name it: `"kubectl" using apps/v1`.
    pub fn describe(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }

    fn into_value(self) -> Value {
        let mut map = Map::new();
        map.insert("manager".into(), json!(self.manager));
        map.insert("operation".into(), json!(self.operation.name()));
        map.insert("apiVersion".into(), json!(self.api_version));
        if let Some(time) = self.time {
            map.insert("time".into(), json!(time));
        }
        map.insert("fieldsType".into(), json!("FieldsV1"));
        map.insert("fieldsV1".into(), self.fields.into_value());
        if !self.subresource.is_empty() {
            map.insert("subresource".into(), json!(self.subresource));
        }
        Value::Object(map)
    }

    fn decode(index: usize, value: &Value) -> Result<Self, EntryError> {
        let entry = ManagedFieldsEntry::of(value);
        let operation = match entry.operation().get() {
            Some("Apply") => Operation::Apply,
            Some("Update") => Operation::Update,
            _ => return Err(EntryError::Operation),
        };
        if entry.api_version() == "" {
            return Err(EntryError::ApiVersion);
        }
        if entry.fields_type() != "FieldsV1" {
            return Err(EntryError::FieldsType(entry.fields_type().text().to_owned(), index));
        }
        let fields = match &*entry.fields_v1().as_value() {
            Value::Null => Set::default(),
            fields => Set::decode(fields).map_err(EntryError::Fields)?,
        };
        Ok(Self {
            manager: entry.manager().text().to_owned(),
            operation,
            api_version: entry.api_version().text().to_owned(),
            subresource: entry.subresource().text().to_owned(),
            time: entry.time().get().map(str::to_owned),
            fields,
        })
    }
}

/// The entries of an object.
pub fn decode(object: &Value) -> Result<Vec<Entry>, EntryError> {
    match &*PartialObjectMetadata::of(object).metadata().managed_fields().as_value() {
        Value::Null => Ok(Vec::new()),
        Value::Array(list) => list.iter().enumerate().map(|(i, v)| Entry::decode(i, v)).collect(),
        _ => Err(EntryError::NotEntries),
    }
}

/// Sets the entries of an object: appliers before updaters, older before newer; no field when there are none.
pub fn encode(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|e| !e.fields.is_empty());
    entries.sort_by(|a, b| {
        let key = |e: &Entry| {
            (e.operation, e.time.clone(), e.manager.clone(), e.api_version.clone(), e.subresource.clone())
        };
        key(a).cmp(&key(b))
    });
    let Some(metadata) = metadata(object) else { return };
    if entries.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".into(), entries.into_iter().map(Entry::into_value).collect());
    }
}

/// Takes the entries out of an object.
pub fn strip(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

fn metadata(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.as_object_mut()?.entry("metadata").or_insert_with(|| Value::Object(Map::new())).as_object_mut()
}

/// Sums up the oldest managers of plain writes, per version, until ten are left.
pub fn cap(entries: &mut Vec<Entry>) {
    let updaters = |entries: &[Entry]| entries.iter().filter(|e| e.operation == Operation::Update).count();
    while updaters(entries) > MAX_UPDATE_MANAGERS {
        let mut old: Vec<usize> =
            (0..entries.len()).filter(|i| entries[*i].operation == Operation::Update).collect();
        old.sort_by(|a, b| {
            (&entries[*a].time, &entries[*a].manager).cmp(&(&entries[*b].time, &entries[*b].manager))
        });
        // The oldest with a successor of the same version.
        let pair = old.iter().enumerate().find_map(|(n, i)| {
            let rest = &old[n + 1..];
            let next = rest.iter().find(|j| entries[**j].api_version == entries[*i].api_version)?;
            Some((*i, *next))
        });
        let Some((first, second)) = pair else { return };
        let merged = Entry {
            manager: ANCIENT.into(),
            subresource: String::new(),
            fields: entries[first].fields.union(&entries[second].fields),
            time: entries[first].time.clone().max(entries[second].time.clone()),
            ..entries[first].clone()
        };
        let (high, low) = (first.max(second), first.min(second));
        entries.remove(high);
        entries.remove(low);
        entries.push(merged);
    }
}

/// Puts `before` back when the entries that an object has now cannot be read, and says why they cannot.
pub fn keep_readable(object: &mut Value, before: Value) -> Result<(), EntryError> {
    if *PartialObjectMetadata::of(object).metadata().managed_fields().as_value() == before {
        return Ok(());
    }
    let read = decode(object);
    if let (Err(_), Some(metadata)) = (&read, metadata(object)) {
        metadata.remove("managedFields");
        if !before.is_null() {
            metadata.insert("managedFields".into(), before);
        }
    }
    read.map(drop)
}

/// What a client says about ownership in the object it sends.
pub enum SentEntries {
    /// Nothing, or nothing that can be read.
    Unspecified,
    /// Forget all owners.
    Reset,
    /// These entries.
    Entries(Vec<Entry>),
}

/// Takes the entries out of an object that a client sent.
pub fn strip_and_decode(object: &mut Value) -> SentEntries {
    let entries = decode(object);
    match (strip(object), entries) {
        (Some(Value::Array(list)), _) if list.is_empty() => SentEntries::Reset,
        (Some(Value::Array(list)), _)
            if list.len() == 1 && list[0].as_object().is_some_and(Map::is_empty) =>
        {
            SentEntries::Reset
        }
        (_, Ok(entries)) if !entries.is_empty() => SentEntries::Entries(entries),
        _ => SentEntries::Unspecified,
    }
}
