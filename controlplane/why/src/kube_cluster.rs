//! A cluster behind a `kube::Client`: plain requests to the API with the rights of the user.

use crate::cluster::{Access, Answer, Cluster, Need};
use crate::connect::reason;
use crate::kinds::Resource;
use coracle_fields::authorization::v1::SubjectAccessReview;
use coracle_fields::meta::{APIGroupList, APIResourceList, ListMeta};
use coracle_fields::{Json, Schema as _, View, make};
use http::header::{ACCEPT, CONTENT_TYPE, DATE};
use http::{Request, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use serde_json::Value;
use std::time::Duration;

/// Objects per page of a list.
const PAGE: usize = 500;
/// The most objects that are read of a list.
const MOST: usize = 50_000;
/// Lines of a log that are read.
const LINES: u32 = 20;

/// What the version of a server of Coracle contains.
const OWN: &str = "+coracle";

/// Accepts only metadata where the server can leave out the rest.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// A cluster that is asked through its API.
pub struct KubeCluster {
    client: kube::Client,
    timeout: Duration,
}

impl KubeCluster {
    /// A cluster whose requests end after `timeout`.
    pub fn new(client: kube::Client, timeout: Duration) -> Self {
        Self { client, timeout }
    }

    async fn send(&self, request: http::request::Builder, body: Vec<u8>) -> Result<String, kube::Error> {
        let request = request.body(body).map_err(kube::Error::HttpError)?;
        match tokio::time::timeout(self.timeout, self.client.request_text(request)).await {
            Ok(answer) => answer,
            Err(late) => Err(kube::Error::Service(late.into())),
        }
    }

    async fn read(&self, path: &str, accept: &str) -> Result<Value, kube::Error> {
        let text = self.send(Request::get(path).header(ACCEPT, accept), Vec::new()).await?;
        serde_json::from_str(&text).map_err(kube::Error::SerdeError)
    }

    async fn list(&self, path: &str, query: &str, accept: &str) -> Result<Answer, kube::Error> {
        let (mut items, mut token) = (Vec::new(), String::new());
        loop {
            let page = format!("{path}?limit={PAGE}{query}{token}");
            let mut answer = match self.read(&page, accept).await {
                Ok(answer) => answer,
                // The rest of the list has expired; what was read is still useful.
                Err(kube::Error::Api(status)) if status.code == 410 && !items.is_empty() => {
                    return Ok(Answer::Items(items, true));
                }
                Err(error) => return Err(error),
            };
            let next = View::<Json>::from(&answer).at("metadata").as_type::<ListMeta>().continue_().text();
            token = if next.is_empty() { String::new() } else { format!("&continue={}", encode(next)) };
            if let Some(Value::Array(more)) = answer.get_mut("items").map(Value::take) {
                items.extend(more);
            }
            if token.is_empty() || items.len() >= MOST {
                return Ok(Answer::Items(items, !token.is_empty()));
            }
        }
    }

    async fn log(&self, path: &str, container: &str, previous: bool) -> Result<Answer, kube::Error> {
        let container = encode(container);
        let path = format!(
            "{path}/log?container={container}&previous={previous}&tailLines={LINES}&limitBytes=16384"
        );
        Ok(Answer::Text(self.send(Request::get(path), Vec::new()).await?))
    }

    async fn access(&self, access: &Access) -> Result<Answer, kube::Error> {
        let review = make!(SubjectAccessReview {
            spec: {
                user: &access.user,
                groups: groups(&access.user),
                resource_attributes: {
                    namespace: access.namespace.as_deref(),
                    verb: &access.verb,
                    group: &access.group,
                    resource: &access.resource,
                },
            },
        });
        let body = serde_json::to_vec(&review).map_err(kube::Error::SerdeError)?;
        let request = Request::post("/apis/authorization.k8s.io/v1/subjectaccessreviews");
        let text = self.send(request.header(CONTENT_TYPE, "application/json"), body).await?;
        let answer: Value = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
        Ok(Answer::Allowed(SubjectAccessReview::of(&answer).status().allowed().flag()))
    }

    async fn resources(&self) -> Result<Answer, kube::Error> {
        let groups = self.read("/apis", "application/json").await?;
        let mut versions = vec!["v1".to_owned()];
        for group in APIGroupList::of(&groups).groups().items() {
            versions.push(group.preferred_version().group_version().text().to_owned());
        }
        let mut all = Vec::new();
        for version in versions {
            let root = if version.contains('/') { "/apis" } else { "/api" };
            // An aggregated API that is away must not hide the others.
            let Ok(list) = self.read(&format!("{root}/{version}"), "application/json").await else {
                continue;
            };
            let resources = APIResourceList::of(&list).resources();
            let whole = resources.items().filter(|resource| !resource.name().text().contains('/'));
            all.extend(whole.map(|resource| Resource {
                api_version: version.clone(),
                kind: resource.kind().text().to_owned(),
                plural: resource.name().text().to_owned(),
                namespaced: resource.namespaced().flag(),
                short: resource.short_names().texts().map(str::to_owned).collect(),
            }));
        }
        Ok(Answer::Resources(all))
    }

    /// How far the server's clock is ahead, from the head of a response.
    async fn clock(&self) -> Result<Answer, kube::Error> {
        let request = Request::get("/version").body(Vec::new()).map_err(kube::Error::HttpError)?;
        let asked = Timestamp::now().as_second();
        let sent = self.client.send(request.map(kube::client::Body::from));
        let response = match tokio::time::timeout(self.timeout, sent).await {
            Ok(response) => response?,
            Err(late) => return Err(kube::Error::Service(late.into())),
        };
        // The server does not know the user, and refuses everything else, too.
        if response.status() == StatusCode::UNAUTHORIZED {
            return Ok(Answer::Refused("401 Unauthorized".to_owned()));
        }
        let answered = Timestamp::now().as_second();
        let date = response.headers().get(DATE).and_then(|date| date.to_str().ok());
        let Some(server) = date.and_then(|date| rfc2822::DateTimeParser::new().parse_timestamp(date).ok())
        else {
            return Ok(Answer::Unavailable);
        };
        Ok(Answer::Ahead(ahead(server.as_second(), asked, answered)))
    }

    /// The timelines of the newest changes of an object.
    async fn trace(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Answer, kube::Error> {
        let version = self.read("/version", "application/json").await?;
        if !version.get("gitVersion").and_then(Value::as_str).is_some_and(|text| text.contains(OWN)) {
            return Ok(Answer::Unavailable);
        }
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("resource", &resource.qualified());
        query.append_pair("namespace", namespace.unwrap_or_default());
        query.append_pair("name", name);
        // One alone leaves out refusals where there was an object before.
        query.append_pair("last", "2");
        let path = format!("/coracle/v1/trace?{}", query.finish());
        Ok(Answer::Object(self.read(&path, "application/json").await?))
    }

    async fn ask(&self, need: &Need) -> Result<Answer, kube::Error> {
        match need {
            Need::List { resource, namespace } => {
                self.list(&resource.path(namespace.as_deref()), "", "application/json").await
            }
            Need::Names { resource, namespace } => {
                self.list(&resource.path(namespace.as_deref()), "", METADATA).await
            }
            Need::Object { resource, namespace, name } => {
                let path = format!("{}/{name}", resource.path(namespace.as_deref()));
                Ok(Answer::Object(self.read(&path, "application/json").await?))
            }
            Need::Events { namespace, kind, name } => {
                let selector = encode(&format!("involvedObject.kind={kind},involvedObject.name={name}"));
                let path = format!("/api/v1/namespaces/{namespace}/events");
                self.list(&path, &format!("&fieldSelector={selector}"), "application/json").await
            }
            Need::Log { namespace, pod, container, previous } => {
                self.log(&format!("/api/v1/namespaces/{namespace}/pods/{pod}"), container, *previous).await
            }
            Need::Trace { resource, namespace, name } => {
                self.trace(resource, namespace.as_deref(), name).await
            }
            Need::Access(access) => self.access(access).await,
            Need::Resources => self.resources().await,
            Need::Clock => self.clock().await,
        }
    }
}

impl Cluster for KubeCluster {
    async fn answer(&self, need: &Need) -> Answer {
        self.ask(need).await.unwrap_or_else(|error| failure(&error))
    }
}

/// Seconds that the server is ahead; none while its time, which is cut to seconds, lies between question and answer.
fn ahead(server: i64, asked: i64, answered: i64) -> i64 {
    if server < asked - 1 {
        server - asked
    } else if server > answered + 1 {
        server - answered
    } else {
        0
    }
}

/// The groups that every ServiceAccount is in.
fn groups(user: &str) -> Vec<String> {
    let mut groups = vec!["system:authenticated".to_owned()];
    if let Some((namespace, _)) =
        user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'))
    {
        groups.push("system:serviceaccounts".to_owned());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    groups
}

fn encode(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

fn failure(error: &kube::Error) -> Answer {
    match error {
        kube::Error::Api(status) => match status.code {
            401 | 403 => Answer::Refused(status.message.clone()),
            404 => Answer::Absent,
            _ => Answer::Failed(status.message.clone()),
        },
        other => {
            let why = reason(other).map_or_else(|| coracle_cli::causes::chain(other), str::to_owned);
            Answer::Failed(why)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_that_were_cut_are_no_difference() {
        assert_eq!((ahead(100, 100, 101), ahead(99, 100, 100), ahead(102, 100, 101)), (0, 0, 0));
        assert_eq!((ahead(40, 100, 101), ahead(400, 100, 101)), (-60, 299));
    }
}
