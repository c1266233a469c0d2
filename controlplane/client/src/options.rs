//! Query parameters of the API verbs, as upstream reads and refuses them.

use crate::audit_annotations::AuditAnnotations;
use crate::fence::Fence;
use crate::trace_options::TraceOptions;
use coracle_fields::{fields, meta};
use coracle_proto::status::{ApiError, FieldError};

/// How strictly unknown and duplicate fields are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// Dropped silently.
    Ignore,
    /// Dropped, with a `Warning` header.
    #[default]
    Warn,
    /// Refused.
    Strict,
}

/// What a create does while initializers of the new object are pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Uninitialized {
    /// Waits for them, and deletes the object again if that takes too long: control loops, which cannot see it, try again.
    #[default]
    Remove,
    /// Waits for them; the object stays if that takes too long.
    Keep,
    /// Answers with the object as it is: `includeUninitialized=true`.
    Show,
}

/// Parameters of create, update and patch.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Do everything but store.
    pub dry_run: bool,
    /// Who owns the fields that this request sets.
    pub field_manager: String,
    /// How strictly the body is read.
    pub field_validation: FieldValidation,
    /// Apply: take over fields from other managers.
    pub force: Option<bool>,
    /// Annotations that admission adds to the audit event.
    pub audit_annotations: AuditAnnotations,
    /// What the client says about the trace of its request.
    pub trace: TraceOptions,
    /// The fence of an elected control loop; requests have none.
    pub fence: Option<Fence>,
    /// With initializers: how a create ends.
    pub uninitialized: Uninitialized,
    /// The call does not wait for audit sinks: one that is behind does not get its events.
    pub skips_slow_audit: bool,
}

impl WriteOptions {
    /// Reads the query of a verb; `agent` is the client's User-Agent, the default field manager.
    pub fn parse(query: &[(String, String)], agent: &str, verb: &str) -> Result<Self, ApiError> {
        let mut options = Self { uninitialized: Uninitialized::Keep, ..Self::default() };
        let refused = |cause: FieldError| {
            let kind = match verb {
                "update" => "UpdateOptions",
                "patch" => "PatchOptions",
                _ => "CreateOptions",
            };
            ApiError::invalid("meta.k8s.io", kind, "", vec![cause])
        };
        for (key, value) in query {
            match key.as_str() {
                "dryRun" => options.dry_run = dry_run(value).map_err(refused)?,
                "fieldManager" => options.field_manager = manager(value).map_err(refused)?,
                "fieldValidation" => options.field_validation = field_validation(value).map_err(refused)?,
                "force" => options.force = Some(value == "true" || value == "1"),
                "includeUninitialized" if truth(value) => options.uninitialized = Uninitialized::Show,
                _ => {}
            }
        }
        if options.field_manager.is_empty() {
            options.field_manager = manager_of_agent(agent);
        }
        Ok(options)
    }
}

/// The part of the User-Agent before the first slash, at most 128 characters.
pub fn manager_of_agent(agent: &str) -> String {
    let name: String =
        agent.split('/').next().unwrap_or("").chars().filter(|c| !c.is_control()).take(128).collect();
    if name.is_empty() { "unknown".into() } else { name }
}

fn manager(value: &str) -> Result<String, FieldError> {
    if value.len() > 128 {
        return Err(FieldError::too_long("fieldManager", 128));
    }
    if value.chars().any(char::is_control) {
        let why = "should only contain printable characters";
        return Err(FieldError::invalid("fieldManager", &value.into(), why));
    }
    Ok(value.into())
}

fn dry_run(value: &str) -> Result<bool, FieldError> {
    if value == "All" { Ok(true) } else { Err(unsupported_dry_run(&[value])) }
}

/// The value is a list, and is shown as such.
fn unsupported_dry_run(values: &[&str]) -> FieldError {
    FieldError::unsupported("dryRun", &serde_json::json!(values), &["All"])
}

fn field_validation(value: &str) -> Result<FieldValidation, FieldError> {
    match value {
        "" | "Warn" => Ok(FieldValidation::Warn),
        "Strict" => Ok(FieldValidation::Strict),
        "Ignore" => Ok(FieldValidation::Ignore),
        other => {
            let supported = ["", "Ignore", "Strict", "Warn"];
            Err(FieldError::unsupported("fieldValidation", &other.into(), &supported))
        }
    }
}

/// Parameters of list, watch and deletecollection.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    /// Label selector, unparsed.
    pub label_selector: String,
    /// Field selector, unparsed.
    pub field_selector: String,
    /// Page size, 0 for all.
    pub limit: usize,
    /// Continue token of the page before.
    pub continue_token: String,
    /// Resource version, unparsed.
    pub resource_version: String,
    /// `Exact`, `NotOlderThan` or empty.
    pub resource_version_match: String,
    /// Watch: send bookmarks.
    pub bookmarks: bool,
    /// Watch: start with synthetic ADDED events for what is there.
    pub send_initial_events: Option<bool>,
    /// Watch: end after so many seconds.
    pub timeout_seconds: Option<u64>,
    /// Table: what each row carries.
    pub include_object: String,
    /// With initializers: objects whose initializers are pending, too.
    pub include_uninitialized: bool,
}

