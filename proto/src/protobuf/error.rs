//! Errors of protobuf decoding, with the messages of Go's decoder.

use crate::decode::JsonError;
use crate::quantity::QuantityError;

/// Why a body is not a message of its type. The texts are those that clients of upstream read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// The body has no bytes.
    #[error("empty data")]
    Empty,
    /// The body does not begin with the envelope's prefix.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Prefix,
    /// Nothing follows the envelope's prefix.
    #[error("empty body")]
    EmptyBody,
    /// The object is deeper than a body may be.
    #[error("proto: message is nested too deep")]
    Depth,
    /// The object has more values than a body may have.
    #[error("proto: too many values")]
    TooManyValues,
    /// A value is cut off.
    #[error("unexpected EOF")]
    UnexpectedEof,
    /// A varint of more than ten bytes.
    #[error("proto: integer overflow")]
    IntegerOverflow,
    /// A length that is no size on this machine.
    #[error("proto: negative length found during unmarshaling")]
    NegativeLength,
    /// A field number over 32 bits.
    #[error("proto: illegal tag")]
    Tag,
    /// Field number 0.
    #[error("proto: illegal tag 0 (wire type {0})")]
    ZeroTag(u64),
    /// A wire type that is not in use.
    #[error("proto: illegal wireType {0}")]
    WireType(u64),
    /// A field of another wire type than its type has.
    #[error("proto: wrong wireType for field {kind}.{field}")]
    FieldWireType {
        /// The message type.
        kind: String,
        /// The field.
        field: String,
    },
    /// A string that is not UTF-8.
    #[error("proto: invalid UTF-8 in string")]
    Utf8,
    /// Bytes that should be JSON are not.
    #[error("invalid JSON in bytes: {0}")]
    Json(JsonError),
    /// A string that is not a quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// Seconds and nanoseconds that are no time, and why.
    #[error("invalid time: {0}")]
    Time(String),
}
