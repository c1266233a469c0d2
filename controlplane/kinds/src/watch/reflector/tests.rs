#![allow(clippy::unwrap_used)]
use super::*;
use crate::registry::kinds::Scope;
use crate::watch::event::Expired;
use coracle_store::embedded::Embedded;
use coracle_store::{Durability, Write};
use serde_json::{Value, json};

fn kind(group: &str, plural: &str, scope: Scope) -> Arc<Kind> {
    Arc::new(Kind { scope, ..Kind::new(group, "v1", "Thing", plural) })
}

async fn put(store: &dyn Store, kind: &Kind, at: (&str, &str), expect: Revision, n: u32) -> Revision {
    let value = json!({"metadata": {"name": at.1, "namespace": at.0}, "n": n}).to_string();
    let key = kind.key(at.0, at.1);
    let write = Write { key, expect, value: Some(value.into()), durability: Durability::Sync, fence: None };
    store.write(write).await.unwrap()
}

async fn delete(store: &dyn Store, kind: &Kind, at: (&str, &str), expect: Revision) -> Revision {
    let write =
        Write { key: kind.key(at.0, at.1), expect, value: None, durability: Durability::Sync, fence: None };
    store.write(write).await.unwrap()
}

/// `name=n` of each object.
fn names(objects: &[Arc<crate::object::Object>]) -> String {
    let one = |object: &Arc<crate::object::Object>| format!("{}={}", object.meta.name, object.value()["n"]);
    objects.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn caches_follow_the_store_and_reach_back() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(dir.path()).unwrap());
    let (pods, nodes) = (kind("", "pods", Scope::Namespaced), kind("", "nodes", Scope::Cluster));
    let a = put(&*store, &pods, ("x", "a"), 0, 1).await;
    put(&*store, &pods, ("x-y", "b"), 0, 1).await;
    put(&*store, &nodes, ("", "n"), 0, 1).await;
    put(&*store, &kind("", "unknown", Scope::Cluster), ("", "u"), 0, 1).await;
    let reflector = Reflector::start(store.clone(), [pods.clone(), nodes.clone()]).await.unwrap();
    let cache = reflector.cache(&pods).unwrap();
    // As in the store, "x-y/b" is before "x/a".
    assert_eq!(names(&cache.list(None)), "b=1 a=1");
    assert_eq!(names(&cache.list(Some("x"))), "a=1");
    assert_eq!(cache.get("x", "a").unwrap().revision, a);
    assert_eq!(reflector.cache(&nodes).unwrap().len(), 1);

    let (_, before, mut cursor) = cache.list_and_watch(None);
    assert_eq!(before, store.revision().await.unwrap());
    let a2 = put(&*store, &pods, ("x", "a"), a, 2).await;
    let c = put(&*store, &pods, ("x", "c"), 0, 1).await;
    let gone = delete(&*store, &pods, ("x", "a"), a2).await;
    reflector.wait_for(gone).await;
    assert_eq!(names(&cache.list(None)), "b=1 c=1");
    assert_eq!((cache.revision(), cursor.position()), (gone, None));
    let mut lines = String::new();
    for _ in 0..3 {
        lines.push_str(std::str::from_utf8(&cursor.next().await.unwrap().line).unwrap());
    }
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen = events.iter().map(|e| format!("{} {}", e["type"], e["object"]["metadata"]["resourceVersion"]));
    let want = [("MODIFIED", a2), ("ADDED", c), ("DELETED", gone)];
    assert_eq!(seen.collect::<Vec<_>>(), want.map(|(what, rv)| format!("{what:?} \"{rv}\"")));
    assert_eq!(cursor.position(), Some(gone));

    for (at, want) in [(before, "b=1 a=1"), (a2, "b=1 a=2"), (c, "b=1 a=2 c=1"), (gone, "b=1 c=1")] {
        assert_eq!(names(&cache.list_at(None, at).unwrap()), want);
    }
    assert_eq!(names(&cache.list_at(Some("x"), c).unwrap()), "a=2 c=1");
    assert_eq!(names(&cache.list_at(Some("x-y"), c).unwrap()), "b=1");

    let mut late = cache.subscribe(a2).unwrap();
    assert_eq!(late.next_batch().await.unwrap().len(), 2);
    // One that starts in the future gets nothing before it.
    let mut future = cache.subscribe(gone + 1).unwrap();
    let d = put(&*store, &pods, ("x", "d"), 0, 1).await;
    let e = put(&*store, &pods, ("x", "e"), 0, 1).await;
    assert_eq!(late.next().await.unwrap().object.revision, d);
    assert_eq!(future.next().await.unwrap().object.revision, e);
}

