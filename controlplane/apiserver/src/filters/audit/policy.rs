//! The audit policy: the first rule that matches a request sets its level.

use crate::admission::config::{SettingsError, of_type, strict};
use crate::request_info::RequestInfo;
use coracle_cli::yaml::YamlError;
use coracle_client::user::User;
use coracle_proto::status::FieldError;
use serde::Deserialize;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// How much of a request is written down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Level {
    /// Nothing.
    #[default]
    None,
    /// Who, what, when, and the code of the answer.
    Metadata,
    /// The request's body too.
    Request,
    /// The answer's body too.
    RequestResponse,
}

impl Level {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// Why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file cannot be read.
    #[error("{0}")]
    Read(PathBuf, #[source] std::io::Error),
    /// The file is no policy.
    #[error("{0} is no audit policy: {1}")]
    Parse(PathBuf, ContentError),
}

/// What is wrong with a policy.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// It is not YAML.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// It is something else, or has fields that a policy does not have.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// It has no rules.
    #[error("rules: must have at least one rule")]
    NoRules,
    /// A field has a value that it cannot have.
    #[error("{0}")]
    Field(FieldError),
}

fn invalid(field: String, value: &str, why: &str) -> ContentError {
    let text = format!("Invalid value: {value:?}: {why}");
    ContentError::Field(FieldError::new("FieldValueInvalid", field, text))
}

/// A policy.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Policy {
    // Looked at before; the rest of what every object has says nothing here.
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(rename = "metadata")]
    _metadata: serde_json::Map<String, Value>,
    rules: Vec<Rule>,
    omit_stages: Vec<String>,
    omit_managed_fields: bool,
}

/// How much of one request is written down.
#[derive(Debug, Clone, Default)]
pub struct AuditConfig {
    /// How much.
    pub level: Level,
    /// Stages at which nothing is.
    pub omit_stages: Vec<String>,
    /// Whether bodies go without their managed fields.
    pub omit_managed_fields: bool,
}

/// What a stage can be called.
const STAGES: [&str; 4] = ["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"];

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    level: Level,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<Resources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs", default)]
    paths: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<String>,
    #[serde(default)]
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Resources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

impl Policy {
    /// Reads a policy file.
    pub fn read(path: &Path) -> Result<Self, PolicyError> {
        let text = std::fs::read_to_string(path).map_err(|e| PolicyError::Read(path.into(), e))?;
        Self::parse(&text).map_err(|error| PolicyError::Parse(path.into(), error))
    }

    /// Reads a policy; what it does not know is a mistake, for what is meant to be written down would not be.
    fn parse(text: &str) -> Result<Self, ContentError> {
        let value: Value = coracle_cli::yaml::from_str(text)?;
        of_type(&value, &[("audit.k8s.io/v1", "Policy")])?;
        let policy: Self = strict(&value)?;
        if policy.rules.is_empty() {
            return Err(ContentError::NoRules);
        }
        stages("omitStages", &policy.omit_stages)?;
        for (index, rule) in policy.rules.iter().enumerate() {
            rule.check(&format!("rules[{index}]"))?;
        }
        Ok(policy)
    }

    /// Everything's metadata, for those who give a log and no policy.
    pub fn metadata() -> Self {
        let rule = Rule { level: Level::Metadata, ..Rule::default() };
        Self { rules: vec![rule], omit_stages: vec!["RequestReceived".into()], ..Self::default() }
    }

    /// How much of a request is written down.
    pub fn config(&self, user: &User, info: &RequestInfo) -> AuditConfig {
        let Some(rule) = self.rules.iter().find(|rule| rule.fits(user, info)) else {
            return AuditConfig::default();
        };
        AuditConfig {
            level: rule.level,
            omit_stages: self.omit_stages.iter().chain(&rule.omit_stages).cloned().collect(),
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
        }
    }
}

