//! What others keep in a namespace, and its end.

use super::Extensions;
use super::target::Target;
use crate::apiserver::user::User;
use crate::tree::Tree;
use http::{Method, StatusCode};
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// How long a server may take to delete what is in a namespace.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is left in a namespace.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// How many objects, by `resource.group`.
    pub resources: BTreeMap<String, usize>,
    /// How many objects each finalizer holds.
    pub finalizers: BTreeMap<String, usize>,
    /// Groups and versions that do not say what they have.
    pub stale: Vec<String>,
    /// What went wrong.
    pub errors: Vec<String>,
}

impl Left {
    fn count(&mut self, target: &Target, resource: &str, list: &Value) {
        let items = list.items("items");
        if !items.is_empty() {
            *self.resources.entry(format!("{resource}.{}", target.group)).or_default() += items.len();
        }
        for finalizer in items.iter().flat_map(|item| item.items("metadata.finalizers")) {
            *self.finalizers.entry(finalizer.as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
    }
}

impl Extensions {
    /// Deletes all that others keep in a namespace, in a user's name; says what is still there.
    pub async fn empty(&self, namespace: &str, user: &User) -> Left {
        let mut left = Left::default();
        let mut entries = Vec::clone(&self.table.all());
        entries.sort_by_key(|entry| Reverse(entry.priority));
        // Versions show the same objects: one is enough.
        let mut done: HashSet<(String, String)> = HashSet::new();
        for entry in &entries {
            let target = &entry.target;
            if !entry.available || !entry.learned.fresh {
                left.stale.push(target.api_version());
                continue;
            }
            for resource in entry.learned.resources.iter().filter(|r| r.text("scope") == "Namespaced") {
                let name = resource.text("resource");
                let can = |verb: &str| resource.items("verbs").iter().any(|known| known == verb);
                if can("delete") && can("list") && done.insert((target.group.clone(), name.to_owned())) {
                    let path = format!("{}/namespaces/{namespace}/{name}", target.root());
                    let emptied = self.clear(target, user, &path, can("deletecollection")).await;
                    match emptied {
                        Ok(list) => left.count(target, name, &list),
                        Err(why) => left.errors.push(format!("{name}.{}: {why}", target.group)),
                    }
                }
            }
        }
        left
    }

    /// Deletes what is in a collection; the list of what remains.
    async fn clear(&self, target: &Target, user: &User, path: &str, at_once: bool) -> Result<Value, String> {
        if at_once {
            self.call(target, user, Method::DELETE, path).await?;
        } else {
            let list = self.call(target, user, Method::GET, path).await?;
            for item in list.items("items") {
                let name = item.text("metadata.name");
                self.call(target, user, Method::DELETE, &format!("{path}/{name}")).await?;
            }
        }
        self.call(target, user, Method::GET, path).await
    }

    /// Null for what is not there, or cannot be done.
    async fn call(&self, target: &Target, user: &User, method: Method, path: &str) -> Result<Value, String> {
        let answer = self.ask(target, user, (method, path, "application/json"), PATIENCE).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        match answer.code {
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Ok(Value::Null),
            code if code.is_success() => Ok(body),
            code => {
                Err(Some(body.text("message")).filter(|m| !m.is_empty()).map_or(code.to_string(), Into::into))
            }
        }
    }
}