#[tokio::test]
async fn watchers_resume_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let pods = kind("", "pods", Scope::Namespaced);
    let mut revisions = Vec::new();
    for round in 0..3u32 {
        let store: Arc<dyn Store> = Arc::new(Embedded::open(dir.path()).unwrap());
        for n in 0..600 {
            revisions.push(put(&*store, &pods, ("x", &format!("p-{round}-{n}")), 0, n).await);
        }
        let reflector = Reflector::start(store, [pods.clone()]).await.unwrap();
        let cache = reflector.cache(&pods).unwrap();
        assert_eq!(cache.len(), 600 * (round as usize + 1));
        let newest = *revisions.last().unwrap();
        let back = newest.saturating_sub(RESUME).max(1);
        let mut cursor = cache.subscribe(back).unwrap();
        for revision in back + 1..=newest {
            assert_eq!(cursor.next().await.unwrap().object.revision, revision);
        }
        if back > 1 {
            let expired = cache.subscribe(back - 1).err();
            assert_eq!(expired, Some(Expired { asked: back - 1, oldest: back }));
        }
        reflector.stop().await;
    }
}

#[tokio::test]
async fn kinds_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(dir.path()).unwrap());
    let things = kind("example.com", "things", Scope::Namespaced);
    let first = put(&*store, &things, ("x", "a"), 0, 1).await;
    let reflector = Reflector::start(store.clone(), []).await.unwrap();
    assert!(reflector.cache(&things).is_none());
    let cache = reflector.register(things.clone()).await.unwrap();
    assert_eq!(names(&cache.list(None)), "a=1");
    let second = put(&*store, &things, ("x", "a"), first, 2).await;
    cache.wait_for(second).await;
    assert_eq!(names(&cache.list(None)), "a=2");
    assert!(Arc::ptr_eq(&cache, &reflector.register(things.clone()).await.unwrap()));
    reflector.remove(&things);
    let third = put(&*store, &things, ("x", "a"), second, 3).await;
    reflector.wait_for(third).await;
    assert_eq!(names(&reflector.register(things.clone()).await.unwrap().list(None)), "a=3");
    assert_eq!(names(&cache.list(None)), "a=2");
}

#[tokio::test]
async fn differences_become_events_when_history_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(dir.path()).unwrap());
    let pods = kind("", "pods", Scope::Namespaced);
    let a = put(&*store, &pods, ("x", "a"), 0, 1).await;
    let b = put(&*store, &pods, ("x", "b"), 0, 1).await;
    put(&*store, &pods, ("x", "same"), 0, 1).await;
    let reflector = Reflector::start(store.clone(), [pods.clone()]).await.unwrap();
    let cache = reflector.cache(&pods).unwrap();
    let (_, _, mut cursor) = cache.list_and_watch(None);
    // As if the watch had been away for this.
    reflector.task.abort();
    tokio::task::yield_now().await;
    put(&*store, &pods, ("x", "b"), b, 2).await;
    delete(&*store, &pods, ("x", "a"), a).await;
    put(&*store, &pods, ("x", "c"), 0, 1).await;
    reflector.shared.resync().await.unwrap();
    let events = cursor.next_batch().await.unwrap();
    let seen: Vec<_> = events.iter().map(|e| (e.what, e.object.meta.name.as_str())).collect();
    use EventType::{Added, Deleted, Modified};
    assert_eq!(seen, [(Modified, "b"), (Added, "c"), (Deleted, "a")]);
    assert_eq!(names(&cache.list(None)), "b=2 c=1 same=1");
    assert_eq!(reflector.revision(), store.revision().await.unwrap());
}

