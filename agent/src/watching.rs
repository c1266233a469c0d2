//! Watches that never get stuck.

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Error, Event, Result, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Lists and follows objects, for ever, with growing pauses after errors.
///
/// A server that refuses to go on from where the watch was (410 at its start, after a restart or a compaction) is
/// listed anew; kube's own watcher would ask for the same version again and again.
pub fn watch<K>(api: Api<K>, config: Config) -> BoxStream<'static, Result<Event<K>>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let begin = move || watcher(api.clone(), config.clone()).default_backoff().boxed();
    stream::unfold((begin, None), |(begin, current)| async {
        let mut current = current.unwrap_or_else(&begin);
        let item = current.next().await?;
        let keep = !is_expired(&item);
        Some((item, (begin, keep.then_some(current))))
    })
    .boxed()
}

fn is_expired<T>(item: &Result<T>) -> bool {
    matches!(item, Err(Error::WatchStartFailed(kube::Error::Api(status))) if status.code == 410)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use http::{Request, Response};
    use http_body_util::BodyExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn a_refused_version_is_listed_anew() {
        let lists = Arc::new(AtomicUsize::new(0));
        let counted = lists.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let counted = counted.clone();
            async move {
                let watching = request.uri().query().is_some_and(|query| query.contains("watch=true"));
                let (code, body) = if watching {
                    (
                        410,
                        r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old","reason":"Expired","code":410}"#,
                    )
                } else {
                    counted.fetch_add(1, Ordering::SeqCst);
                    (
                        200,
                        r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}"#,
                    )
                };
                let body =
                    http_body_util::Full::from(body.as_bytes()).map_err(|never| match never {}).boxed();
                Ok::<_, std::convert::Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        let client = kube::Client::new(service, "default");
        let mut events = watch(Api::<ConfigMap>::default_namespaced(client), Config::default());
        let mut refused = 0;
        while lists.load(Ordering::SeqCst) < 3 {
            refused += usize::from(events.next().await.unwrap().is_err());
        }
        assert!(refused >= 2);
    }
}