fn stages(field: &str, stages: &[String]) -> Result<(), ContentError> {
    match stages.iter().position(|stage| !STAGES.contains(&stage.as_str())) {
        None => Ok(()),
        Some(at) => {
            let why = format!("allowed stages are {}", STAGES.join(","));
            Err(invalid(format!("{field}[{at}]"), &stages[at], &why))
        }
    }
}

impl Rule {
    /// What is wrong with it although every field is known.
    fn check(&self, at: &str) -> Result<(), ContentError> {
        stages(&format!("{at}.omitStages"), &self.omit_stages)?;
        for (index, path) in self.paths.iter().enumerate().filter(|(_, path)| *path != "*") {
            let wrong = |why| Err(invalid(format!("{at}.nonResourceURLs[{index}]"), path, why));
            if !path.starts_with('/') {
                return wrong("non-resource URL rules must begin with a '/' character");
            }
            if path.find('*').is_some_and(|star| star + 1 < path.len()) {
                return wrong("non-resource URL wildcards '*' must be the final character of the rule");
            }
        }
        for (index, resources) in self.resources.iter().enumerate() {
            let at = format!("{at}.resources[{index}]");
            // A version with the group is a common mistake, and fits nothing.
            if resources.group.contains('/') {
                return Err(invalid(format!("{at}.group"), &resources.group, "is no group"));
            }
            if !resources.resource_names.is_empty() && resources.resources.is_empty() {
                return Err(ContentError::Field(FieldError::new(
                    "FieldValueInvalid",
                    format!("{at}.resourceNames"),
                    "using resourceNames requires at least one resource".to_owned(),
                )));
            }
        }
        let of_objects = !self.resources.is_empty() || !self.namespaces.is_empty();
        if of_objects && !self.paths.is_empty() {
            return Err(ContentError::Field(FieldError::new(
                "FieldValueInvalid",
                format!("{at}.nonResourceURLs"),
                "rules cannot apply to both regular resources and non-resource URLs".to_owned(),
            )));
        }
        Ok(())
    }

    fn fits(&self, user: &User, info: &RequestInfo) -> bool {
        let any = |list: &[String], wanted: &str| list.is_empty() || list.iter().any(|item| item == wanted);
        if !any(&self.users, &user.name) || !any(&self.verbs, info.verb.as_str()) {
            return false;
        }
        if !self.user_groups.is_empty() && !self.user_groups.iter().any(|group| user.in_group(group)) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return info.is_resource
                && any(&self.namespaces, &info.namespace)
                && (self.resources.is_empty() || self.resources.iter().any(|r| r.fits(info)));
        }
        if !self.paths.is_empty() {
            return !info.is_resource
                && self.paths.iter().any(|path| match path.strip_suffix('*') {
                    Some(prefix) => info.path.starts_with(prefix),
                    None => *path == info.path,
                });
        }
        true
    }
}

