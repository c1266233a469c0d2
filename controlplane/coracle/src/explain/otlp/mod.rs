//! Spans as messages of OTLP, with the attributes of OpenTelemetry's conventions.

// One span as a message, and messages as a request.
mod span;
// OTLP/JSON.
pub mod json;
// Spans of an answer.
mod answer;

#[cfg(test)]
mod tests;

pub use answer::json_of_trace;
pub(super) use span::text;
pub use span::{Source, SpanObject, SpanParts, request};
