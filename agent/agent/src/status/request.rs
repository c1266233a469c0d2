//! One request of the reporter: a patch of a pod's status, or the deletion of its object.

use coracle_trace::{Recorder, Scope, Span, Stage, enter, stage};
use http::{HeaderValue, Request};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use std::time::Instant;

use crate::trace::moment;

/// Names the span that a request is part of, to a server that records spans: span, uid and revision of the pod.
const CAUSE: &str = "coracle-cause";

/// What is asked for.
pub(super) enum Work {
    /// A patch, and the status that it leads to.
    Patch(serde_json::Value, Box<PodStatus>),
    Delete,
}

/// Since when a report waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiting {
    /// When something changed that the server does not know.
    pub(super) changed: Instant,
    /// When the report was asked for by what it is recorded below: an earlier change may have had another cause.
    pub(super) asked: Instant,
}

impl Waiting {
    /// Since now.
    pub(super) fn begin() -> Self {
        let now = Instant::now();
        Waiting { changed: now, asked: now }
    }

    /// The same in place of a report that was not sent.
    pub(super) fn after(self, earlier: Option<Self>) -> Self {
        Waiting { changed: earlier.map_or(self.changed, |earlier| earlier.changed), ..self }
    }
}

/// One request about a pod.
pub(super) struct ReportRequest {
    pub(super) namespace: String,
    pub(super) name: String,
    /// Of the API object.
    pub(super) api_uid: String,
    pub(super) work: Work,
    /// Where it is recorded.
    pub(super) scope: Scope,
    /// Since when it waits; `None` if it was tried before, until the reporter fills that in.
    pub(super) waiting: Option<Waiting>,
    /// The newest revision of the API object that is known.
    pub(super) sent_version: u64,
}

impl ReportRequest {
    /// Its span, which began when it was asked for.
    pub(super) fn span(&self, recorder: Recorder) -> Span {
        let of = if matches!(self.work, Work::Patch(..)) { Stage::StatusReport } else { Stage::ObjectDelete };
        let mut span = enter(self.scope, || stage(of));
        if let Some(waiting) = self.waiting {
            span.began(moment(recorder, waiting.asked));
        }
        span
    }

    /// Makes the request; the answer of a patch is the pod. `kube::Api` could not name the span.
    pub(super) async fn send(&self, client: &kube::Client, span: &Span) -> Result<Option<Pod>, kube::Error> {
        let url = <Pod as kube::Resource>::url_path(&(), Some(&self.namespace));
        let requests = kube::core::Request::new(url);
        let made = match &self.work {
            Work::Patch(patch, _) => {
                let patch = Patch::Strategic(patch);
                requests.patch_subresource("status", &self.name, &PatchParams::default(), &patch)
            }
            Work::Delete => {
                let preconditions = Preconditions { uid: Some(self.api_uid.clone()), resource_version: None };
                let params = DeleteParams::default().grace_period(0).preconditions(preconditions);
                requests.delete(&self.name, &params)
            }
        };
        let mut request = made.map_err(kube::Error::BuildRequest)?;
        self.name_cause(&mut request, span);
        match self.work {
            Work::Patch(..) => client.request::<Pod>(request).await.map(Some),
            Work::Delete => client.request_status::<Pod>(request).await.map(|_| None),
        }
    }

    /// Whether the pod was deleted, or another one has its name, after the server refused the request with a code. Another uid
    /// is a conflict in a deletion and an invalid change in a patch, like much else, so the pod is read.
    pub(super) async fn is_gone(&self, client: &kube::Client, refused: u16) -> bool {
        match refused {
            404 => true,
            409 | 422 => {
                let pods: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
                match pods.get(&self.name).await {
                    Ok(pod) => pod.metadata.uid.as_deref() != Some(self.api_uid.as_str()),
                    // Nodes may not read pods of other nodes.
                    Err(kube::Error::Api(status)) => matches!(status.code, 403 | 404),
                    Err(_) => false,
                }
            }
            _ => false,
        }
    }

