//! What others keep in a namespace, and its end.

use super::Extensions;
use super::table::Entry;
use super::target::Target;
use async_trait::async_trait;
use coracle_client::outside::{Elsewhere, Left};
use coracle_client::user::User;
use coracle_kinds::object::Owner;
use coracle_validation::tree::Tree;
use http::{Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a server may take to delete what is in a namespace.
const PATIENCE: Duration = Duration::from_secs(30);

/// What does not stand for itself in a path.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn segment(name: &str) -> String {
    utf8_percent_encode(name, ESCAPED).to_string()
}

fn count(left: &mut Left, target: &Target, resource: &str, list: &Value) {
    let items = list.items("items");
    if !items.is_empty() {
        *left.resources.entry(format!("{resource}.{}", target.group)).or_default() += items.len();
    }
    for finalizer in items.iter().flat_map(|item| item.items("metadata.finalizers")) {
        *left.finalizers.entry(finalizer.as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
}

#[async_trait]
impl Elsewhere for Extensions {
    async fn empty(&self, namespace: &str, user: &User) -> Left {
        Extensions::empty(self, namespace, user).await
    }

    async fn keeps(&self, owner: &Owner, namespace: &str, user: &User) -> Option<Result<bool, String>> {
        Extensions::keeps(self, owner, namespace, user).await
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
                        Ok(list) => count(&mut left, target, name, &list),
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
                self.call(target, user, Method::DELETE, &format!("{path}/{}", segment(name))).await?;
            }
        }
        self.call(target, user, Method::GET, path).await
    }

    /// Whether an object is there that somebody else keeps, with this uid, for something that it owns in `namespace` (empty: in
    /// none). Nothing is known about what nobody serves, or nobody answers for.
    pub async fn keeps(&self, owner: &Owner, namespace: &str, user: &User) -> Option<Result<bool, String>> {
        let (entry, resource) = self.kind(&owner.api_version, &owner.kind)?;
        let place = match resource.text("scope") {
            // Such a reference leads nowhere, and what it is in is left alone.
            "Namespaced" if namespace.is_empty() => return Some(Ok(true)),
            "Namespaced" => format!("namespaces/{namespace}/"),
            _ => String::new(),
        };
        let path =
            format!("{}/{place}{}/{}", entry.target.root(), resource.text("resource"), segment(&owner.name));
        let asked = (Method::GET, path.as_str(), "application/json");
        let answer = match self.ask(&entry.target, user, asked, PATIENCE).await {
            Ok(answer) => answer,
            Err(error) => return Some(Err(error.to_string())),
        };
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        Some(match answer.code {
            code if code.is_success() => Ok(body.text("metadata.uid") == owner.uid),
            // A path that is not there says nothing about objects.
            StatusCode::NOT_FOUND if body.text("reason") == "NotFound" => Ok(false),
            code => Err(format!("{path}: {code}")),
        })
    }

    /// Who serves a kind, and as what.
    fn kind(&self, api_version: &str, kind: &str) -> Option<(Arc<Entry>, Value)> {
        let entries = self.table.all();
        let mut there = entries.iter().filter(|entry| entry.available && entry.learned.fresh);
        let entry = there.find(|entry| entry.target.api_version() == api_version)?;
        let mut resources = entry.learned.resources.iter();
        let resource = resources.find(|resource| resource.text("responseKind.kind") == kind)?;
        Some((entry.clone(), resource.clone()))
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
