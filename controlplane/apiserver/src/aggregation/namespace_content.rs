//! Deletes objects of aggregated API servers in a namespace, looks up owners there, and reads for control loops.

use super::Extensions;
use super::routes::Entry;
use super::target::Target;
use super::transport::TransportError;
use async_trait::async_trait;
use coracle_client::aggregated::{
    AggregatedObjects, AggregatedRead, AggregatedReadError, OwnerLookupError, RemainingContent,
};
use coracle_client::user::User;
use coracle_fields::Schema as _;
use coracle_fields::meta::{PartialObjectMetadata, PartialObjectMetadataList, Status};
use coracle_kinds::object::Owner;
use coracle_validation::tree::Tree;
use http::{Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// Timeout of requests to an aggregated server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Characters that are escaped in path segments.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Error of a request to an aggregated server.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// It responded with a `Status` message.
    #[error("{0}")]
    Refused(String),
    /// It responded with an error code and no message.
    #[error("{0}")]
    Status(StatusCode),
}

fn segment(name: &str) -> String {
    utf8_percent_encode(name, ESCAPED).to_string()
}

fn count(left: &mut RemainingContent, target: &Target, resource: &str, list: &Value) {
    let items = PartialObjectMetadataList::of(list).items();
    if !items.is_empty() {
        *left.resources.entry(format!("{resource}.{}", target.group)).or_default() += items.len();
    }
    for finalizer in items.items().flat_map(|item| item.metadata().finalizers().texts()) {
        *left.finalizers.entry(finalizer.to_owned()).or_default() += 1;
    }
}

#[async_trait]
impl AggregatedObjects for Extensions {
    async fn delete_in_namespace(&self, namespace: &str, user: &User) -> RemainingContent {
        Extensions::delete_namespace_content(self, namespace, user).await
    }

    async fn owner_exists(
        &self,
        owner: &Owner,
        namespace: &str,
        user: &User,
    ) -> Option<Result<bool, OwnerLookupError>> {
        Extensions::has_owner(self, owner, namespace, user).await
    }

    async fn read(
        &self,
        request: AggregatedRead<'_>,
        user: &User,
    ) -> Option<Result<Value, AggregatedReadError>> {
        let entries = self.table.all();
        let serves = |version: &&str| {
            let target = |entry: &&Arc<Entry>| {
                entry.available && entry.target.group == request.group && entry.target.version == *version
            };
            entries.iter().find(target)
        };
        let entry = request.versions.iter().find_map(serves)?;
        Some(self.read_from(&entry.target, request, user).await)
    }
}

impl Extensions {
    /// Deletes all objects of aggregated servers in a namespace as `user`; returns what remains.
    pub async fn delete_namespace_content(&self, namespace: &str, user: &User) -> RemainingContent {
        let mut left = RemainingContent::default();
        let mut entries = Vec::clone(&self.table.all());
        entries.sort_by_key(|entry| Reverse(entry.priority));
        // Versions show the same objects: one is enough.
        let mut done: HashSet<(String, String)> = HashSet::new();
        for entry in &entries {
            let target = &entry.target;
            if !entry.available || !entry.discovered.fresh {
                left.stale.push(target.api_version());
                continue;
            }
            for resource in entry.discovered.resources.iter().filter(|r| r.text("scope") == "Namespaced") {
                let name = resource.text("resource");
                let can = |verb: &str| resource.items("verbs").iter().any(|known| known == verb);
                if can("delete") && can("list") && done.insert((target.group.clone(), name.to_owned())) {
                    let path = format!("{}/namespaces/{namespace}/{name}", target.root());
                    let remaining =
                        self.delete_collection(target, user, &path, can("deletecollection")).await;
                    match remaining {
                        Ok(list) => count(&mut left, target, name, &list),
                        Err(why) => left.errors.push(format!("{name}.{}: {why}", target.group)),
                    }
                }
            }
        }
        left
    }

    /// Deletes a collection and lists what remains.
    async fn delete_collection(
        &self,
        target: &Target,
        user: &User,
        path: &str,
        at_once: bool,
    ) -> Result<Value, CallError> {
        if at_once {
            self.call(target, user, Method::DELETE, path).await?;
        } else {
            let list = self.call(target, user, Method::GET, path).await?;
            for item in PartialObjectMetadataList::of(&list).items() {
                let name = item.metadata().name().text();
                self.call(target, user, Method::DELETE, &format!("{path}/{}", segment(name))).await?;
            }
        }
        self.call(target, user, Method::GET, path).await
    }

    /// Whether an object is there that somebody else keeps, with this uid, for something that it owns in `namespace` (empty: in
    /// none). Nothing is known about what nobody serves, or nobody answers for.
    pub async fn has_owner(
        &self,
        owner: &Owner,
        namespace: &str,
        user: &User,
    ) -> Option<Result<bool, OwnerLookupError>> {
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
        let answer = match self.ask(&entry.target, user, asked, REQUEST_TIMEOUT).await {
            Ok(answer) => answer,
            Err(error) => return Some(Err(OwnerLookupError::Unreachable(Box::new(error)))),
        };
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        Some(match answer.code {
            code if code.is_success() => Ok(PartialObjectMetadata::of(&body).metadata().uid() == owner.uid),
            // A path that is not there says nothing about objects.
            StatusCode::NOT_FOUND if Status::of(&body).reason() == "NotFound" => Ok(false),
            code => Err(OwnerLookupError::Refused { path, status: code.to_string() }),
        })
    }

    async fn read_from(
        &self,
        target: &Target,
        request: AggregatedRead<'_>,
        user: &User,
    ) -> Result<Value, AggregatedReadError> {
        let mut path = target.root();
        for part in request.path {
            path.push('/');
            path.push_str(&segment(part));
        }
        let given = request.query.iter().filter(|(_, value)| !value.is_empty());
        for (i, (name, value)) in given.enumerate() {
            let separator = if i == 0 { '?' } else { '&' };
            path.push_str(&format!("{separator}{name}={}", segment(value)));
        }
        let asked = (Method::GET, path.as_str(), "application/json");
        let answer = self
            .ask(target, user, asked, REQUEST_TIMEOUT)
            .await
            .map_err(|error| AggregatedReadError::Unreachable(Box::new(error)))?;
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        if !answer.code.is_success() {
            let message = match Status::of(&body).message().text() {
                "" => answer.code.to_string(),
                message => message.to_owned(),
            };
            return Err(AggregatedReadError::Refused(message));
        }
        if body.is_object() { Ok(body) } else { Err(AggregatedReadError::NotAnObject) }
    }

    /// The server and the resource of a kind.
    fn kind(&self, api_version: &str, kind: &str) -> Option<(Arc<Entry>, Value)> {
        let entries = self.table.all();
        let mut there = entries.iter().filter(|entry| entry.available && entry.discovered.fresh);
        let entry = there.find(|entry| entry.target.api_version() == api_version)?;
        let mut resources = entry.discovered.resources.iter();
        let resource = resources.find(|resource| resource.text("responseKind.kind") == kind)?;
        Some((entry.clone(), resource.clone()))
    }

    /// Null if the resource does not exist or does not support the method.
    async fn call(
        &self,
        target: &Target,
        user: &User,
        method: Method,
        path: &str,
    ) -> Result<Value, CallError> {
        let answer = self.ask(target, user, (method, path, "application/json"), REQUEST_TIMEOUT).await?;
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        match answer.code {
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Ok(Value::Null),
            code if code.is_success() => Ok(body),
            code => Err(match Status::of(&body).message().text() {
                "" => CallError::Status(code),
                message => CallError::Refused(message.to_owned()),
            }),
        }
    }
}
