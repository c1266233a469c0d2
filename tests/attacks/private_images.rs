//! Pods against images on their node that somebody else's credentials pulled.

use std::fs;
use std::path::Path;
use std::time::Duration;

use coracle_tests::eventually;
use coracle_tests::pods::{Cluster, IMAGE, run};
use coracle_tests::registry::Registry;
use serde_json::Value;

/// A registry with the test images; with `credentials`, only for those who have them.
fn registry(cluster: &Cluster, name: &str, credentials: &str) -> Registry {
    let dir = cluster.path(name);
    fs::create_dir(&dir).unwrap();
    let registry = Registry::start(&dir, !credentials.is_empty());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("scripts/images");
    run(&format!("{} push {} {credentials}", script.display(), registry.address));
    registry
}

fn pod(cluster: &Cluster, name: &str, image: &str, policy: &str, secrets: &str) {
    let container = format!(
        "containers: [{{name: c, image: '{image}', imagePullPolicy: {policy}, command: [sh, -c, 'echo ran; sleep 1000']}}]"
    );
    cluster.pod(name, &format!("imagePullSecrets: [{secrets}], {container}"));
}

/// The pod waits for its image, and nothing of it ran.
fn refused(cluster: &Cluster, name: &str, reasons: &[&str]) -> String {
    let status = cluster.wait(name, "no image", |status| {
        let waiting = &status["containerStatuses"][0]["state"]["waiting"];
        reasons.iter().any(|reason| waiting["reason"] == *reason)
    });
    let container = &status["containerStatuses"][0];
    assert!(container["containerID"].as_str().unwrap_or_default().is_empty(), "{name}: {status}");
    assert_eq!(cluster.output(name, "c", 0), "", "{name} ran");
    container["state"]["waiting"]["message"].as_str().unwrap_or_default().to_owned()
}

/// What events say about a pod.
fn messages(cluster: &Cluster, name: &str) -> String {
    let events: Value = serde_json::from_str(&cluster.kubectl.run("get events -o json")).unwrap();
    let all = events["items"].as_array().into_iter().flatten();
    let own = all.filter(|event| event["involvedObject"]["name"] == name);
    own.filter_map(|event| event["message"].as_str()).collect::<Vec<_>>().join("\n")
}

const NOT_PULLED: [&str; 2] = ["ErrImagePull", "ImagePullBackOff"];

#[test]
#[ignore = "run by in_namespaces"]
fn a_pod_cannot_use_an_image_that_the_secret_of_another_pulled() {
    let mut cluster = Cluster::start();
    let private = registry(&cluster, "private", "tester:secret");
    let public = registry(&cluster, "public", "");
    for (name, password) in [("right", "secret"), ("wrong", "guess")] {
        cluster.kubectl.run(&format!(
            "create secret docker-registry {name} --docker-server={} --docker-username=tester --docker-password={password}",
            private.address
        ));
    }
    let image = format!("{}/library/busybox:latest", private.address);
    pod(&cluster, "owner", &image, "IfNotPresent", "{name: right}");
    cluster.wait_ready("owner");

    pod(&cluster, "without", &image, "IfNotPresent", "");
    pod(&cluster, "guesses", &image, "IfNotPresent", "{name: wrong}");
    for name in ["without", "guesses"] {
        let message = refused(&cluster, name, &NOT_PULLED);
        assert!(message.contains("pull access denied"), "{name}: {message}");
        let told = format!("Failed to pull image \"{image}\"");
        eventually("the refusal is told", Duration::from_secs(30), || {
            messages(&cluster, name).contains(&told)
        });
    }
    pod(&cluster, "never", &image, "Never", "");
    assert_eq!(
        refused(&cluster, "never", &["ErrImageNeverPull"]),
        format!("Container image \"{image}\" is not present with pull policy of Never")
    );
    // Another name of the same image.
    let id = cluster.get("owner")["status"]["containerStatuses"][0]["imageID"].as_str().unwrap().to_owned();
    pod(&cluster, "by-digest", &id, "Never", "");
    refused(&cluster, "by-digest", &["ErrImageNeverPull"]);
    pod(&cluster, "owner-by-digest", &id, "Never", "{name: right}");
    cluster.wait_ready("owner-by-digest");

    // Pulled without credentials: for every pod.
    let open = format!("{}/library/nginx:latest", public.address);
    pod(&cluster, "first", &open, "IfNotPresent", "");
    cluster.wait_ready("first");

    // Nobody can be asked any more, and a new agent knows what the one before knew.
    drop((private, public));
    pod(&cluster, "same", &image, "IfNotPresent", "{name: right}");
    cluster.wait_ready("same");
    cluster.kill_agent();
    cluster.start_agent();
    pod(&cluster, "later", &image, "Never", "{name: right}");
    pod(&cluster, "second", &open, "Never", "");
    cluster.wait_ready("later");
    cluster.wait_ready("second");
    pod(&cluster, "stranger", &image, "IfNotPresent", "");
    refused(&cluster, "stranger", &NOT_PULLED);
    // What was imported is for every pod.
    pod(&cluster, "imported", IMAGE, "Never", "");
    cluster.wait_ready("imported");
    cluster.kubectl.run("delete pod --all");
}
