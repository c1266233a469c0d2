//! The kind that a body must have, and the check that it has it.

use super::error::KindMismatch;
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::decode::Meta;
use coracle_proto::schema;
use coracle_proto::status::ApiError;
use serde_json::Value;

/// The type a body must have.
#[derive(Debug, Clone)]
pub struct Expected {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
}

impl Expected {
    /// By group, version and kind.
    pub fn new(group: &str, version: &str, kind: &str) -> Self {
        Self { group: group.into(), version: version.into(), kind: kind.into() }
    }

    /// The kind itself.
    pub fn of(kind: &Kind) -> Self {
        Self::new(&kind.group, &kind.version, &kind.kind)
    }

    fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// 400 for a body whose kind is known.
    pub(super) fn unfit(&self, meta: &Meta, why: &dyn std::fmt::Display) -> ApiError {
        let (_, version) = meta.group_version();
        ApiError::bad_request(format!(
            "{} in version {version:?} cannot be handled as a {}: {why}",
            meta.kind, self.kind
        ))
    }

    /// 400 for a body whose kind cannot be told.
    pub(super) fn unrecognized(&self, why: &dyn std::fmt::Display, bytes: &[u8]) -> ApiError {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {why} ({})",
            self.kind,
            summary(bytes)
        ))
    }

    /// Why an object of this kind and version cannot be one of ours.
    pub(super) fn mismatch(&self, meta: &Meta) -> Option<KindMismatch> {
        let (group, version) = meta.group_version();
        if (group, version, meta.kind.as_str()) == (&*self.group, &*self.version, &*self.kind) {
            return None;
        }
        let found = schema::kind_type(group, version, &meta.kind);
        let Some(found) = found.filter(|t| t.package.is_some_and(|p| p.group == group)) else {
            let (kind, api_version) = (meta.kind.clone(), meta.api_version.clone());
            return Some(KindMismatch::Unknown { kind, api_version });
        };
        let internal =
            if self.group.is_empty() { "core" } else { self.group.split('.').next().unwrap_or("") };
        let expected = format!("{internal}.{}", self.kind);
        Some(KindMismatch::Other { found: found.go_name(), expected })
    }

    /// Fills in what the body leaves out, and refuses another kind or version.
    pub(super) fn check(&self, mut meta: Meta, bytes: &[u8]) -> Result<Meta, ApiError> {
        if meta.api_version.matches('/').count() > 1 {
            let why = format!("unexpected GroupVersion string: {}", meta.api_version);
            return Err(self.unrecognized(&why, bytes));
        }
        if meta.kind.is_empty() {
            meta.kind.clone_from(&self.kind);
        }
        if meta.api_version.is_empty() {
            meta.api_version = self.api_version();
        }
        let Some(why) = self.mismatch(&meta) else { return Ok(meta) };
        let same_kind = meta.group_version().0 == self.group && meta.kind == self.kind;
        if same_kind && matches!(why, KindMismatch::Other { .. }) {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({}) does not match the expected API version ({})",
                meta.api_version,
                self.api_version()
            )));
        }
        Err(self.unfit(&meta, &why))
    }
}

/// Writes kind and version into an object.
pub(super) fn set_kind(object: &mut Value, kind: String, api_version: String) {
    let mut object = PartialObjectMetadata::edit(object);
    object.kind().set(kind);
    object.api_version().set(api_version);
}

/// The beginning of a body, for errors.
fn summary(bytes: &[u8]) -> String {
    const MAX: usize = 30;
    let head = &bytes[..bytes.len().min(MAX)];
    let more = if bytes.len() > MAX { " ..." } else { "" };
    match bytes.first() {
        None => "<empty>".into(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(head)),
        Some(_) => format!("{}{more}", head.iter().map(|b| format!("{b:02x}")).collect::<String>()),
    }
}