impl Resources {
    fn fits(&self, info: &RequestInfo) -> bool {
        if self.group != info.group {
            return false;
        }
        if !self.resource_names.is_empty() && !self.resource_names.contains(&info.name) {
            return false;
        }
        self.resources.is_empty()
            || self.resources.iter().any(|wanted| match wanted.split_once('/') {
                None => wanted == "*" || (*wanted == info.resource && info.subresource.is_empty()),
                Some(("*", sub)) => sub == info.subresource,
                Some((resource, "*")) => resource == info.resource,
                Some((resource, sub)) => resource == info.resource && sub == info.subresource,
            })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_first_rule_that_fits_decides() {
        let text = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [system:kube-proxy]
- level: Metadata
  resources: [{group: '', resources: [secrets, pods/log]}]
- level: RequestResponse
  verbs: [create]
  namespaces: [prod]
- level: None
  nonResourceURLs: ['/healthz*']
- level: Request
";
        let policy = Policy::parse(text).unwrap();
        let info = |verb: &str, namespace: &str, resource: &str, sub: &str| RequestInfo {
            is_resource: true,
            verb: verb.into(),
            namespace: namespace.into(),
            resource: resource.into(),
            subresource: sub.into(),
            ..RequestInfo::default()
        };
        let ann = User::new("ann", []);
        let level = |user: &User, info: &RequestInfo| policy.config(user, info).level;
        assert_eq!(level(&User::new("system:kube-proxy", []), &info("get", "a", "secrets", "")), Level::None);
        assert_eq!(level(&ann, &info("get", "a", "secrets", "")), Level::Metadata);
        assert_eq!(level(&ann, &info("get", "a", "pods", "log")), Level::Metadata);
        assert_eq!(level(&ann, &info("get", "a", "pods", "")), Level::Request);
        assert_eq!(level(&ann, &info("create", "prod", "pods", "")), Level::RequestResponse);
        let path = RequestInfo { verb: "get".into(), path: "/healthz/ping".into(), ..RequestInfo::default() };
        assert_eq!(level(&ann, &path), Level::None);
        assert_eq!(policy.config(&ann, &info("get", "a", "pods", "")).omit_stages, ["RequestReceived"]);
    }

    #[test]
    fn mistakes_are_told_with_their_field() {
        let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
        let rule = |rule: &str| format!("{head}rules: [{{level: Metadata}}, {{{rule}}}]");
        for (text, expected) in [
            ("bad".to_owned(), "is no object with apiVersion and kind"),
            ("kind: Policy\nrules: [{level: None}]".into(), "apiVersion: must be audit.k8s.io/v1"),
            (head.replace("Policy", "Foo"), "kind: \"Foo\" is not known here, it must be Policy"),
            (head.to_owned(), "rules: must have at least one rule"),
            (format!("{head}rule: []"), "rule: unknown field `rule`"),
            (rule("level: Request, resource: [{group: ''}]"), "rules[1].resource: unknown field `resource`"),
            (
                rule("level: Request, resources: [{name: a}]"),
                "rules[1].resources[0].name: unknown field `name`",
            ),
            (rule("level: All"), "rules[1].level: unknown variant `All`"),
            (rule("users: [a]"), "rules[1]: missing field `level`"),
            (rule("level: None, omitStages: [Done]"), "rules[1].omitStages[0]: Invalid value: \"Done\""),
            (format!("{head}omitStages: [Done]\nrules: [{{level: None}}]"), "omitStages[0]: Invalid value"),
            (rule("level: None, nonResourceURLs: [a]"), "rules[1].nonResourceURLs[0]: Invalid value: \"a\""),
            (rule("level: None, nonResourceURLs: ['/*/a']"), "rules[1].nonResourceURLs[0]: Invalid value"),
            (rule("level: None, nonResourceURLs: [/a], namespaces: [a]"), "rules[1].nonResourceURLs: rules"),
            (
                rule("level: None, resources: [{group: apps/v1}]"),
                "rules[1].resources[0].group: Invalid value",
            ),
            (rule("level: None, resources: [{resourceNames: [a]}]"), "rules[1].resources[0].resourceNames: "),
        ] {
            let said = Policy::parse(&text).unwrap_err().to_string();
            assert!(said.starts_with(expected), "{text}: {said}");
        }
    }

    #[test]
    fn every_documented_field_is_taken() {
        let text = "
apiVersion: audit.k8s.io/v1
kind: Policy
metadata: {name: all, creationTimestamp: null}
omitStages: [RequestReceived, ResponseStarted, ResponseComplete, Panic]
omitManagedFields: true
rules:
- level: Metadata
  users: [a]
  userGroups: [b]
  verbs: [get]
  resources: [{group: apps, resources: ['*/scale'], resourceNames: [one]}]
  namespaces: ['', prod]
  omitStages: [Panic]
  omitManagedFields: false
- level: Request
  nonResourceURLs: ['*', '/healthz*']
  resources:
- level: Request
";
        let policy = Policy::parse(text).unwrap();
        assert!(policy.config(&User::new("x", []), &RequestInfo::default()).omit_managed_fields);
        assert_eq!(policy.rules[0].omit_managed_fields, Some(false));
    }
}
