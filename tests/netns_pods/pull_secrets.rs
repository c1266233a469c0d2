//! `imagePullSecrets` against a real registry with a password: of the pod, of its service account, wrong, missing, of both types.

use crate::cluster::{Cluster, run};
use coracle_tests::eventually;
use coracle_tests::registry::Registry;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;

const WAITING: [&str; 2] = ["ErrImagePull", "ImagePullBackOff"];

/// A registry with the test images for the user `tester` with the password `secret`.
fn registry(cluster: &Cluster) -> Registry {
    let dir = cluster.path("registry");
    fs::create_dir(&dir).unwrap();
    let registry = Registry::start(&dir, true);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("scripts/images");
    run(&format!("{} push {} tester:secret", script.display(), registry.address));
    registry
}

fn secret(cluster: &Cluster, name: &str, server: &str, password: &str) {
    cluster.kubectl.run(&format!(
        "create secret docker-registry {name} --docker-server={server} --docker-username=tester --docker-password={password}"
    ));
}

/// A pod that always pulls, so that what others pulled does not help it.
fn pod(cluster: &Cluster, name: &str, image: &str, more: &str) {
    let container =
        format!("{{name: c, image: '{image}', imagePullPolicy: Always, command: [sleep, '1000']}}");
    cluster.pod(name, &format!("{more} containers: [{container}]"));
}

fn events(cluster: &Cluster, name: &str) -> String {
    let events: Value = serde_json::from_str(&cluster.kubectl.run("get events -o json")).unwrap();
    let all = events["items"].as_array().into_iter().flatten();
    let own = all.filter(|event| event["involvedObject"]["name"] == name);
    let texts = own.map(|event| format!("{}: {}", event["reason"], event["message"]));
    texts.collect::<Vec<_>>().join("\n")
}

fn refused(cluster: &Cluster, name: &str) {
    let status = cluster.wait(name, "no image", |status| {
        let waiting = &status["containerStatuses"][0]["state"]["waiting"]["reason"];
        WAITING.iter().any(|reason| waiting == *reason)
    });
    assert_eq!(status["phase"], "Pending", "{name}: {status}");
}

#[test]
#[ignore = "run by in_namespaces"]
fn private_images_are_pulled_with_the_secrets_of_pod_or_account() {
    let cluster = Cluster::start();
    let registry = registry(&cluster);
    let image = format!("{}/library/busybox:latest", registry.address);
    secret(&cluster, "right", &registry.address, "secret");
    secret(&cluster, "wrong", &registry.address, "guess");
    secret(&cluster, "elsewhere", "registry.example.com", "secret");

    pod(&cluster, "own", &image, "imagePullSecrets: [{name: right}],");
    cluster.wait_ready("own");
    // One that works among those that do not, and one that is not there, which is told.
    let some = "imagePullSecrets: [{name: elsewhere}, {name: gone}, {name: wrong}, {name: right}],";
    pod(&cluster, "some", &image, some);
    cluster.wait_ready("some");
    let told = "Unable to retrieve some image pull secrets (gone)";
    eventually("the missing secret is told", Duration::from_secs(30), || {
        let said = events(&cluster, "some");
        said.contains("FailedToRetrieveImagePullSecret") && said.contains(told)
    });

    // The account's, for pods that name none; a pod that names some has only those.
    cluster.apply(
        "{apiVersion: v1, kind: ServiceAccount, metadata: {name: puller}, imagePullSecrets: [{name: right}]}",
    );
    pod(&cluster, "account", &image, "serviceAccountName: puller,");
    cluster.wait_ready("account");
    assert_eq!(cluster.get("account")["spec"]["imagePullSecrets"][0]["name"], "right");
    pod(&cluster, "instead", &image, "serviceAccountName: puller, imagePullSecrets: [{name: wrong}],");

    // The type of before 1.9: one JSON object, without `auths`.
    let before = format!(
        r#"{{"https://{}/v1/": {{"username": "tester", "password": "secret", "email": "t@example.com"}}}}"#,
        registry.address
    );
    let file = cluster.path("dockercfg");
    fs::write(&file, before).unwrap();
    let create = "create secret generic old --type=kubernetes.io/dockercfg --from-file=.dockercfg=";
    cluster.kubectl.run(&format!("{create}{}", file.display()));
    pod(&cluster, "old", &image, "imagePullSecrets: [{name: old}],");
    cluster.wait_ready("old");

    pod(&cluster, "none", &image, "");
    pod(&cluster, "wrong", &image, "imagePullSecrets: [{name: wrong}],");
    pod(&cluster, "elsewhere", &image, "imagePullSecrets: [{name: elsewhere}],");
    pod(&cluster, "missing", &image, "imagePullSecrets: [{name: later}],");
    for name in ["none", "wrong", "elsewhere", "missing", "instead"] {
        refused(&cluster, name);
        eventually("the refusal is told", Duration::from_secs(30), || {
            events(&cluster, name).contains("Failed to pull image")
        });
    }
    // A secret that comes later is used by the next try.
    secret(&cluster, "later", &registry.address, "secret");
    cluster.wait_for(Duration::from_secs(120), "missing", "Ready", |status| {
        crate::cluster::condition(status, "Ready") == "True"
    });
    cluster.kubectl.run("delete pod --all --grace-period=1");
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_pod_has_the_directories_of_a_kubelet() {
    let cluster = Cluster::start();
    cluster.pod(
        "dirs",
        &format!("containers: [{{name: c, image: '{}', command: [sleep, '1000']}}]", crate::cluster::IMAGE),
    );
    cluster.wait_ready("dirs");
    let uid = cluster.get("dirs")["metadata"]["uid"].as_str().unwrap().to_owned();
    let pod = cluster.path("agent/pods").join(uid);
    for dir in ["plugins", "volumes"] {
        assert!(pod.join(dir).is_dir(), "{dir}: {}", run(&format!("ls -la {}", pod.display())));
    }
    cluster.delete("dirs");
    eventually("the directory goes with the pod", Duration::from_secs(30), || !pod.exists());
}
