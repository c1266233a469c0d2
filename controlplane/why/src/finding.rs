//! What is wrong with an object: cause, evidence, remedy.

use crate::trouble::{Severity, Trouble};
use coracle_fields::meta::ObjectMeta;
use coracle_fields::{Kind, View};
use serde::Serialize;
use std::fmt;

/// Reference to an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace, empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectRef {
    /// A reference by names.
    pub fn new<K: Kind>(namespace: &str, name: &str) -> Self {
        Self {
            api_version: K::API_VERSION.to_owned(),
            kind: K::KIND.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The reference to an object that was read.
    pub fn to<K: Kind>(object: View<'_, K>) -> Self {
        let meta = metadata(object);
        Self::new::<K>(meta.namespace().text(), meta.name().text())
    }

    /// Whether it refers to an object of this kind.
    pub fn is<K: Kind>(&self) -> bool {
        self.api_version == K::API_VERSION && self.kind == K::KIND
    }

    /// The object in a sentence, such as `pod/web in namespace shop`.
    pub fn described(&self) -> String {
        match self.namespace.as_str() {
            "" => self.to_string(),
            namespace => format!("{self} in namespace {namespace}"),
        }
    }

    /// Arguments of kubectl that name the object, such as `pod/web -n shop`.
    pub fn arguments(&self) -> String {
        match self.namespace.as_str() {
            "" => self.to_string(),
            namespace => format!("{self} -n {namespace}"),
        }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.to_lowercase(), self.name)
    }
}

/// The metadata of an object of any type.
pub fn metadata<T>(object: View<'_, T>) -> View<'_, ObjectMeta> {
    object.erased().at("metadata").as_type()
}

/// A fact that supports a cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// Where it is from, such as `event FailedMount (3 times)`.
    pub what: String,
    /// What it says.
    pub text: String,
}

/// A root cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The object that is at fault.
    pub object: ObjectRef,
    /// Which kind of trouble it is.
    pub trouble: Trouble,
    /// How bad it is.
    pub severity: Severity,
    /// One sentence.
    pub cause: String,
    /// RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Facts.
    pub evidence: Vec<Evidence>,
    /// The command or the field that would change it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
    /// The references that were followed, from the object that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<ObjectRef>,
    /// Other objects with the same cause.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<ObjectRef>,
}

impl Finding {
    /// A cause without evidence.
    pub fn new(object: ObjectRef, trouble: Trouble, cause: impl Into<String>) -> Self {
        Self {
            object,
            trouble,
            severity: trouble.severity(),
            cause: cause.into(),
            since: None,
            evidence: Vec::new(),
            remedy: String::new(),
            via: Vec::new(),
            others: Vec::new(),
        }
    }

    /// Adds when it began; an empty text is ignored.
    pub fn since(mut self, time: &str) -> Self {
        if !time.is_empty() {
            self.since = Some(time.to_owned());
        }
        self
    }

    /// Adds a fact; one without text is ignored.
    pub fn evidence(mut self, what: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        if !text.trim().is_empty() {
            self.evidence.push(Evidence { what: what.into(), text: text.trim().to_owned() });
        }
        self
    }

    /// Adds facts.
    pub fn with(mut self, facts: impl IntoIterator<Item = Evidence>) -> Self {
        self.evidence.extend(facts);
        self
    }

    /// Adds what would change it.
    pub fn remedy(mut self, text: impl Into<String>) -> Self {
        self.remedy = text.into();
        self
    }
}
