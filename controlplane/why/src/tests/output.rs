use super::explain;
use crate::cluster::{Answer, Cluster, Need};
use crate::explain::inspect;
use crate::report::Report;
use crate::trouble::Trouble;
use crate::world::World;

const CRASHING: &str = "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Running, containerStatuses: [{name: c, restartCount: 3, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 3, reason: Error, finishedAt: '2026-01-01T11:50:00Z'}}}]}
";

fn report(yaml: &str, object: &str) -> Report {
    Report::new(&World::new(super::now(), false, inspect), Vec::new(), explain(yaml, object))
}

#[test]
fn blocks_for_people() {
    let text = report(CRASHING, "pod/web").text();
    let expected = [
        "pod/web (default): container c fails with exit code 3 (an error of the program's own)",
        "  trouble   exit-code",
        "  since     2026-01-01T11:50:00Z (10m ago)",
        "  evidence  container c, last end: exit code 3 (an error of the program's own), reason Error, 3 restarts",
        "  remedy    look at the program's own messages: kubectl logs web -n default -c c --previous",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_crash_loop_began_before_its_last_exit() {
    let since = |yaml: &str| explain(yaml, "pod/web").remove(0).since;
    let event = |container: &str| {
        format!(
            "{CRASHING}---
kind: Event
metadata: {{name: e}}
involvedObject: {{kind: Pod, name: web, fieldPath: 'spec.containers{{{container}}}'}}
reason: BackOff
message: Back-off restarting failed container
count: 40
firstTimestamp: '2026-01-01T11:20:00Z'
lastTimestamp: '2026-01-01T11:59:00Z'
"
        )
    };
    assert_eq!(since(&event("c")).as_deref(), Some("2026-01-01T11:20:00Z"));
    assert_eq!(since(&event("other")).as_deref(), Some("2026-01-01T11:50:00Z"));
    // It was ready for a moment since: the condition is newer than the first crash.
    let unready = "phase: Running, conditions: [{type: ContainersReady, status: 'False', lastTransitionTime: '2026-01-01T11:49:00Z'}]";
    let unready = CRASHING.replace("phase: Running", unready);
    assert_eq!(since(&unready).as_deref(), Some("2026-01-01T11:49:00Z"));
}

#[test]
fn findings_with_one_cause_are_as_old_as_the_oldest() {
    let other = CRASHING.replace("name: web}", "name: api}").replace("11:50:00Z", "10:00:00Z");
    let findings = super::look_around(&format!("{CRASHING}---{other}"));
    let report = Report::new(&World::new(super::now(), true, inspect), Vec::new(), findings);
    let table = report.table();
    let row = table.lines().nth(1).unwrap();
    assert!(row.starts_with("error     2h ") && row.ends_with("(and 1 more)"), "{table}");
}

#[test]
fn who_may_not_read_the_whole_cluster_is_told_how_to_look() {
    let cluster = super::Fixture::new("kind: Refused\nlist: pods");
    let report = super::block_on(crate::run::everything(&cluster, None, "default"));
    let table = report.table();
    assert!(table.contains("may not list pods in all namespaces; -n NAMESPACE looks there"), "{table}");
}

#[test]
fn lines_for_the_cluster() {
    let text = report(CRASHING, "pod/web").table();
    let expected = [
        "SEVERITY  SINCE  OBJECT             CAUSE",
        "error     10m    pod/web (default)  container c fails with exit code 3 (an error of the program's own)",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    let nothing = Report::new(&World::new(super::now(), true, inspect), Vec::new(), Vec::new());
    assert_eq!(nothing.table(), "nothing could be read, so nothing is known\n");
    assert_eq!(nothing.exit_code(), 3, "nothing could be read");
}

/// A cluster that refuses everything.
struct Closed;

impl Cluster for Closed {
    async fn answer(&self, need: &Need) -> Answer {
        match need {
            Need::Clock => Answer::Ahead(0),
            _ => Answer::Refused("forbidden".to_owned()),
        }
    }
}

#[test]
fn those_who_may_read_nothing_are_told_so() {
    let report = super::block_on(crate::run::everything(&Closed, None, "default"));
    let table = report.table();
    let first = table.lines().next().unwrap();
    assert!(
        first.starts_with("nothing could be read, so nothing is known: configmaps, cronjobs, "),
        "{first}"
    );
    assert!(first.contains(", pods, "), "{first}");
    assert_eq!(report.exit_code(), 3);
    let well = super::block_on(crate::run::everything(&super::Fixture::new(""), None, "default"));
    assert_eq!((well.table().as_str(), well.exit_code()), ("nothing is wrong as far as was looked\n", 0));
}

#[test]
fn json_for_programs() {
    let report = report(CRASHING, "pod/web");
    let json: serde_json::Value = serde_json::to_value(&report).unwrap();
    let finding = json.pointer("/findings/0").unwrap();
    assert_eq!(finding.get("trouble").unwrap(), "exit-code");
    assert_eq!(finding.get("severity").unwrap(), "error");
    assert_eq!(finding.pointer("/object/name").unwrap(), "web");
    assert_eq!(finding.pointer("/evidence/0/what").unwrap(), "container c, last end");
    assert_eq!(report.exit_code(), 1);
}

#[test]
fn the_documentation_lists_every_trouble() {
    let page = include_str!("../../../../docs/why.md");
    let listed = page.lines().filter(|line| line.starts_with("| `"));
    let listed: Vec<&str> = listed.map(|line| line.split('`').nth(1).unwrap()).collect();
    let names: Vec<&str> = Trouble::ALL.iter().map(|trouble| trouble.name()).collect();
    assert_eq!(listed, names);
    for trouble in Trouble::ALL {
        let row = format!("| `{}` | {} |", trouble.name(), trouble.summary());
        assert!(page.lines().any(|line| line == row), "missing: {row}");
    }
}

#[test]
fn remedies_name_what_is_known() {
    let remedy = |yaml: &str| explain(yaml, "pod/web").remove(0).remedy;
    let first = CRASHING.replace("restartCount: 3", "restartCount: 0");
    assert!(remedy(&first).ends_with("kubectl logs web -n default -c c"), "there is no previous container");
    let waiting = |spec: &str, node: &str| {
        format!(
            "# alone
kind: Node
metadata: {{name: n1, labels: {{disk: hdd}}}}
{node}status: {{conditions: [{{type: Ready, status: 'True'}}]}}
---
kind: Pod
metadata: {{name: web}}
spec: {{{spec}containers: [{{name: c}}]}}
status: {{phase: Pending, conditions: [{{type: PodScheduled, status: 'False', reason: Unschedulable}}]}}
"
        )
    };
    for (spec, node, command) in [
        (
            "",
            "spec: {taints: [{key: gpu, value: a, effect: NoSchedule}]}\n",
            "kubectl taint node n1 gpu:NoSchedule-",
        ),
        ("nodeSelector: {zone: a}, ", "", "kubectl label node n1 zone=a"),
        ("nodeSelector: {disk: ssd}, ", "", "kubectl label node n1 --overwrite disk=ssd"),
        ("nodeSelector: {kubernetes.io/hostname: n7}, ", "", "correct spec.nodeSelector"),
        ("", "spec: {unschedulable: true}\n", "kubectl uncordon n1"),
    ] {
        let found = remedy(&waiting(spec, node));
        assert!(found.ends_with(command), "{found}");
    }
}

#[test]
fn no_remedy_has_a_placeholder_for_what_is_known() {
    for (_, object, _, yaml) in super::cases() {
        for found in explain(yaml, object) {
            let words = found.remedy.split([' ', '=', '/']);
            let mut open =
                words.filter(|word| matches!(*word, "POD" | "NODE" | "KEY" | "VALUE" | "NAMESPACE"));
            assert_eq!(open.next(), None, "{object}: {}", found.remedy);
        }
    }
}
