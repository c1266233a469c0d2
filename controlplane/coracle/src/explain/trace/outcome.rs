//! How a trace ended: ready, refused, gone, or what it waits for.

use super::answer::{Fate, Span};
use super::names::{self, time_with_unit};
use super::nodes::Builder;
use super::pods::{Pods, is_subject};
use super::requests::is_refused;

/// What replaces pods that end.
const ROLLOUTS: [&str; 5] = [
    "daemonsets.apps",
    "deployments.apps",
    "replicasets.apps",
    "replicationcontrollers",
    "statefulsets.apps",
];

/// How a request was refused: `refused: 403 Forbidden`, and why if that is known.
fn refusal(builder: &Builder<'_>) -> Option<String> {
    let root = builder.root().filter(|root| is_refused(root))?;
    let name = http::StatusCode::from_u16(root.code).ok().and_then(|status| status.canonical_reason());
    let why = builder.trace.spans.iter().find(|span| span.stage == "write" && span.has("failed"));
    let why = why.and_then(|write| write.text.lines().next()).filter(|why| !why.is_empty());
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    Some(format!("refused: {} {}{why}", root.code, name.unwrap_or_default()).trim_end().to_owned())
}

/// What was to be made when the server was killed, and is not there.
fn cut_off(builder: &Builder<'_>) -> Option<String> {
    let trace = builder.trace;
    let create =
        trace.spans.iter().find(|span| span.stage == "write").filter(|span| span.name == "create")?;
    let is_cut_off = trace.state == "failed" && create.has("unfinished") && create.revision == 0;
    is_cut_off.then(|| format!("cut off after {}, not there", time_with_unit(trace.summary.total)))
}

/// What it waits for: the object itself, or one of its pods.
fn waits(builder: &Builder<'_>, pods: &Pods, wanted: usize) -> Option<String> {
    let trace = builder.trace;
    let waiting = || trace.objects.iter().enumerate().filter(|(_, object)| !object.waits.is_empty());
    let lasting = match trace.state.as_str() {
        "stuck" => format!(", stuck for {}", time_with_unit(trace.summary.total)),
        "running" => format!(" for {}", time_with_unit(trace.summary.total)),
        _ => return None,
    };
    if let Some((_, own)) = waiting().find(|(_, object)| is_subject(trace, object)) {
        return Some(format!("{}{lasting}", own.waits));
    }
    let is_new = |index: &usize| pods.created.contains_key(index) && !pods.ready.contains_key(index);
    let (_, pod) = waiting().find(|(index, _)| is_new(index))?;
    let ready = pods.created.keys().filter(|index| pods.ready.contains_key(index)).count();
    Some(format!("{ready} of {wanted} ready; {} {}{lasting}", names::object(pod), pod.waits))
}

/// How many pods the object that was asked for is to have, if it was made here: later changes make only some of them.
fn replicas(builder: &Builder<'_>) -> usize {
    let trace = builder.trace;
    let object = |span: &Span| span.object.and_then(|index| trace.objects.get(index));
    let is_made = trace.spans.iter().any(|span| {
        span.stage == "write"
            && span.name == "create"
            && object(span).is_some_and(|object| is_subject(trace, object))
    });
    let wanted = trace.object.as_ref().filter(|_| is_made).and_then(|object| object.replicas);
    wanted.unwrap_or_default()
}

/// Whether pods that were never ready ran to their end, such as those of a Job. Those of a rollout are to run on.
fn ran_to_end(builder: &Builder<'_>, pods: &Pods) -> bool {
    let trace = builder.trace;
    let resource = trace.object.as_ref().map_or("", |subject| subject.resource.as_str());
    let ended_well = |pod: &usize| {
        let exits = || trace.spans.iter().filter(|span| span.stage == "exit" && span.object == Some(*pod));
        let is_last =
            |exit: &&Span| !exits().any(|other| other.name == exit.name && other.start > exit.start);
        exits().next().is_some() && exits().filter(is_last).all(|exit| exit.code == 0)
    };
    !ROLLOUTS.contains(&resource) && pods.created.keys().all(ended_well)
}

/// Who deleted a pod before it ran.
fn never_started(builder: &Builder<'_>, pods: &Pods) -> Option<String> {
    let trace = builder.trace;
    let (pod, _) = pods.created.iter().next().filter(|_| trace.state == "gone")?;
    let own = || trace.spans.iter().filter(|span| span.object == Some(*pod));
    if own().any(|span| matches!(span.stage.as_str(), "pod-start" | "ready")) {
        return None;
    }
    let delete = own().find(|span| span.stage == "write" && span.name == "delete")?;
    let by = delete.parent.as_deref().and_then(|parent| trace.spans.iter().find(|span| span.id == parent));
    let by = match by.map(|by| (by.stage.as_str(), by)) {
        Some(("request", by)) => names::program(by),
        Some(("reconcile", by)) => by.name.as_str(),
        _ => "",
    };
    let by = if by.is_empty() { String::new() } else { format!(" by {by}") };
    Some(format!("deleted{by} after {}, never started", time_with_unit(trace.summary.total)))
}

