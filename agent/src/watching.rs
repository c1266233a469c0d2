//! Watches that never get stuck.

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use kube::runtime::watcher::{Config, Error, Event, Result, watcher};
use kube::{Api, Resource};
use rand::RngExt;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(800);
const LONGEST: Duration = Duration::from_secs(30);

/// Lists and follows objects, for ever, with growing pauses after errors.
///
/// A server that refuses to go on from where the watch was (410 at its start, after a restart or a compaction) is
/// listed anew; kube's own watcher would ask for the same version again and again.
pub fn watch<K>(api: Api<K>, config: Config) -> BoxStream<'static, Result<Event<K>>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let begin = move || watcher(api.clone(), config.clone()).boxed();
    stream::unfold((begin, None, 0, false), |(begin, current, failures, failed)| async move {
        if failed {
            tokio::time::sleep(pause(failures)).await;
        }
        let mut current = current.unwrap_or_else(&begin);
        let item = current.next().await?;
        let failures = match &item {
            Err(_) => failures + 1,
            // The beginning of a list is no success yet: a server that refuses it does so every time.
            Ok(Event::Init) => failures,
            Ok(_) => 0,
        };
        let (failed, keep) = (item.is_err(), !is_expired(&item));
        Some((item, (begin, keep.then_some(current), failures, failed)))
    })
    .boxed()
}

/// Doubles from 0.8 s to half a minute, and is scattered so that nodes do not come all at once.
fn pause(failures: u32) -> Duration {
    let whole = LONGEST.min(SHORTEST * 2_u32.saturating_pow(failures - 1));
    whole.mul_f64(rand::rng().random_range(0.75..1.25))
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

    #[tokio::test]
    async fn a_server_that_refuses_lists_is_asked_less_and_less() {
        let service = tower::service_fn(|_: Request<Body>| async {
            let body = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"Forbidden","code":403}"#;
            let body = http_body_util::Full::from(body.as_bytes()).map_err(|never| match never {}).boxed();
            Ok::<_, std::convert::Infallible>(Response::builder().status(403).body(body).unwrap())
        });
        let client = kube::Client::new(service, "default");
        let mut events = watch(Api::<ConfigMap>::default_namespaced(client), Config::default());
        let begun = std::time::Instant::now();
        let mut refused = 0;
        while refused < 3 {
            refused += usize::from(events.next().await.unwrap().is_err());
        }
        // 0.8 and 1.6 s, less a quarter.
        assert!(begun.elapsed() >= Duration::from_millis(1800), "{:?}", begun.elapsed());
        assert!(pause(40) >= LONGEST.mul_f64(0.75));
    }
}