impl ListOptions {
    /// Reads the query; of what is said twice the first counts, as it did when the request was authorized.
    pub fn parse(query: &[(String, String)]) -> Result<Self, ApiError> {
        let mut options = Self::default();
        for (key, value) in query.iter().rev() {
            match key.as_str() {
                "labelSelector" => options.label_selector = value.clone(),
                "fieldSelector" => options.field_selector = value.clone(),
                "limit" => options.limit = number(value)? as usize,
                "continue" => options.continue_token = value.clone(),
                "resourceVersion" => options.resource_version = value.clone(),
                "resourceVersionMatch" => options.resource_version_match = value.clone(),
                "allowWatchBookmarks" => options.bookmarks = truth(value),
                "sendInitialEvents" => options.send_initial_events = Some(truth(value)),
                "timeoutSeconds" if !value.is_empty() => options.timeout_seconds = Some(number(value)?),
                "includeObject" => options.include_object = value.clone(),
                "includeUninitialized" => options.include_uninitialized = truth(value),
                _ => {}
            }
        }
        Ok(options)
    }
}

fn truth(value: &str) -> bool {
    matches!(value, "true" | "1" | "True" | "TRUE" | "t" | "T")
}

fn number(value: &str) -> Result<u64, ApiError> {
    if value.is_empty() {
        return Ok(0);
    }
    value
        .parse::<i64>()
        .map(|n| n.max(0) as u64)
        .map_err(|_| ApiError::bad_request(format!("strconv.ParseInt: parsing \"{value}\": invalid syntax")))
}

fields! {
    /// Conditions a delete insists on.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Preconditions: meta::Preconditions, written {
        /// The uid the object must have.
        pub uid: Option<String>,
        /// The resource version the object must have.
        pub resource_version: Option<String>,
    }

    /// The body (or query) of a delete.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DeleteOptions: meta::DeleteOptions, written {
        /// Seconds the object may take to end.
        pub grace_period_seconds: Option<i64>,
        /// What happens to dependents: `Background`, `Foreground` or `Orphan`.
        pub propagation_policy: Option<String>,
        /// The old form of `propagationPolicy: Orphan`.
        pub orphan_dependents: Option<bool>,
        /// Conditions.
        pub preconditions: Option<Preconditions>,
        /// `["All"]` for a dry run.
        pub dry_run: Vec<String>,
    }
}

impl DeleteOptions {
    /// Fills in from the query what the body left out.
    pub fn with_query(mut self, query: &[(String, String)]) -> Result<Self, ApiError> {
        for (key, value) in query {
            match key.as_str() {
                "gracePeriodSeconds" if self.grace_period_seconds.is_none() => {
                    self.grace_period_seconds = Some(value.parse().map_err(|_| {
                        ApiError::bad_request(format!(
                            "strconv.ParseInt: parsing \"{value}\": invalid syntax"
                        ))
                    })?);
                }
                "propagationPolicy" if self.propagation_policy.is_none() => {
                    self.propagation_policy = Some(value.clone());
                }
                "orphanDependents" if self.orphan_dependents.is_none() => {
                    self.orphan_dependents = Some(truth(value))
                }
                "dryRun" if self.dry_run.is_empty() => self.dry_run = vec![value.clone()],
                _ => {}
            }
        }
        self.check()?;
        Ok(self)
    }

    fn check(&self) -> Result<(), ApiError> {
        use coracle_proto::status::FieldError;
        let mut causes = Vec::new();
        if self.propagation_policy.is_some() && self.orphan_dependents.is_some() {
            causes.push(FieldError::invalid(
                "propagationPolicy",
                &serde_json::json!(self.propagation_policy),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        if let Some(policy) = &self.propagation_policy
            && !matches!(policy.as_str(), "Background" | "Foreground" | "Orphan")
        {
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            causes.push(FieldError::unsupported("propagationPolicy", &policy.as_str().into(), &supported));
        }
        if self.dry_run.iter().any(|value| value != "All") {
            let values: Vec<&str> = self.dry_run.iter().map(String::as_str).collect();
            causes.push(unsupported_dry_run(&values));
        }
        if causes.is_empty() {
            Ok(())
        } else {
            Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", causes))
        }
    }

    /// Whether nothing is to be stored.
    pub fn is_dry_run(&self) -> bool {
        !self.dry_run.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_query_must_not_say() {
        let asked = |key: &str, value: &str| vec![(key.to_owned(), value.to_owned())];
        for (key, value, verb, want) in [
            (
                "fieldValidation",
                "Foo",
                "create",
                "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"Foo\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
            ),
            (
                "dryRun",
                "Some",
                "update",
                "UpdateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"",
            ),
            (
                "fieldManager",
                "\u{1}",
                "patch",
                "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Invalid value: \"\\u0001\": should only contain printable characters",
            ),
        ] {
            let said = WriteOptions::parse(&asked(key, value), "", verb).err();
            assert_eq!(said.map(|error| (error.code, error.message)), Some((422, want.to_owned())));
        }
        let deleted = DeleteOptions::default().with_query(&asked("dryRun", "Some")).err();
        assert!(deleted.is_some_and(|error| error.message.starts_with("DeleteOptions.meta.k8s.io")));
    }
}