/// How a trace ended, or how far it is.
pub(super) fn outcome(builder: &Builder<'_>) -> String {
    if let Some(text) = refusal(builder).or_else(|| cut_off(builder)) {
        return text;
    }
    let pods = Pods::of(builder);
    let (count, total) = (pods.created.len(), time_with_unit(builder.trace.summary.total));
    let is_ready = |pod: &&usize| pods.ready.contains_key(pod);
    let ready = pods.created.keys().filter(is_ready).count();
    let wanted = if pods.created.is_empty() { 0 } else { count.max(replicas(builder)) };
    if let Some(text) = waits(builder, &pods, wanted).or_else(|| never_started(builder, &pods)) {
        return text;
    }
    // What was refused is over.
    let lasting = || if builder.trace.is_open() { format!(" for {total}") } else { String::new() };
    let trouble = builder.trace.trouble.as_ref();
    let in_trouble = trouble.is_some();
    let since = match trouble.map(|trouble| trouble.now) {
        Some(Fate::NotReady) => ", not any more",
        Some(Fate::Restarted) => ", restarted since",
        Some(Fate::Failed) => ", failed since",
        None => "",
    };
    // The last span that is known is not the one that made it ready.
    let untold = builder.trace.untold;
    match builder.trace.state.as_str() {
        "ready" if untold > 0 && count > 1 => {
            format!("{count} pods ready, of {untold} it is not known when{since}")
        }
        "ready" if untold > 0 => format!("ready, it is not known when{since}"),
        "ready" if count > 0 && ready == 0 && ran_to_end(builder, &pods) => format!("complete after {total}"),
        // A later change replaced them.
        "ready" if count > 0 && ready == 0 => format!("never ready, ended after {total}"),
        "ready" if count > 1 => format!("{count} pods ready after {total}{since}"),
        "ready" => format!("ready after {total}{since}"),
        "stuck" if wanted > 1 => format!("{ready} of {wanted} pods ready, stuck{}", lasting()),
        "running" if in_trouble && wanted > 1 => {
            format!("{ready} of {wanted} pods ready, stuck for {total}")
        }
        "running" if in_trouble => format!("stuck for {total}"),
        "running" if wanted > 1 => format!("{ready} of {wanted} pods ready after {total}"),
        "stuck" => format!("stuck{}", lasting()),
        state => format!("{state} after {total}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::answer::{Span, Subject, Trace, Trouble};
    use super::super::headline::tests::{object, span, web};
    use super::*;

    fn outcome_of(trace: &Trace) -> String {
        outcome(&Builder::new(trace, false))
    }

    #[test]
    fn refused_pods_are_none() {
        let mut trace = web("stuck", 2);
        trace.objects.push(object("pods", "c"));
        let refused = Span { flags: vec!["failed".to_owned()], ..span("write", "create", 3) };
        trace.spans.push(refused);
        assert_eq!(outcome_of(&trace), "2 of 5 pods ready, stuck");
    }

    #[test]
    fn what_does_not_last_is_said() {
        let mut trace = web("ready", 2);
        assert_eq!(outcome_of(&trace), "2 pods ready after 409.0 ms");
        let text = "pod/a: container web: CrashLoopBackOff".to_owned();
        let trouble = |now| Some(Trouble { text: text.clone(), now });
        trace.trouble = trouble(Fate::Restarted);
        assert_eq!(outcome_of(&trace), "2 pods ready after 409.0 ms, restarted since");
        trace.trouble = trouble(Fate::NotReady);
        assert_eq!(outcome_of(&trace), "2 pods ready after 409.0 ms, not any more");
        trace.state = "running".to_owned();
        assert_eq!(outcome_of(&trace), "2 of 5 pods ready, stuck for 409.0 ms");
        trace.trouble = None;
        assert_eq!(outcome_of(&trace), "2 of 5 pods ready after 409.0 ms");
    }

    #[test]
    fn pods_that_were_replaced_before_they_were_ready_are_not_ready() {
        assert_eq!(outcome_of(&web("ready", 0)), "never ready, ended after 409.0 ms");
    }

    #[test]
    fn pods_that_ran_to_their_end_before_they_were_ready_are_complete() {
        let exit = |name: &str, start: u64, code: u16| Span { start, code, ..span("exit", name, 1) };
        let never = "never ready, ended after 409.0 ms";
        for (exits, want) in [
            (vec![exit("c", 5, 0)], "complete after 409.0 ms"),
            (vec![exit("c", 5, 1), exit("c", 9, 0), exit("d", 7, 0)], "complete after 409.0 ms"),
            (vec![exit("c", 5, 0), exit("d", 7, 1)], never),
            (vec![], never),
        ] {
            let mut trace = web("ready", 0);
            trace.object =
                Some(Subject { resource: "pods".to_owned(), name: "a".to_owned(), replicas: None });
            trace.spans.extend(exits);
            assert_eq!(outcome_of(&trace), want, "{:?}", trace.spans);
        }
        let mut rollout = web("ready", 0);
        rollout.spans.extend([exit("c", 5, 0), Span { object: Some(2), ..exit("c", 5, 0) }]);
        assert_eq!(outcome_of(&rollout), never, "the containers were to run on");
        rollout.object =
            Some(Subject { resource: "cronjobs.batch".to_owned(), name: "web".to_owned(), replicas: None });
        assert_eq!(outcome_of(&rollout), "complete after 409.0 ms");
    }

    #[test]
    fn a_later_change_makes_some_of_the_pods() {
        let mut trace = web("running", 1);
        assert_eq!(outcome_of(&trace), "1 of 5 pods ready after 409.0 ms");
        trace.spans[0].name = "patch".to_owned();
        assert_eq!(outcome_of(&trace), "1 of 2 pods ready after 409.0 ms");
    }

    #[test]
    fn what_a_crash_cut_off_is_not_there() {
        let mut trace = web("failed", 0);
        let create = trace.spans.iter_mut().find(|span| span.stage == "write").unwrap();
        (create.flags, create.revision) = (vec!["unfinished".to_owned()], 0);
        assert_eq!(create.name, "create");
        assert_eq!(outcome_of(&trace), "cut off after 409.0 ms, not there");
        trace.spans.iter_mut().find(|span| span.stage == "write").unwrap().revision = 9;
        assert_ne!(outcome_of(&trace), "cut off after 409.0 ms, not there", "it was stored");
    }

    #[test]
    fn what_nodes_do_not_tell_is_no_time() {
        let mut trace = web("ready", 2);
        trace.untold = 1;
        assert_eq!(outcome_of(&trace), "2 pods ready, of 1 it is not known when");
        trace.object = Some(Subject { resource: "pods".to_owned(), name: "a".to_owned(), replicas: None });
        assert_eq!(outcome_of(&trace), "ready, it is not known when");
        trace.trouble = Some(Trouble { text: String::new(), now: Fate::Restarted });
        assert_eq!(outcome_of(&trace), "ready, it is not known when, restarted since");
    }

    #[test]
    fn what_runs_to_its_end_is_complete_or_has_failed() {
        let mut trace = web("complete", 2);
        trace.object =
            Some(Subject { resource: "jobs.batch".to_owned(), name: "web".to_owned(), replicas: None });
        assert_eq!(outcome_of(&trace), "complete after 409.0 ms");
        trace.state = "failed".to_owned();
        assert_eq!(outcome_of(&trace), "failed after 409.0 ms");
    }

    #[test]
    fn what_it_waits_for_is_said() {
        let mut trace = web("stuck", 1);
        trace.object.as_mut().unwrap().replicas = Some(2);
        trace.objects[2].waits = "waits for node-3, which is away".to_owned();
        let want = "1 of 2 ready; pod/b waits for node-3, which is away, stuck for 409.0 ms";
        assert_eq!(outcome_of(&trace), want);
        trace.state = "running".to_owned();
        trace.objects[2].waits = "waits for node-3".to_owned();
        assert_eq!(outcome_of(&trace), "1 of 2 ready; pod/b waits for node-3 for 409.0 ms");
        trace.object = Some(Subject { resource: "pods".to_owned(), name: "b".to_owned(), replicas: None });
        assert_eq!(outcome_of(&trace), "waits for node-3 for 409.0 ms");
        trace.object = Some(Subject { resource: "pods".to_owned(), name: "a".to_owned(), replicas: None });
        trace.state = "ready".to_owned();
        assert_eq!(outcome_of(&trace), "ready after 409.0 ms", "a pod answers for itself");
        let claim = "persistentvolumeclaims".to_owned();
        trace.object = Some(Subject { resource: claim, name: "data".to_owned(), replicas: None });
        assert_eq!(outcome_of(&trace), "ready after 409.0 ms", "a claim has no pods");
    }

    #[test]
    fn a_pod_that_never_started_is_said_to_be_deleted() {
        let mut trace = web("gone", 0);
        trace.object = Some(Subject { resource: "pods".to_owned(), name: "a".to_owned(), replicas: None });
        let delete = Span { parent: Some("gc".to_owned()), ..span("write", "delete", 1) };
        let collector = Span { id: "gc".to_owned(), ..span("reconcile", "pod-garbage-collector", 1) };
        trace.spans = vec![span("write", "create", 1), collector, delete];
        let want = "deleted by pod-garbage-collector after 409.0 ms, never started";
        assert_eq!(outcome_of(&trace), want);
    }
}