#[tokio::test]
async fn a_list_during_a_resync_keeps_no_removed_object() {
    const PODS: u32 = 300;
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(dir.path()).unwrap());
    let pods = kind("", "pods", Scope::Namespaced);
    let mut made = Vec::new();
    for n in 0..PODS {
        let name = format!("p-{n}");
        let revision = put(&*store, &pods, ("x", &name), 0, n).await;
        made.push((name, revision));
    }
    let reflector = Reflector::start(store.clone(), [pods.clone()]).await.unwrap();
    reflector.task.abort();
    tokio::task::yield_now().await;
    for (name, revision) in made {
        delete(&*store, &pods, ("x", &name), revision).await;
    }
    let newest = put(&*store, &pods, ("x", "new"), 0, 1).await;
    let cache = reflector.cache(&pods).unwrap();
    let lists = std::thread::spawn(move || {
        loop {
            let (objects, revision) = cache.snapshot(None);
            if revision >= newest {
                return names(&objects);
            }
        }
    });
    reflector.shared.resync().await.unwrap();
    assert_eq!(lists.join().unwrap(), "new=1");
}

/// Bytes as nobody here writes them.
async fn put_raw(store: &dyn Store, key: &str, expect: Revision, value: &str) -> Revision {
    let value = Some(value.to_owned().into());
    store
        .write(Write { key: key.to_owned(), expect, value, durability: Durability::Sync, fence: None })
        .await
        .unwrap()
}

#[tokio::test]
async fn what_cannot_be_read_is_left_out_and_listed() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(dir.path()).unwrap());
    let pods = kind("", "pods", Scope::Namespaced);
    let good = put(&*store, &pods, ("x", "good"), 0, 1).await;
    let deep = format!(
        r#"{{"metadata":{{"name":"deep","namespace":"x"}},"n":{}1{}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    let deep_at = put_raw(&*store, "/registry/pods/x/deep", 0, &deep).await;
    put_raw(&*store, "/registry/pods/x/other", 0, r#"{"metadata":{"name":"good","namespace":"x"}}"#).await;
    put_raw(&*store, "/registry/pods/x/text", 0, "text").await;
    let reflector = Reflector::start(store.clone(), [pods.clone()]).await.unwrap();
    let cache = reflector.cache(&pods).unwrap();
    assert_eq!(names(&cache.list(None)), "good=1");
    let broken = reflector.unreadable();
    assert_eq!(
        broken.iter().filter_map(|one| one.name(&pods)).collect::<Vec<_>>(),
        [("x", "deep"), ("x", "other"), ("x", "text")]
    );
    assert!(broken[0].to_string().contains("/registry/pods/x/deep"), "{}", broken[0]);

    // One that is followed and can no longer be read is gone, and is there again once it can.
    let (_, _, mut cursor) = cache.list_and_watch(None);
    let lost = put_raw(&*store, "/registry/pods/x/good", good, "{").await;
    reflector.wait_for(lost).await;
    assert_eq!(names(&cache.list(None)), "");
    assert_eq!(reflector.unreadable_at("/registry/pods/x/good").unwrap().revision, lost);
    let back = put(&*store, &pods, ("x", "good"), lost, 2).await;
    delete(&*store, &pods, ("x", "deep"), deep_at).await;
    let last = put(&*store, &pods, ("x", "new"), 0, 1).await;
    reflector.wait_for(last).await;
    assert_eq!(names(&cache.list(None)), "good=2 new=1");
    assert_eq!(reflector.unreadable().len(), 2);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let event = cursor.next().await.unwrap();
        seen.push((event.what, event.object.revision));
    }
    assert_eq!(seen, [(EventType::Deleted, lost), (EventType::Added, back), (EventType::Added, last)]);

    // What a key would open is not lost.
    assert!(broken[0].to_string().ends_with("restore it from a backup, or delete it"), "{}", broken[0]);
    let sealed = put_raw(&*store, "/registry/pods/x/sealed", 0, "k8s:enc:aescbc:v1:old:x").await;
    reflector.wait_for(sealed).await;
    let advice = reflector.unreadable_at("/registry/pods/x/sealed").unwrap().to_string();
    assert!(advice.contains("put the key that it was encrypted with back"), "{advice}");
}

