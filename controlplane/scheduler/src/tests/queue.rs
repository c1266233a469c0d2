use super::*;
use crate::diagnosis::Diagnosis;
use crate::queue::{Event, Queue};
use coracle_trace::{Cause, Moment, Rank, Stage, Uid, caused_by};

#[test]
fn the_queue_orders_by_priority_then_age_and_holds_gated_pods() {
    let mut queue = Queue::default();
    for (name, priority) in [("a", 0), ("b", 5), ("c", 0)] {
        queue.add(ranked(name, "1", priority));
    }
    queue.add(pod_with("gated", |p| p["spec"]["schedulingGates"] = json!([{"name": "wait"}])));
    let order: Vec<String> = std::iter::from_fn(|| queue.pop(0).map(|p| p.name.clone())).collect();
    assert_eq!(order, ["b", "a", "c"]);
    queue.add(pod("gated"));
    assert_eq!(queue.pop(0).unwrap().name, "gated");
}

#[test]
fn a_stuck_pod_is_tried_again_only_when_something_may_help() {
    let mut placer = with_nodes(vec![node("a")]);
    let mut queue = Queue::default();
    let big = cpu("big", "6");
    queue.add(big.clone());
    let popped = queue.pop(0).unwrap();
    let why = placer.place(&popped).unwrap_err();
    assert!(queue.mark_unschedulable(&popped.key, why.clone(), why.message(""), 0));
    let id = placer.snapshot.set_node(node("b")).unwrap();
    queue.on_event(Event::Node(id), &placer.snapshot, 10);
    queue.on_event(Event::Storage, &placer.snapshot, 10);
    assert!(queue.pop(10).is_none(), "a node that is too small does not help");
    let id =
        placer.snapshot.set_node(node_with("c", |n| n["status"]["allocatable"]["cpu"] = json!("8"))).unwrap();
    queue.on_event(Event::Node(id), &placer.snapshot, 10);
    let popped = queue.pop(10).unwrap();
    assert_eq!(put(&mut placer, &popped).unwrap(), "c");
    // The next one waits for the room that it takes.
    let next = cpu("next", "6");
    queue.remove(&popped.key);
    queue.add(next.clone());
    let waiting = queue.pop(20).unwrap();
    let why = placer.place(&waiting).unwrap_err();
    queue.mark_unschedulable(&waiting.key, why.clone(), why.message(""), 20);
    let (gone, at) = placer.snapshot.remove_pod("default/big").unwrap();
    queue.on_event(Event::Gone(&gone, at), &placer.snapshot, 30);
    assert_eq!(queue.pop(30).unwrap().name, "next");
}

