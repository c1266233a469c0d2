use super::explain;
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
        "  remedy    look at the program's own messages: kubectl logs POD -c c --previous",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
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
    assert_eq!(nothing.table(), "nothing is wrong as far as was looked\n");
    assert_eq!(nothing.exit_code(), 3, "nothing could be read");
}

#[test]
fn json_for_programs() {
    let report = report(CRASHING, "pod/web");
    let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
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