async fn put_pending(
    store: &dyn Store,
    kind: &Kind,
    name: &str,
    expect: Revision,
    pending: &[&str],
) -> Revision {
    let mut metadata = json!({"name": name});
    if !pending.is_empty() {
        let pending: Vec<_> = pending.iter().map(|name| json!({"name": name})).collect();
        metadata["initializers"] = json!({"pending": pending});
    }
    let value = Some(json!({"metadata": metadata}).to_string().into());
    let (key, durability) = (kind.key("", name), Durability::Sync);
    store.write(Write { key, expect, value, durability, fence: None }).await.unwrap()
}

/// Only the names.
fn called(cache: &Cache) -> String {
    cache.list(None).iter().map(|object| object.meta.name.clone()).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn objects_appear_when_they_are_initialized() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(dir.path()).unwrap());
    let kind = Arc::new(Kind { scope: Scope::Cluster, ..Kind::new("", "v1", "Thing", "things") });
    let early = put_pending(&*store, &kind, "early", 0, &["a"]).await;
    let none = Reflector::start(store.clone(), [kind.clone()]).await.unwrap();
    assert!(Arc::ptr_eq(&none.cache(&kind).unwrap(), &none.whole_cache(&kind).unwrap()));
    assert_eq!(called(&none.cache(&kind).unwrap()), "early", "without the feature");

    let supervisor = Supervisor::default();
    let reflector = Reflector::supervised(store.clone(), [kind.clone()], supervisor, true).await.unwrap();
    let (seen, whole) = (reflector.cache(&kind).unwrap(), reflector.whole_cache(&kind).unwrap());
    assert_eq!((called(&seen), called(&whole)), (String::new(), "early".to_owned()));
    let (_, _, mut cursor) = seen.list_and_watch(None);
    let (_, _, mut all) = whole.list_and_watch(None);
    let two = put_pending(&*store, &kind, "two", 0, &["a", "b"]).await;
    let one = put_pending(&*store, &kind, "two", two, &["b"]).await;
    let done = put_pending(&*store, &kind, "two", one, &[]).await;
    let changed = put_pending(&*store, &kind, "two", done, &[]).await;
    let key = kind.key("", "early");
    let gone = Write { key, expect: early, value: None, durability: Durability::Sync, fence: None };
    let gone = store.write(gone).await.unwrap();
    let plain = put_pending(&*store, &kind, "plain", 0, &[]).await;
    reflector.wait_for(plain).await;
    assert_eq!((called(&seen), called(&whole)), ("plain two".to_owned(), "plain two".to_owned()));
    let (mut seen_events, mut all_events) = (Vec::new(), Vec::new());
    for event in cursor.try_batch().unwrap() {
        let line: serde_json::Value = serde_json::from_slice(&event.line).unwrap();
        assert_eq!(line["type"], event.what.word());
        seen_events.push((event.what, event.object.revision, event.previous.is_some()));
    }
    for event in all.try_batch().unwrap() {
        all_events.push((event.what, event.object.revision));
    }
    use EventType::{Added, Deleted, Modified};
    let expected = [(Added, done, false), (Modified, changed, true), (Added, plain, false)];
    assert_eq!(seen_events, expected);
    let expected = [
        (Added, two),
        (Modified, one),
        (Modified, done),
        (Modified, changed),
        (Deleted, gone),
        (Added, plain),
    ];
    assert_eq!(all_events, expected);
    assert_eq!(seen.revision(), plain);
}
