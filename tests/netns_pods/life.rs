//! A pod from `kubectl run` to nothing left.

use crate::cluster::{Cluster, IMAGE, run};
use std::fs;

#[test]
#[ignore = "run by in_namespaces"]
fn run_answers_and_delete_leaves_nothing() {
    let cluster = Cluster::start();
    // The first pod makes the bridge, which stays.
    cluster.pod("warm", &format!("containers: [{{name: c, image: '{IMAGE}', command: [sleep, '1000']}}]"));
    cluster.wait_ready("warm");
    cluster.delete("warm");
    let before = cluster.picture();
    let server = "echo hello > /tmp/index.html; exec httpd -f -p 80 -h /tmp";
    cluster
        .kubectl
        .run(&format!("run web --image={IMAGE} --image-pull-policy=IfNotPresent -- sh -c '{server}'"));
    let status = cluster.wait_ready("web");
    assert_eq!(status["phase"], "Running");
    assert_eq!(status["hostIP"], "192.0.2.10");
    assert_eq!(status["qosClass"], "BestEffort");
    assert_eq!(status["observedGeneration"], 1);
    let ip = status["podIP"].as_str().unwrap();
    let answer = coracle_tests_get(ip);
    assert!(answer.ends_with("hello\n"), "{answer}");
    let events = cluster.kubectl.run("get events -o jsonpath={range.items[*]}{.reason}{\"\\n\"}{end}");
    for reason in ["Pulled", "Created", "Started"] {
        assert!(events.contains(reason), "{events}");
    }
    // A collector of logs finds the log by the names of pod, namespace and container.
    let id = status["containerStatuses"][0]["containerID"].as_str().unwrap().rsplit('/').next().unwrap();
    let uid = cluster.get("web")["metadata"]["uid"].as_str().unwrap().to_owned();
    let link = cluster.path("log-links").join(format!("web_default_web-{id}.log"));
    let log = cluster.path("logs").join(format!("default_web_{uid}/web/0.log"));
    coracle_tests::eventually("the link", std::time::Duration::from_secs(30), || link.is_symlink());
    assert_eq!(fs::read_link(&link).unwrap(), fs::canonicalize(log).unwrap());
    cluster.kubectl.run("delete pod web --grace-period=1");
    let after = cluster.picture();
    assert_eq!(after.difference(&before).collect::<Vec<_>>(), Vec::<&String>::new());
}

/// One HTTP request by hand.
fn coracle_tests_get(ip: &str) -> String {
    run(&format!("printf 'GET /index.html HTTP/1.0\\r\\n\\r\\n' | busybox nc -w 3 {ip} 80"))
}

#[test]
#[ignore = "run by in_namespaces"]
fn static_pods_are_mirrored_and_follow_their_files() {
    let cluster = Cluster::start();
    let manifest = |seconds: u32| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: st}}, spec: {{terminationGracePeriodSeconds: 1, containers: [{{name: c, image: '{IMAGE}', command: [sleep, '{seconds}']}}]}}}}"
        )
    };
    let path = cluster.path("manifests/st.yaml");
    std::fs::write(&path, manifest(1001)).unwrap();
    std::fs::write(cluster.path("manifests/bad.yaml"), "kind: [").unwrap();
    let there = || cluster.kubectl.try_with("get pod st-node1", "").ok;
    coracle_tests::eventually("a mirror pod", std::time::Duration::from_secs(30), there);
    let container = cluster.wait_ready("st-node1")["containerStatuses"][0]["containerID"].clone();
    let meta = cluster.get("st-node1")["metadata"].clone();
    let (uid, notes, owner) = (&meta["uid"], &meta["annotations"], &meta["ownerReferences"][0]);
    assert_eq!(notes["kubernetes.io/config.source"], "file");
    let hash = &notes["kubernetes.io/config.hash"];
    assert!(hash.is_string() && *hash == notes["kubernetes.io/config.mirror"] && hash != uid, "{meta:#}");
    assert_eq!(
        (&owner["kind"], &owner["name"], &owner["controller"]),
        (&"Node".into(), &"node1".into(), &true.into())
    );
    cluster.kubectl.run("delete pod st-node1 --wait=false");
    coracle_tests::eventually("another mirror pod", std::time::Duration::from_secs(30), || {
        let output = cluster.kubectl.try_with("get pod st-node1 -o jsonpath={.metadata.uid}", "");
        output.ok && output.out != uid.as_str().unwrap_or_default()
    });
    cluster.wait("st-node1", "the same container", |status| {
        status["containerStatuses"][0]["containerID"] == container
    });
    std::fs::write(&path, manifest(1002)).unwrap();
    coracle_tests::eventually("the changed pod", std::time::Duration::from_secs(30), || {
        let output = cluster
            .kubectl
            .try_with("get pod st-node1 -o jsonpath={.spec.containers[0].command[1]}{.status.phase}", "");
        output.out == "1002Running"
    });
    std::fs::remove_file(&path).unwrap();
    coracle_tests::eventually("no mirror pod", std::time::Duration::from_secs(30), || !there());
}

#[test]
#[ignore = "run by in_namespaces"]
fn static_pods_of_a_url_outlive_its_server() {
    use std::process::{Child, Command};
    struct Httpd(Child);
    impl Drop for Httpd {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pods.json");
    let serve = || {
        let child = Command::new("busybox")
            .args(["httpd", "-f", "-p", "127.0.0.1:8099", "-h"])
            .arg(dir.path())
            .spawn();
        Httpd(child.unwrap())
    };
    let pod = format!(
        r#"{{"metadata": {{"name": "far"}}, "spec": {{"terminationGracePeriodSeconds": 1, "containers": [{{"name": "c", "image": "{IMAGE}", "command": ["sleep", "1003"]}}]}}}}"#
    );
    std::fs::write(&file, format!(r#"{{"apiVersion": "v1", "kind": "PodList", "items": [{pod}]}}"#)).unwrap();
    let httpd = serve();
    let mut cluster =
        Cluster::start_with("--manifest-url http://127.0.0.1:8099/pods.json --http-check-frequency 1s");
    let minute = std::time::Duration::from_secs(60);
    coracle_tests::eventually("a mirror pod", minute, || {
        cluster.kubectl.try_with("get pod far-node1", "").ok
    });
    cluster.wait_ready("far-node1");
    let container =
        |cluster: &Cluster| cluster.get("far-node1")["status"]["containerStatuses"][0]["containerID"].clone();
    let before = container(&cluster);
    drop(httpd);
    cluster.kill_agent();
    cluster.start_agent();
    cluster.wait_ready("far-node1");
    assert_eq!(container(&cluster), before, "the agent knows the last answer");
    std::fs::write(&file, r#"{"apiVersion": "v1", "kind": "PodList", "items": []}"#).unwrap();
    let _httpd = serve();
    coracle_tests::eventually("no mirror pod", minute, || {
        !cluster.kubectl.try_with("get pod far-node1", "").ok
    });
}
