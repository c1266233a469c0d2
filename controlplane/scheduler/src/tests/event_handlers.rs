use super::*;
use crate::event_handlers::{Source, State};
use crate::queue::Queue;
use coracle_kinds::object::{Object, decode};
use coracle_kinds::registry::fields;

/// A pod as the cache has it.
fn stored(revision: u64, change: impl FnOnce(&mut Value)) -> Object {
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "d", "uid": "u", "generation": 1, "labels": {"app": "web"}},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Pending"},
    });
    change(&mut pod);
    decode::object(&fields::pod(), pod.to_string().as_bytes(), revision).unwrap()
}

#[test]
fn what_was_decided_is_confirmed_as_it_was_written() {
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 4] = [
        ("nothing else", |_| {}),
        ("labels", |p| p["metadata"]["labels"]["app"] = json!("db")),
        ("the spec", |p| {
            p["metadata"]["generation"] = json!(2);
            p["spec"]["priority"] = json!(7);
        }),
        ("another node", |p| p["spec"]["nodeName"] = json!("b")),
    ];
    for (what, change) in changes {
        let mut state = State::new(with_nodes(vec![node("a"), node("b")]), Queue::default());
        let first = stored(1, |_| {});
        state.set(Source::Pods, &first, None, 0);
        let pod = state.queue.pop(0).unwrap();
        let a = state.placer.snapshot.node_named("a").unwrap();
        state.placer.snapshot.assume(&pod, a);
        // While the binding is under way somebody else writes, too.
        let unbound = |p: &mut Value| {
            change(p);
            p["spec"].as_object_mut().unwrap().remove("nodeName");
        };
        let between = stored(2, unbound);
        state.set(Source::Pods, &between, Some(&first), 0);
        let after = stored(3, |p| {
            p["spec"]["nodeName"] = json!("a");
            change(p);
        });
        state.set(Source::Pods, &after, Some(&between), 0);
        let want = PodInfo::parse(&after.json).unwrap();
        let snapshot = &state.placer.snapshot;
        let found = snapshot.pod("d/p").unwrap();
        assert!(!snapshot.is_assumed("d/p") && state.queue.is_empty(), "{what}");
        assert_eq!(snapshot.pod_node("d/p"), snapshot.node_named(&want.node), "{what}");
        assert_eq!(format!("{found:?}"), format!("{want:?}"), "{what}");
    }
}
