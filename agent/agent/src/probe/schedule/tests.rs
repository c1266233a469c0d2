#![allow(clippy::unwrap_used)]
use super::*;
use crate::events::recorder;
use coracle_engine::runtime::CriRuntime;
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

fn target(kind: ProbeKind, probe: Value, initial: Option<bool>) -> Target {
    Target {
        id: "c1".into(),
        kind,
        probe: serde_json::from_value(probe).unwrap(),
        container: Arc::new(Container { name: "c".into(), ..Container::default() }),
        ip: "127.0.0.1".into(),
        started_at: 1,
        initial,
    }
}

/// Probes through a runtime that nobody serves: every exec ends in an error.
fn probes(dir: &std::path::Path) -> Probes {
    let service = tower::service_fn(|_: Request<Body>| async {
        std::future::pending::<Result<Response<Body>, std::convert::Infallible>>().await
    });
    let (events, _) = recorder(kube::Client::new(service, "default"), "n".into());
    let runtime = CriRuntime::new(&dir.join("none.sock").display().to_string()).unwrap();
    Probes::new(Arc::new(runtime), events, Arc::new(|_: &str| {}), Supervisor::default())
}

fn pod() -> Arc<Pod> {
    Arc::new(
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}})).unwrap(),
    )
}

#[tokio::test]
async fn errors_of_probes_are_discarded() {
    let dir = tempfile::tempdir().unwrap();
    let probes = probes(dir.path());
    for (probe, counts) in [
        (json!({"failureThreshold": 1, "exec": {"command": ["true"]}}), false),
        (json!({"failureThreshold": 1, "httpGet": {"port": "unknown"}}), false),
        (json!({"failureThreshold": 1}), false),
        // Nobody listens there: that is a failure of the container.
        (json!({"failureThreshold": 1, "tcpSocket": {"port": 1}}), true),
    ] {
        let target = target(ProbeKind::Liveness, probe.clone(), None);
        probes.set(&pod(), vec![]);
        probes.retain("u", &BTreeSet::new());
        probes.set(&pod(), vec![target.clone()]);
        let serial = probes.state.lock().serial;
        probes.one(("c1".into(), ProbeKind::Liveness), serial, target, pod()).await;
        let (verdicts, _) = probes.verdicts("u");
        assert_eq!(verdicts["c1"].dead, counts, "{probe}");
        assert_eq!(probes.totals()[0].failures, u64::from(counts), "{probe}");
        assert!(!probes.state.lock().due.is_empty(), "{probe}: checked again");
    }
}

#[tokio::test]
async fn a_container_that_was_ready_stays_ready_until_it_fails() {
    let dir = tempfile::tempdir().unwrap();
    let probes = probes(dir.path());
    let probe = json!({"failureThreshold": 2, "tcpSocket": {"port": 1}});
    let key = || ("c1".to_owned(), ProbeKind::Readiness);
    for (initial, want) in [(None, [false, false, false]), (Some(true), [true, true, false])] {
        probes.retain("u", &BTreeSet::new());
        let target = target(ProbeKind::Readiness, probe.clone(), initial);
        probes.set(&pod(), vec![target.clone()]);
        let serial = probes.state.lock().serial;
        let mut ready = vec![probes.verdicts("u").1["c1"]];
        for _ in 0..2 {
            probes.one(key(), serial, target.clone(), pod()).await;
            ready.push(probes.verdicts("u").1["c1"]);
        }
        assert_eq!(ready, want, "{initial:?}");
    }
}

#[test]
fn checks_after_a_restart_are_spread_over_the_period() {
    let probe = json!({"periodSeconds": 10, "tcpSocket": {"port": 1}});
    let delays = |initial| -> BTreeSet<Duration> {
        let target = target(ProbeKind::Readiness, probe.clone(), initial);
        (1..=100).map(|serial| spread(&target, serial)).collect()
    };
    assert_eq!(delays(None), BTreeSet::from([Duration::ZERO]), "a new container is checked at once");
    let spread = delays(Some(true));
    assert!(spread.len() > 90 && *spread.last().unwrap() < Duration::from_secs(10), "{spread:?}");
    assert!(*spread.last().unwrap() > Duration::from_secs(9), "{spread:?}");
}