#[test]
fn a_pod_that_changed_does_not_stand_for_those_that_were_like_it() {
    let mut placer = with_nodes(vec![node("a")]);
    let mut queue = Queue::default();
    for pod in [cpu("first", "6"), cpu("second", "6")] {
        queue.add(pod);
    }
    let stuck = |queue: &mut Queue, placer: &mut Placer| {
        while let Some(popped) = queue.pop(0) {
            let why = placer.place(&popped).unwrap_err();
            queue.mark_unschedulable(&popped.key, why.clone(), why.message(""), 0);
        }
    };
    stuck(&mut queue, &mut placer);
    let labelled = |name: &str, amount: &str| {
        pod_with(name, |p| {
            p["metadata"]["labels"] = json!({"app": "other"});
            p["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(amount);
        })
    };
    queue.add(labelled("first", "20"));
    stuck(&mut queue, &mut placer);
    let id =
        placer.snapshot.set_node(node_with("b", |n| n["status"]["allocatable"]["cpu"] = json!("8"))).unwrap();
    queue.on_event(Event::Node(id), &placer.snapshot, 10);
    assert_eq!(queue.pop(10).map(|pod| pod.name.clone()).as_deref(), Some("second"));
}

#[test]
fn pods_are_spread_over_fewer_nodes_when_one_is_gone() {
    let named = |name: &str, full: bool| {
        node_with(name, |n| {
            n["metadata"]["labels"]["kubernetes.io/hostname"] = json!(name);
            n["spec"]["unschedulable"] = json!(full);
        })
    };
    let web = |name: &str| {
        pod_with(name, |p| {
            p["metadata"]["labels"] = json!({"app": "web"});
            p["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]);
        })
    };
    let mut placer = with_nodes(vec![named("a", false), named("b", true)]);
    assert_eq!(put(&mut placer, &web("one")).unwrap(), "a");
    let mut queue = Queue::default();
    queue.add(web("two"));
    let popped = queue.pop(0).unwrap();
    let why = placer.place(&popped).unwrap_err();
    queue.mark_unschedulable(&popped.key, why.clone(), why.message(""), 0);
    placer.snapshot.remove_node("b");
    queue.on_event(Event::NodeGone, &placer.snapshot, 10);
    let popped = queue.pop(10).unwrap();
    assert_eq!(put(&mut placer, &popped).unwrap(), "a");
}

#[test]
fn the_same_refusal_is_no_news() {
    let mut queue = Queue::default();
    queue.add(pod("p"));
    let key = queue.pop(0).unwrap().key.clone();
    let why = Arc::new(Diagnosis::default());
    assert!(queue.mark_unschedulable(&key, why.clone(), why.message(""), 0));
    queue.flush(300_001);
    assert_eq!(queue.pop(300_001).unwrap().name, "p");
    assert!(!queue.mark_unschedulable(&key, why.clone(), why.message(""), 300_001));
}

/// What a popped pod waited for, and what ended it.
fn waited(queue: &mut Queue, key: &str) -> Vec<(Stage, &'static str)> {
    let (_, waits) = queue.waited(key);
    for pair in waits.windows(2) {
        assert_eq!(pair[0].until, pair[1].since, "there is no gap");
    }
    waits.into_iter().map(|wait| (wait.stage, wait.event)).collect()
}

#[test]
fn times_in_the_queue_are_told_by_stage_with_what_ended_them() {
    let mut queue = Queue::default();
    queue.add(pod("p"));
    let key = queue.pop(0).unwrap().key.clone();
    assert_eq!(waited(&mut queue, &key), [(Stage::SchedulerQueue, "")]);
    assert!(waited(&mut queue, &key).is_empty(), "they are told once");
    let why = Arc::new(Diagnosis::default());
    queue.mark_unschedulable(&key, why.clone(), why.message(""), 0);
    queue.flush(300_001);
    queue.pop(300_001).unwrap();
    let stuck = [(Stage::Unschedulable, "flush"), (Stage::SchedulerQueue, "")];
    assert_eq!(waited(&mut queue, &key), stuck);
    queue.retry(&key, 300_001);
    assert!(queue.pop(300_002).is_none());
    queue.pop(400_000).unwrap();
    let retried = [(Stage::SchedulerBackoff, ""), (Stage::SchedulerQueue, "")];
    assert_eq!(waited(&mut queue, &key), retried);
}

#[test]
fn gates_are_a_wait_of_their_own() {
    let mut queue = Queue::default();
    queue.add(pod_with("gated", |p| p["spec"]["schedulingGates"] = json!([{"name": "wait"}])));
    assert_eq!(queue.ready_since("default/gated"), None);
    queue.add(pod("gated"));
    let key = queue.pop(0).unwrap().key.clone();
    let (_, waits) = queue.waited(&key);
    assert_eq!(
        waits.iter().map(|wait| wait.stage).collect::<Vec<_>>(),
        [Stage::Gated, Stage::SchedulerQueue]
    );
    assert_eq!((waits[0].event, queue.ready_since(&key)), ("gates removed", Some(waits[0].until)));
}

#[test]
fn an_attempt_has_the_cause_that_matters_most() {
    let cause = |revision, rank| Cause { uid: Uid(1), revision, rank, since: Moment(revision) };
    let mut queue = Queue::default();
    caused_by(cause(1, Rank::Spec), || queue.add(pod("p")));
    caused_by(cause(2, Rank::Related), || queue.add(pod("p")));
    queue.pop(0).unwrap();
    assert_eq!(queue.waited("default/p").0, cause(1, Rank::Spec));
    queue.retry(&pod("p").key, 0);
    caused_by(cause(3, Rank::Spec), || queue.add(cpu("p", "1")));
    queue.pop(0).unwrap();
    assert_eq!(queue.waited("default/p").0, cause(3, Rank::Spec));
}
