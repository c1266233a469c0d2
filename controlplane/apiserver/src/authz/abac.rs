//! ABAC: one policy per line of a file; a request is allowed if a line matches.

use super::{Authorizer, Decision, Rules};
use crate::request_info::RequestInfo;
use crate::verb::Verb;
use async_trait::async_trait;
use coracle_client::user::User;
use serde::Deserialize;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It cannot be read.
    #[error("{0}")]
    Read(PathBuf, #[source] std::io::Error),
    /// A line is no policy.
    #[error("{path} line {line}: {why}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// Why.
        why: String,
    },
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Policy {
    user: String,
    group: String,
    namespace: String,
    resource: String,
    #[serde(rename = "apiGroup")]
    api_group: String,
    #[serde(rename = "nonResourcePath")]
    path: String,
    readonly: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Line {
    api_version: String,
    kind: String,
    spec: Policy,
}

impl Policy {
    fn is_about(&self, user: &User) -> bool {
        let matches = |wanted: &str, mine: bool| wanted == "*" || mine;
        if self.user.is_empty() && self.group.is_empty() {
            return false;
        }
        (self.user.is_empty() || matches(&self.user, self.user == user.name))
            && (self.group.is_empty() || matches(&self.group, user.in_group(&self.group)))
    }

    fn allows(&self, request: &RequestInfo) -> bool {
        if self.readonly && !matches!(request.verb, Verb::Get | Verb::List | Verb::Watch) {
            return false;
        }
        let matches = |wanted: &str, asked: &str| wanted == "*" || wanted == asked;
        if request.is_resource {
            return matches(&self.namespace, &request.namespace)
                && matches(&self.resource, &request.resource)
                && matches(&self.api_group, &request.group);
        }
        match self.path.strip_suffix('*') {
            Some(prefix) => request.path.starts_with(prefix),
            None => !self.path.is_empty() && self.path == request.path,
        }
    }
}

/// The authorizer.
pub struct Abac(Vec<Policy>);

impl Abac {
    /// Reads a policy file. A bad line is an error: half a policy is none.
    pub fn read(path: &Path) -> Result<Self, PolicyError> {
        let text = std::fs::read_to_string(path).map_err(|e| PolicyError::Read(path.into(), e))?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, PolicyError> {
        let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let policies = lines.map(|(number, line)| {
            let bad = |why: String| PolicyError::Line { path: path.into(), line: number, why };
            let parsed: Line = serde_json::from_str(line).map_err(|e| bad(e.to_string()))?;
            if !parsed.api_version.starts_with("abac.authorization.kubernetes.io/") || parsed.kind != "Policy"
            {
                return Err(bad("want abac.authorization.kubernetes.io/v1beta1, kind Policy".into()));
            }
            Ok(parsed.spec)
        });
        Ok(Self(policies.collect::<Result<_, _>>()?))
    }
}

#[async_trait]
impl Authorizer for Abac {
    async fn authorize(&self, user: &User, request: &RequestInfo) -> Decision {
        if self.0.iter().any(|policy| policy.is_about(user) && policy.allows(request)) {
            return Decision::Allow;
        }
        Decision::NoOpinion("No policy matched.".into())
    }

    fn rules(&self, user: &User, namespace: &str) -> Rules {
        let mut rules = Rules::default();
        for policy in self.0.iter().filter(|policy| policy.is_about(user)) {
            let verbs: &[&str] = if policy.readonly { &["get", "list", "watch"] } else { &["*"] };
            if !policy.path.is_empty() {
                rules.paths.push(json!({"verbs": verbs, "nonResourceURLs": [policy.path]}));
            }
            let here = policy.namespace == "*" || policy.namespace == namespace;
            if here && !policy.resource.is_empty() {
                rules.resources.push(
                    json!({"verbs": verbs, "apiGroups": [policy.api_group], "resources": [policy.resource]}),
                );
            }
        }
        rules
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn lines_allow_what_they_say() {
        let line = |spec: &str| {
            format!(
                r#"{{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{spec}}}"#
            )
        };
        let text = [
            line(r#"{"user":"ann","namespace":"*","resource":"*","apiGroup":"*"}"#),
            line(r#"{"user":"bob","namespace":"dev","resource":"pods","readonly":true}"#),
            line(r#"{"group":"system:authenticated","readonly":true,"nonResourcePath":"/version*"}"#),
            line(r#"{"namespace":"*","resource":"*"}"#),
        ]
        .join("\n");
        let abac = Abac::parse(Path::new("p"), &text).unwrap();
        let pods = |verb: &str, namespace: &str| RequestInfo {
            is_resource: true,
            verb: verb.into(),
            resource: "pods".into(),
            namespace: namespace.into(),
            ..RequestInfo::default()
        };
        let path = |p: &str| RequestInfo { verb: "get".into(), path: p.into(), ..RequestInfo::default() };
        let user = |name: &str| User::new(name, []);
        let cases = [
            ("ann", pods("delete", "x"), true),
            ("bob", pods("list", "dev"), true),
            ("bob", pods("create", "dev"), false),
            ("bob", pods("list", "prod"), false),
            ("eve", pods("list", "dev"), false),
            ("eve", path("/version"), true),
            ("eve", path("/metrics"), false),
        ];
        for (name, request, allowed) in cases {
            let said = abac.authorize(&user(name), &request).await == Decision::Allow;
            assert_eq!(said, allowed, "{name} {request:?}");
        }
        assert!(Abac::parse(Path::new("p"), "{}").is_err());
    }
}
