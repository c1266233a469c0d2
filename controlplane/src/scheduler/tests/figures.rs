use super::*;
use std::time::Instant;

/// Prints how fast pods are placed; run with `--ignored --nocapture` and optimisation.
#[test]
#[ignore = "a measurement, not a check"]
fn figures() {
    type Kind = (&'static str, fn(&mut Value));
    let kinds: [Kind; 5] = [
        ("plain", |_| {}),
        ("replicas of one controller", |p| {
            p["metadata"]["ownerReferences"] = json!([{"uid": "rs", "controller": true}])
        }),
        ("anti-affinity per node", |p| anti(p, "web", "kubernetes.io/hostname")),
        (
            "spread over zones",
            |p| p["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]),
        ),
        ("affinity in a zone", |p| {
            p["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!([term("web", "topology.kubernetes.io/zone")])
        }),
    ];
    for (what, change) in kinds {
        let mut placer =
            with_nodes((0..5000).map(|i| zoned(&format!("n{i}"), &format!("z{}", i % 10))).collect());
        let count = if what.starts_with("anti") { 5_000 } else { 10_000 };
        let pods: Vec<_> = (0..count).map(|i| pod_with(&format!("p{i}"), change)).collect();
        let start = Instant::now();
        let ok = pods.iter().filter(|p| put(&mut placer, p).is_ok()).count();
        let took = start.elapsed();
        println!(
            "{what}: {ok} of {count} pods on 5000 nodes in {took:?}, {:.0}/s",
            ok as f64 / took.as_secs_f64()
        );
    }
}
