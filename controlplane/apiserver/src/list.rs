//! Lists: resolves the revision and the page. The body is rendered in [`super::list_body`].

use super::api::Api;
use super::continue_token::ContinueToken;
use super::conversion::differs;
use super::select::Selection;
use coracle_client::options::ListOptions;
use coracle_fields::make;
use coracle_fields::meta::ListMeta;
use coracle_kinds::object::{Object, object_key};
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::{ApiError, FieldError};
use coracle_store::Revision;
use std::sync::Arc;

/// A page of a list.
pub struct Page {
    /// The objects, in key order.
    pub items: Vec<Arc<Object>>,
    /// The revision of the list.
    pub revision: Revision,
    /// Where the next page begins, empty on the last.
    pub continue_token: String,
    /// How many objects follow, when that is known.
    pub remaining: Option<usize>,
}

impl Page {
    /// `metadata` of the list.
    pub fn metadata(&self) -> serde_json::Value {
        let more = !self.continue_token.is_empty();
        let metadata = make!(part ListMeta {
            resource_version: self.revision.to_string(),
            continue_: more.then_some(&self.continue_token),
            remaining_item_count: self.remaining.filter(|_| more),
        });
        metadata.into_value()
    }
}

impl Api {
    /// One page of a list. `namespace` is `None` for all namespaces and for cluster-scoped kinds.
    pub async fn list(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        options: &ListOptions,
        selection: &Selection,
    ) -> Result<Page, ApiError> {
        check(options)?;
        let cache = match options.include_uninitialized {
            true => self.objects.whole_cache(kind)?,
            false => self.objects.cache(kind)?,
        };
        let token = match options.continue_token.as_str() {
            "" => None,
            text => Some(ContinueToken::decode(text)?),
        };
        if token.as_ref().is_some_and(ContinueToken::is_expired) {
            return Err(expired(token.as_ref()));
        }
        let exact = self.revision_of(options, token.as_ref()).await?;
        let (all, revision) = match exact {
            Some(at) => match cache.list_at(namespace, at) {
                Ok(all) => (all, at),
                Err(_) => return Err(expired(token.as_ref())),
            },
            None => cache.snapshot(namespace),
        };
        let start = token.as_ref().map_or(0, |token| {
            let (namespace, name) = token.position();
            let after = object_key(namespace, name);
            all.partition_point(|o| object_key(&o.meta.namespace, &o.meta.name) <= after)
        });
        let everything = selection.is_everything();
        let mut rest = &all[start..];
        let selected;
        let viewed = differs(kind, selection);
        if viewed {
            let named = rest.iter().filter(|object| selection.names(object)).cloned().collect();
            selected = self.converter.selected(kind, named, selection).await?;
            rest = &selected;
        }
        let mut matching = rest.iter().filter(|object| viewed || selection.matches(object));
        if options.limit == 0 {
            let items = matching.cloned().collect();
            return Ok(Page { items, revision, continue_token: String::new(), remaining: None });
        }
        let items: Vec<Arc<Object>> = matching.by_ref().take(options.limit).cloned().collect();
        let more = matching.next().is_some();
        let mut page = Page { items, revision, continue_token: String::new(), remaining: None };
        if let (true, Some(last)) = (more, page.items.last()) {
            let (namespace, name) = (&last.meta.namespace, &last.meta.name);
            let next = match token.filter(|token| token.revision() == Some(revision)) {
                Some(token) => token.moved(namespace, name),
                None => ContinueToken::after(namespace, name, Some(revision)),
            };
            page.continue_token = next.encode();
            // With a selector nobody knows how many of the rest would match; upstream is silent then too.
            page.remaining = everything.then(|| all.len() - start - page.items.len());
        }
        Ok(page)
    }

    /// The revision a list must be read at, or `None` for whatever the cache has once it is new enough.
    async fn revision_of(
        &self,
        options: &ListOptions,
        token: Option<&ContinueToken>,
    ) -> Result<Option<Revision>, ApiError> {
        if let Some(token) = token {
            if token.revision().is_none() {
                self.objects.catch_up().await?;
            }
            return Ok(token.revision());
        }
        match (parse_version(&options.resource_version)?, options.resource_version_match.as_str()) {
            (None, _) => {
                self.objects.catch_up().await?;
                Ok(None)
            }
            (Some(0), _) => Ok(None),
            // A page of a list at a version is read at that version, as are the pages that follow it.
            (Some(at), rule) if rule == "Exact" || (rule.is_empty() && options.limit > 0) => {
                self.wait_for_version(at).await?;
                Ok(Some(at))
            }
            (Some(at), _) => {
                self.wait_for_version(at).await?;
                Ok(None)
            }
        }
    }

    /// Waits for a revision that the client has seen elsewhere; one from the future is refused.
    pub async fn wait_for_version(&self, at: Revision) -> Result<(), ApiError> {
        let newest = self.objects.catch_up().await?;
        if at > newest {
            let mut error =
                ApiError::timeout(format!("Timeout: Too large resource version: {at}, current: {newest}"));
            error.details.retry_after = 1;
            error.details.causes.push(FieldError::new(
                "ResourceVersionTooLarge",
                "",
                "Too large resource version".into(),
            ));
            return Err(error);
        }
        Ok(())
    }
}

fn expired(token: Option<&ContinueToken>) -> ApiError {
    let Some(token) = token else {
        return ApiError::expired("The resourceVersion for the provided list is too old.");
    };
    let (namespace, name) = token.position();
    let mut error = ApiError::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    error.continue_token = Some(ContinueToken::after(namespace, name, None).encode());
    error
}

/// A resource version as clients send it: empty is `None`.
pub fn parse_version(text: &str) -> Result<Option<Revision>, ApiError> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        ApiError::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": \
             invalid syntax"
        ))
    })
}

fn check(options: &ListOptions) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    let (version, rule) = (options.resource_version.as_str(), options.resource_version_match.as_str());
    match rule {
        "" => {}
        "Exact" | "NotOlderThan" => {
            if version.is_empty() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                causes.push(FieldError::forbidden("resourceVersionMatch", why));
            }
            if !options.continue_token.is_empty() {
                let why = "resourceVersionMatch is forbidden when continue is provided";
                causes.push(FieldError::forbidden("resourceVersionMatch", why));
            }
            if rule == "Exact" && version == "0" {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                causes.push(FieldError::forbidden("resourceVersionMatch", why));
            }
        }
        other => {
            let supported = ["Exact", "NotOlderThan", ""];
            causes.push(FieldError::unsupported("resourceVersionMatch", &other.into(), &supported));
        }
    }
    if options.send_initial_events.is_some() {
        causes.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    if !causes.is_empty() {
        return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", causes));
    }
    if !options.continue_token.is_empty() && !version.is_empty() && version != "0" {
        return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
    }
    Ok(())
}
