//! Watches of the API that recover from errors.

// Tolerates objects that cannot be decoded.
mod lenient;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use kube::runtime::watcher::{Config, Error, Event, Result, watcher};
use kube::{Api, Resource};
use lenient::Lenient;
use rand::RngExt;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::Duration;

const MIN_BACKOFF: Duration = Duration::from_millis(800);
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// Lists and watches objects forever, with backoff after errors. An object that cannot be decoded is logged and skipped,
/// as if it did not exist.
///
/// If the server rejects the resource version at the start of a watch (410, after a restart or a compaction), the objects are
/// listed again; kube's own watcher would retry the same version forever.
pub fn watch<K>(api: Api<K>, config: Config) -> BoxStream<'static, Result<Event<K>>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    K::DynamicType: Default,
{
    let api = lenient::api(api);
    let begin = move || watcher(api.clone(), config.clone()).filter_map(readable::<K>).boxed();
    stream::unfold((begin, None, 0, false), |(begin, current, failures, failed)| async move {
        if failed {
            tokio::time::sleep(pause(failures)).await;
        }
        let mut current = current.unwrap_or_else(&begin);
        let item = current.next().await?;
        let failures = match &item {
            Err(_) => failures + 1,
            // The start of a list does not reset the backoff: a server that rejects lists does so every time.
            Ok(Event::Init) => failures,
            Ok(_) => 0,
        };
        let (failed, keep) = (item.is_err(), !is_expired(&item));
        Some((item, (begin, keep.then_some(current), failures, failed)))
    })
    .boxed()
}

/// Unwraps the object of an event; `None` if it cannot be decoded. Consumers keep its previous state until the next
/// list, which does not contain it.
async fn readable<K>(event: Result<Event<Lenient<K>>>) -> Option<Result<Event<K>>>
where
    K: Resource,
    K::DynamicType: Default,
{
    Some(Ok(match event {
        Err(error) => return Some(Err(error)),
        Ok(Event::Init) => Event::Init,
        Ok(Event::InitDone) => Event::InitDone,
        Ok(Event::InitApply(object)) => Event::InitApply(object.read()?),
        Ok(Event::Apply(object)) => Event::Apply(object.read()?),
        Ok(Event::Delete(object)) => Event::Delete(object.read()?),
    }))
}

/// Exponential backoff from 0.8 s to 30 s, with jitter.
fn pause(failures: u32) -> Duration {
    let whole = MAX_BACKOFF.min(MIN_BACKOFF * 2_u32.saturating_pow(failures - 1));
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

    /// One object in a list and one in a watch that this client cannot read: too deep, and of another type.
    #[tokio::test]
    async fn what_cannot_be_read_stops_nothing() {
        let map = |name: &str, more: &str| {
            format!(
                r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","resourceVersion":"8"{more}}}}}"#
            )
        };
        let deep =
            format!(r#","managedFields":[{{"fieldsV1":{}1{}}}]"#, r#"{"f:a":"#.repeat(300), "}".repeat(300));
        let wrong = r#","labels":[1]"#;
        let items = [map("a", ""), map("deep", &deep), map("wrong", wrong), map("b", "")].join(",");
        let list = format!(
            r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"7"}},"items":[{items}]}}"#
        );
        let events =
            [("ADDED", map("deep", &deep)), ("MODIFIED", map("wrong", wrong)), ("ADDED", map("c", ""))];
        let events =
            events.map(|(what, object)| format!("{{\"type\":\"{what}\",\"object\":{object}}}\n")).concat();
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            counted.fetch_add(1, Ordering::SeqCst);
            let watching = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let body = if watching { events.clone() } else { list.clone() };
            async move {
                let body =
                    http_body_util::Full::from(body.into_bytes()).map_err(|never| match never {}).boxed();
                Ok::<_, std::convert::Infallible>(Response::builder().status(200).body(body).unwrap())
            }
        });
        let client = kube::Client::new(service, "default");
        let mut stream = watch(Api::<ConfigMap>::namespaced(client, "n"), Config::default());
        let mut seen = Vec::new();
        while seen.len() < 5 {
            seen.push(match stream.next().await.unwrap().unwrap() {
                Event::Init => "init".to_owned(),
                Event::InitDone => "done".to_owned(),
                Event::InitApply(one) | Event::Apply(one) | Event::Delete(one) => one.metadata.name.unwrap(),
            });
        }
        assert_eq!(seen, ["init", "a", "b", "done", "c"]);
        assert_eq!(asked.load(Ordering::SeqCst), 2, "one list and one watch");
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
        assert!(pause(40) >= MAX_BACKOFF.mul_f64(0.75));
    }
}
