//! Why there is no answer: the object never was, its spans are gone, or the resource is unknown.

use crate::explain::authorize::group_and_plural;
use coracle_kinds::object::Object;
use coracle_proto::status::{ApiError, FieldError};
use coracle_proto::time::{format_time, parse_time};
use coracle_timeline::{ObjectKey, Question};
use serde::Deserialize;

/// A question without an answer.
pub(super) struct Missing<'a> {
    /// The question.
    pub(super) question: &'a Question,
    /// Whether the server has the resource.
    pub(super) known: bool,
    /// The object, if it is there and may be seen.
    pub(super) object: Option<&'a Object>,
    /// Unix time of the oldest record in nanoseconds.
    pub(super) oldest: Option<u64>,
    /// Notes about other servers that did not answer.
    pub(super) elsewhere: &'a [String],
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    creation_timestamp: Option<String>,
}

#[derive(Deserialize)]
struct Created {
    metadata: Metadata,
}

impl Missing<'_> {
    /// 404 with the cause.
    pub(super) fn error(&self) -> ApiError {
        let Some(key) = &self.question.object else {
            let what = match self.question.trace {
                Some(trace) => format!("trace {trace}"),
                None => "object of this uid".to_owned(),
            };
            return self.because("never", format!("no {what} was recorded since {}", self.since()));
        };
        let what = described(key);
        let (group, plural) = group_and_plural(&key.resource);
        let error = match self.object {
            None if !self.known => {
                let text = format!("the server has no kind {}", key.resource);
                self.because("unknown-resource", text)
            }
            None => {
                let since = self.since();
                let text = format!("no {what}, and none was written since {since}, the oldest that is kept");
                self.because("never", text)
            }
            Some(object) => {
                let created =
                    object.typed::<Created>().ok().and_then(|created| created.metadata.creation_timestamp);
                let created = created.unwrap_or_default();
                let earlier = parse_time(&created).is_some_and(|time| {
                    self.oldest.is_none_or(|oldest| time.as_nanosecond() < i128::from(oldest))
                });
                let text = match earlier {
                    true => {
                        format!("{what} was created at {created}, and spans are kept since {}", self.since())
                    }
                    false => format!("{what} was written at revision {} (not recorded)", object.revision),
                };
                self.because("expired", text)
            }
        };
        error.about(group, plural, &key.name)
    }

    fn because(&self, reason: &'static str, text: String) -> ApiError {
        let mut parts = vec![text];
        parts.extend_from_slice(self.elsewhere);
        let text = parts.join("; ");
        let mut error = ApiError::new(404, "NotFound", text.clone());
        error.details.causes = vec![FieldError::new(reason, "", text)];
        error
    }

    fn since(&self) -> String {
        let oldest = self.oldest.and_then(|oldest| jiff::Timestamp::from_nanosecond(oldest.into()).ok());
        oldest.map_or_else(|| "the server began".to_owned(), format_time)
    }
}

/// `deployments.apps "web" in default`.
fn described(key: &ObjectKey) -> String {
    match key.namespace.as_str() {
        "" => format!("{} {:?}", key.resource, key.name),
        namespace => format!("{} {:?} in {namespace}", key.resource, key.name),
    }
}