    /// Tells the server which span the request is part of.
    fn name_cause(&self, request: &mut Request<Vec<u8>>, span: &Span) {
        if span.id().is_none() {
            return;
        }
        // A static pod has no revision; its mirror has.
        let revision = if self.scope.revision == 0 { self.sent_version } else { self.scope.revision };
        let text = format!("{} {} {revision}", span.id(), self.api_uid);
        if let Ok(value) = HeaderValue::try_from(text) {
            request.headers_mut().insert(CAUSE, value);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_trace::{SpanId, Uid};
    use http::Response;
    use http_body_util::Full;
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::json;
    use std::sync::Arc;

    const UID: &str = "11d6d9f2-7d9f-4a5b-8a54-0d7b6a1d0c11";

    /// Method, path and cause of what a server got.
    type Got = Arc<Mutex<Vec<(String, String, Option<String>)>>>;

    fn client(got: &Got) -> kube::Client {
        let got = got.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let cause = request.headers().get(CAUSE).map(|value| value.to_str().unwrap().to_owned());
            let path = request.uri().path().to_owned();
            got.lock().push((request.method().to_string(), path, cause));
            async {
                let body =
                    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web"}}).to_string();
                Ok::<_, std::convert::Infallible>(Response::new(Full::<bytes::Bytes>::from(body)))
            }
        });
        kube::Client::new(service, "default")
    }

    #[tokio::test]
    async fn requests_name_their_span() {
        let got = Got::default();
        let client = client(&got);
        let recorder = Recorder::for_tests();
        let of_pod = Scope::of_pod(recorder, Uid::of(UID), 42);
        let mut of_static_pod = of_pod;
        of_static_pod.revision = 0;
        let mut expected = Vec::new();
        for (scope, work, method, path) in [
            (of_pod, Work::Patch(json!({}), Box::default()), "PATCH", "web/status"),
            (of_pod, Work::Delete, "DELETE", "web"),
            (of_static_pod, Work::Delete, "DELETE", "web"),
            (Scope::NONE, Work::Delete, "DELETE", "web"),
        ] {
            let (namespace, name, api_uid) = ("default".to_owned(), "web".to_owned(), UID.to_owned());
            let waiting = Some(Waiting::begin());
            let request = ReportRequest { namespace, name, api_uid, work, scope, waiting, sent_version: 50 };
            let span = request.span(recorder);
            request.send(&client, &span).await.unwrap();
            let revision = if scope.revision == 0 { 50 } else { 42 };
            let cause = (span.id() != SpanId::NONE).then(|| format!("{} {UID} {revision}", span.id()));
            assert_eq!(cause.is_some(), scope.recorder.is_on());
            expected.push((method.to_owned(), format!("/api/v1/namespaces/default/pods/{path}"), cause));
        }
        assert_eq!(*got.lock(), expected);
        let mut stages = Vec::new();
        drop(recorder.read(&mut |record, _, _| stages.push(record.stage)));
        assert_eq!(stages, [Stage::StatusReport, Stage::ObjectDelete, Stage::ObjectDelete]);
    }

    #[tokio::test]
    async fn a_refused_request_is_repeated_only_for_the_same_pod() {
        let reads = [
            (200_u16, UID, false),
            (200, "another", true),
            (403, "", true),
            (404, "", true),
            (500, "", false),
        ];
        let cases =
            reads.into_iter().flat_map(|(read, uid, gone)| [409, 422].map(|code| (code, read, uid, gone)));
        for (refused, read, uid, gone) in cases.chain([(404, 200, UID, true), (403, 404, "", false)]) {
            let service = tower::service_fn(move |_: Request<Body>| async move {
                let body = match read {
                    200 => {
                        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web", "uid": uid}})
                    }
                    code => json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}),
                };
                let response =
                    Response::builder().status(read).body(Full::<bytes::Bytes>::from(body.to_string()));
                Ok::<_, std::convert::Infallible>(response.unwrap())
            });
            let client = kube::Client::new(service, "default");
            let request = ReportRequest {
                namespace: "default".to_owned(),
                name: "web".to_owned(),
                api_uid: UID.to_owned(),
                work: Work::Delete,
                scope: Scope::NONE,
                waiting: None,
                sent_version: 0,
            };
            assert_eq!(request.is_gone(&client, refused).await, gone, "{refused} {read} {uid}");
        }
    }
}
