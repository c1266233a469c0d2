//! Volumes and environment, seen from inside the container, and live updates.

use crate::cluster::{Cluster, IMAGE};
use std::time::Duration;

#[test]
#[ignore = "run by in_namespaces"]
fn every_kind_from_inside() {
    let cluster = Cluster::start();
    cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: cm}, data: {a: one, b: two}}");
    cluster.apply("{apiVersion: v1, kind: Secret, metadata: {name: sec}, stringData: {pw: hunter2}}");
    let show = "id; env | sort; stat -c '%n %a %g' -L /cm/a /sec/pw /empty /mem /proj/tok; cat /cm/a; echo; cat /sec/pw; echo; cat /down/labels; echo; cat /sub/k; echo; hostname; head -1 /etc/hosts; cat /etc/resolv.conf; grep -c ' /mem tmpfs' /proc/mounts; exec sleep 1000";
    cluster.pod(
        "vols",
        &format!(
            "hostname: hh, subdomain: ss, securityContext: {{fsGroup: 2000, runAsUser: 1000}},
            volumes: [{{name: cm, configMap: {{name: cm, items: [{{key: a, path: a, mode: 256}}]}}}}, {{name: all, configMap: {{name: cm}}}}, {{name: sec, secret: {{secretName: sec, defaultMode: 288}}}},
              {{name: down, downwardAPI: {{items: [{{path: labels, fieldRef: {{fieldPath: metadata.labels}}}}]}}}},
              {{name: proj, projected: {{sources: [{{serviceAccountToken: {{path: tok, expirationSeconds: 600}}}}]}}}},
              {{name: empty, emptyDir: {{}}}}, {{name: mem, emptyDir: {{medium: Memory, sizeLimit: 10Mi}}}}],
            containers: [{{name: c, image: '{IMAGE}', command: [sh, -c, \"{show}\"],
              env: [{{name: IP, valueFrom: {{fieldRef: {{fieldPath: status.podIP}}}}}}, {{name: CM, valueFrom: {{configMapKeyRef: {{name: cm, key: a}}}}}}, {{name: X, value: '$(CM)-$(NOPE)'}}],
              envFrom: [{{secretRef: {{name: sec}}, prefix: S_}}],
              volumeMounts: [{{name: cm, mountPath: /cm}}, {{name: sec, mountPath: /sec}}, {{name: down, mountPath: /down}}, {{name: proj, mountPath: /proj}}, {{name: empty, mountPath: /empty}},
                {{name: mem, mountPath: /mem}}, {{name: all, mountPath: /sub/k, subPath: b}}, {{name: empty, mountPath: /deep, subPathExpr: '$(CM)/x'}}]}}]"
        ),
    );
    let status = cluster.wait_ready("vols");
    let ip = status["podIP"].as_str().unwrap();
    coracle_tests::eventually("output", Duration::from_secs(10), || {
        cluster.output("vols", "c", 0).ends_with('1')
    });
    let output = cluster.output("vols", "c", 0);
    for want in [
        "uid=1000(web) gid=1000",
        "2000",
        "CM=one",
        "X=one-$(NOPE)",
        "S_pw=hunter2",
        &format!("IP={ip}"),
        "KUBERNETES_SERVICE_HOST=10.96.0.1",
        "/cm/a 440 2000",
        "/sec/pw 440 2000",
        "/empty 2777 2000",
        "/mem 2777 2000",
        "/proj/tok 640 2000",
        "one\nhunter2\napp=\"vols\"\ntwo\nhh\n# Kubernetes-managed hosts file.",
        "search default.svc.cluster.local svc.cluster.local cluster.local",
        "nameserver 10.96.0.10\noptions ndots:5",
    ] {
        assert!(output.contains(want), "{want:?} is not in:\n{output}");
    }
    let uid = cluster.get("vols")["metadata"]["uid"].as_str().unwrap().to_owned();
    let file = cluster.path("agent").join(format!("pods/{uid}/volumes/kubernetes.io~configmap/all/a"));
    cluster.kubectl.run(r#"patch configmap cm -p '{"data":{"a":"changed"}}'"#);
    coracle_tests::eventually("the live update", Duration::from_secs(10), || {
        std::fs::read_to_string(&file).is_ok_and(|text| text == "changed")
    });
    cluster.kubectl.run("label pod vols more=x");
    let labels = cluster.path("memory").join(format!("{uid}/down/labels"));
    coracle_tests::eventually("the new label", Duration::from_secs(10), || {
        std::fs::read_to_string(&labels).is_ok_and(|text| text.contains("more=\"x\""))
    });
    cluster.delete("vols");
}

#[test]
#[ignore = "run by in_namespaces"]
fn what_is_missing_may_come_later() {
    let cluster = Cluster::start();
    cluster.pod("env", &format!("containers: [{{name: c, image: '{IMAGE}', command: [sleep, '1000'], env: [{{name: A, valueFrom: {{configMapKeyRef: {{name: late, key: a}}}}}}]}}]"));
    cluster.pod("vol", &format!("containers: [{{name: c, image: '{IMAGE}', command: [sleep, '1000'], volumeMounts: [{{name: v, mountPath: /v}}]}}], volumes: [{{name: v, configMap: {{name: late}}}}]"));
    assert_eq!(cluster.wait_waiting("env", "CreateContainerConfigError"), "configmap \"late\" not found");
    coracle_tests::eventually("the event", Duration::from_secs(20), || {
        cluster
            .kubectl
            .run("get events")
            .contains("MountVolume.SetUp failed for volume \"v\" : configmap \"late\" not found")
    });
    cluster.kubectl.run("create configmap late --from-literal=a=b");
    cluster.wait_ready("env");
    cluster.wait_ready("vol");
    cluster.delete("env vol");
}
