#![allow(clippy::unwrap_used)]

// A cluster of YAML documents.
mod fixture;
// Pods that wait for a node.
mod scheduling;
// Images and configuration of containers.
mod containers;
// Containers that end or are not ready; deletion.
mod running;
// Claims and volumes.
mod storage;
// Workloads.
mod workloads;
// Services and Ingresses.
mod services;
// Nodes, namespaces, APIs.
mod cluster;
// Connections.
mod connections;
// What is well.
mod healthy;
// Output, documentation.
mod output;

use crate::explain::inspect;
use crate::finding::Finding;
use crate::survey::survey;
use crate::target;
use crate::trouble::{Severity, Trouble};
use crate::world::World;
use fixture::{Fixture, now};
use futures::executor::block_on;
use std::collections::BTreeSet;

/// Trouble, object, a part of the cause, and the objects of the cluster in YAML.
type Case = (Trouble, &'static str, &'static str, &'static str);

fn cases() -> impl Iterator<Item = &'static Case> {
    let all = [
        scheduling::CASES,
        containers::CASES,
        running::CASES,
        storage::CASES,
        workloads::CASES,
        services::CASES,
        cluster::CASES,
    ];
    all.into_iter().flatten()
}

/// The causes that are found for an object in the namespace `default`.
fn explain(yaml: &str, object: &str) -> Vec<Finding> {
    let (kind, name) = object.split_once('/').unwrap();
    let cluster = Fixture::new(yaml);
    let mut world = World::new(now(), false, inspect);
    let found = block_on(world.explore(&cluster, |world| target::explain(world, "default", kind, name)));
    found.unwrap_or_else(|problem| panic!("{object}: {problem}")).1
}

/// What is found in the whole cluster.
fn look_around(yaml: &str) -> Vec<Finding> {
    let cluster = Fixture::new(yaml);
    let mut world = World::new(now(), true, inspect);
    block_on(world.explore(&cluster, |world| survey(world, None)))
}

fn lines(findings: &[Finding]) -> String {
    findings
        .iter()
        .map(|found| format!("\n    {} {}: {}", found.object, found.trouble, found.cause))
        .collect()
}

#[test]
fn each_trouble_is_found_with_its_cause() {
    let mut wrong = Vec::new();
    for (trouble, object, part, yaml) in cases() {
        let findings = explain(yaml, object);
        if !findings.iter().any(|found| found.trouble == *trouble && found.cause.contains(part)) {
            wrong.push(format!("{trouble} of {object} ({part}):{}", lines(&findings)));
        }
        let remedied = findings.iter().filter(|found| found.trouble != Trouble::Unexplained);
        for found in
            remedied.filter(|found| found.remedy.is_empty() && found.trouble != Trouble::ServiceNotReady)
        {
            wrong.push(format!("{} of {object} has no remedy", found.trouble));
        }
    }
    assert!(wrong.is_empty(), "{} cases are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_whole_cluster_shows_them_too() {
    let mut wrong = Vec::new();
    for (trouble, object, part, yaml) in cases().filter(|case| case.0.severity() > Severity::Notice) {
        let custom = *trouble == Trouble::ConditionFalse;
        let findings = look_around(yaml);
        if !custom && !findings.iter().any(|found| found.trouble == *trouble && found.cause.contains(part)) {
            wrong.push(format!("{trouble} of {object} ({part}):{}", lines(&findings)));
        }
    }
    assert!(wrong.is_empty(), "{} cases are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_trouble_has_a_case() {
    let covered: BTreeSet<Trouble> = cases().map(|case| case.0).chain(connections::TROUBLES).collect();
    let missing: Vec<&Trouble> = Trouble::ALL.iter().filter(|trouble| !covered.contains(trouble)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let names: BTreeSet<&str> = Trouble::ALL.iter().map(|trouble| trouble.name()).collect();
    assert!(names.len() == Trouble::ALL.len() && names.len() >= 60, "{} names", names.len());
}

#[test]
fn references_are_followed_and_named() {
    let yaml = "
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
kind: Pod
metadata: {name: web-1, labels: {app: web}, creationTimestamp: '2026-01-01T11:00:00Z'}
spec: {nodeName: n1, containers: [{name: c, image: 'nginx:nope'}]}
status:
  phase: Pending
  containerStatuses: [{name: c, ready: false, state: {waiting: {reason: ErrImagePull, message: 'nginx:nope: not found'}}}]
";
    let findings = explain(yaml, "service/web");
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].object.to_string(), "pod/web-1");
    assert_eq!(findings[0].via.iter().map(ToString::to_string).collect::<Vec<_>>(), ["service/web"]);
}
