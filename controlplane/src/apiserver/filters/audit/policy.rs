//! The audit policy: a list of rules, of which the first that fits a request says how much is written down.

use crate::apiserver::request_info::RequestInfo;
use crate::apiserver::user::User;
use serde::Deserialize;
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
    pub fn word(self) -> &'static str {
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
    Parse(PathBuf, String),
}

/// A policy.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Policy {
    kind: String,
    rules: Vec<Rule>,
    omit_stages: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    level: Level,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<Resources>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    paths: Vec<String>,
    omit_stages: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Resources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

impl Policy {
    /// Reads a policy file.
    pub fn read(path: &Path) -> Result<Self, PolicyError> {
        let text = std::fs::read_to_string(path).map_err(|e| PolicyError::Read(path.into(), e))?;
        let bad = |why: String| PolicyError::Parse(path.into(), why);
        let policy: Self = serde_saphyr::from_str(&text).map_err(|e| bad(e.to_string()))?;
        if policy.kind != "Policy" || policy.rules.is_empty() {
            return Err(bad("want kind Policy with at least one rule".into()));
        }
        Ok(policy)
    }

    /// Everything's metadata, for those who give a log and no policy.
    pub fn metadata() -> Self {
        let rule = Rule { level: Level::Metadata, ..Rule::default() };
        Self { kind: "Policy".into(), rules: vec![rule], omit_stages: vec!["RequestReceived".into()] }
    }

    /// How much of a request is written down, and at which stages nothing is.
    pub fn level(&self, user: &User, info: &RequestInfo) -> (Level, Vec<String>) {
        let Some(rule) = self.rules.iter().find(|rule| rule.fits(user, info)) else {
            return (Level::None, Vec::new());
        };
        (rule.level, self.omit_stages.iter().chain(&rule.omit_stages).cloned().collect())
    }
}

impl Rule {
    fn fits(&self, user: &User, info: &RequestInfo) -> bool {
        let any = |list: &[String], wanted: &str| list.is_empty() || list.iter().any(|item| item == wanted);
        if !any(&self.users, &user.name) || !any(&self.verbs, &info.verb) {
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
        let policy: Policy = serde_saphyr::from_str(text).unwrap();
        let info = |verb: &str, namespace: &str, resource: &str, sub: &str| RequestInfo {
            is_resource: true,
            verb: verb.into(),
            namespace: namespace.into(),
            resource: resource.into(),
            subresource: sub.into(),
            ..RequestInfo::default()
        };
        let ann = User::new("ann", []);
        let level = |user: &User, info: &RequestInfo| policy.level(user, info).0;
        assert_eq!(level(&User::new("system:kube-proxy", []), &info("get", "a", "secrets", "")), Level::None);
        assert_eq!(level(&ann, &info("get", "a", "secrets", "")), Level::Metadata);
        assert_eq!(level(&ann, &info("get", "a", "pods", "log")), Level::Metadata);
        assert_eq!(level(&ann, &info("get", "a", "pods", "")), Level::Request);
        assert_eq!(level(&ann, &info("create", "prod", "pods", "")), Level::RequestResponse);
        let path = RequestInfo { verb: "get".into(), path: "/healthz/ping".into(), ..RequestInfo::default() };
        assert_eq!(level(&ann, &path), Level::None);
        assert_eq!(policy.level(&ann, &info("get", "a", "pods", "")).1, ["RequestReceived"]);
    }
}
