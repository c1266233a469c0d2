//! Why the response of a conversion webhook is rejected.

use coracle_proto::status::{FieldError, aggregate};

/// What is wrong with an answer, in upstream's words after "conversion webhook for …". `at` is the index of the object
/// when there is more than one.
#[derive(Debug, thiserror::Error)]
pub enum ConversionError {
    /// The webhook did not convert.
    #[error("failed: {0}")]
    Response(ResponseError),
    /// Not as many objects as were sent.
    #[error("returned {returned} objects, expected {expected}")]
    Count {
        /// How many came back.
        returned: usize,
        /// How many were sent.
        expected: usize,
    },
    /// An object of another version or kind.
    #[error("{}: invalid {what} (expected {expected}, received {received})", kind_at(*.at))]
    Kind {
        /// Which object.
        at: Option<usize>,
        /// `groupVersion` or `kind`.
        what: &'static str,
        /// What it must be.
        expected: String,
        /// What it is.
        received: String,
    },
    /// An object with another name, namespace or UID.
    #[error("{}: must have the same {field}: {was} != {is}", object_at(*.at))]
    Identity {
        /// Which object.
        at: Option<usize>,
        /// The field.
        field: &'static str,
        /// What was sent.
        was: String,
        /// What came back.
        is: String,
    },
    /// Metadata that cannot be used.
    #[error("{}: {error}", metadata_at(*.at))]
    Metadata {
        /// Which object.
        at: Option<usize>,
        /// What is wrong with it.
        error: MetadataError,
    },
}

fn kind_at(at: Option<usize>) -> String {
    at.map_or_else(|| "returned invalid object at index 0".to_owned(), |_| object_at(at))
}

fn object_at(at: Option<usize>) -> String {
    at.map_or_else(
        || "returned invalid object".to_owned(),
        |index| format!("returned invalid converted object at index {index}"),
    )
}

fn metadata_at(at: Option<usize>) -> String {
    at.map_or_else(
        || "returned invalid metadata".to_owned(),
        |index| format!("returned invalid metadata in object at index {index}"),
    )
}

/// Why a review holds no converted objects.
#[derive(Debug, thiserror::Error)]
pub enum ResponseError {
    /// Not a ConversionReview.
    #[error("expected webhook response of {expected}, got {found}")]
    Review {
        /// The kind that it must be.
        expected: &'static str,
        /// The kind that it is.
        found: String,
    },
    /// A review without a response.
    #[error("no response provided")]
    Missing,
    /// The response to another request.
    #[error("expected response.uid={expected:?}, got {found:?}")]
    Uid {
        /// The UID that was sent.
        expected: String,
        /// The UID that came back.
        found: String,
    },
    /// The webhook failed and does not say why.
    #[error("response.result.status was '{0}', not 'Success'")]
    Status(String),
    /// The webhook failed, with its message.
    #[error("{0}")]
    Refused(String),
}

/// What is wrong with the metadata of a converted object. Types are named as Go names them.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// There is none.
    #[error("missing metadata in converted object")]
    Missing,
    /// It is not an object.
    #[error("invalid metadata of type {0} in converted object")]
    Type(&'static str),
    /// Labels or annotations are not an object.
    #[error("invalid metadata.{field} of type {found} in converted object")]
    FieldType {
        /// `labels` or `annotations`.
        field: &'static str,
        /// The type.
        found: &'static str,
    },
    /// A label or annotation is not a string.
    #[error("metadata.{field}[{key}] must be a string, but is {found} in converted object")]
    ValueType {
        /// `labels` or `annotations`.
        field: &'static str,
        /// The label or annotation.
        key: String,
        /// The type of its value.
        found: &'static str,
    },
    /// Labels or annotations that no object may have.
    #[error("{}", aggregate(.0))]
    Invalid(Vec<FieldError>),
}
