//! Images over CRI, from real registries on loopback.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use coracle_engine::runtime::{Containers, Images, RuntimeError, Sandboxes};
use coracle_proto::cri;
use coracle_tests::registry::Registry;
use coracle_tests::token_registry::TokenRegistry;

use crate::node::{Node, archive, run};

fn spec(image: &str) -> cri::ImageSpec {
    cri::ImageSpec { image: image.into(), ..Default::default() }
}

fn password(password: &str) -> Option<cri::AuthConfig> {
    Some(cri::AuthConfig { username: "tester".into(), password: password.into(), ..Default::default() })
}

fn push(registry: &Registry, credentials: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("scripts/images");
    run(&format!("{} push {} {credentials}", script.display(), registry.address));
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn nginx_from_a_plain_registry_serves() {
    let node = Node::start().await;
    let registry = Registry::start(&node.path("."), false);
    push(&registry, "");
    let image = format!("{}/library/nginx:latest", registry.address);
    assert!(node.cri.image_status(spec(&image)).await.unwrap().is_none());
    let reference = node.cri.pull_image(spec(&image), None, None).await.unwrap();
    let found = node.cri.image_status(spec(&image)).await.unwrap().unwrap();
    assert!(found.id == reference || found.repo_digests.contains(&reference), "{reference} {found:?}");
    let missing = node.cri.pull_image(spec(&format!("{}/no/such:1", registry.address)), None, None).await;
    assert!(matches!(missing, Err(RuntimeError::NotFound(_))), "{missing:?}");
    let nonsense = node.cri.pull_image(spec("UPPER//case"), None, None).await;
    assert!(matches!(nonsense, Err(RuntimeError::BadImageName(_))), "{nonsense:?}");

    let sandbox = node.sandbox("nginx").await;
    let mut config = node.container_config("nginx", &[]);
    config.image = Some(spec(&reference));
    let id = node.run(&sandbox, "nginx", config).await;
    let ip = node.cri.pod_sandbox_status(&sandbox, false).await.unwrap().status.unwrap().network.unwrap().ip;
    let page = run(&format!(
        "for i in $(seq 50); do curl -s --max-time 5 http://{ip}/ && exit 0; sleep 0.1; done; exit 1"
    ));
    assert!(page.contains("Welcome to nginx"), "{page}");
    let busy = node.cri.remove_image(spec(&image)).await;
    assert!(busy.is_err() || node.status(&id).await.state() == cri::ContainerState::ContainerRunning);
    node.cri.stop_container(&id, Duration::from_secs(10)).await.unwrap();
    assert_eq!(node.status(&id).await.exit_code, 0, "nginx ends by itself when asked");
    node.cri.remove_pod_sandbox(&sandbox).await.unwrap();
    node.cri.remove_image(spec(&image)).await.unwrap();
    node.cri.remove_image(spec(&image)).await.unwrap();
    assert!(node.cri.image_status(spec(&image)).await.unwrap().is_none());
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn a_password_is_asked_for_and_checked() {
    let node = Node::start().await;
    let registry = Registry::start(&node.path("."), true);
    push(&registry, "tester:secret");
    let image = format!("{}/library/busybox:latest", registry.address);
    for wrong in [None, password("wrong")] {
        let refused = node.cri.pull_image(spec(&image), wrong, None).await;
        assert!(matches!(refused, Err(RuntimeError::PermissionDenied(_))), "{refused:?}");
    }
    node.cri.pull_image(spec(&image), password("secret"), None).await.unwrap();
    let base64 = cri::AuthConfig { auth: "dGVzdGVyOnNlY3JldA==".into(), ..Default::default() };
    node.cri.pull_image(spec(&image), Some(base64), None).await.unwrap();
}

/// The test image as a registry has it.
fn documents() -> HashMap<String, (&'static str, Vec<u8>)> {
    let dir = archive().parent().unwrap().join("image");
    let mut documents = HashMap::new();
    let mut add = |file: &str, media: &'static str| {
        let bytes = fs::read(dir.join(file)).unwrap();
        let digest = run(&format!("sha256sum {}", dir.join(file).display()));
        let digest = format!("sha256:{}", digest.split(' ').next().unwrap());
        let about = serde_json::json!({ "mediaType": media, "digest": digest, "size": bytes.len() });
        documents.insert(format!("/v2/app/blobs/{digest}"), ("application/octet-stream", bytes));
        about
    };
    let config = add("config.json", "application/vnd.oci.image.config.v1+json");
    let layer = add("layer.tar", "application/vnd.oci.image.layer.v1.tar");
    let media = "application/vnd.oci.image.manifest.v1+json";
    let manifest =
        serde_json::json!({ "schemaVersion": 2, "mediaType": media, "config": config, "layers": [layer] });
    documents.insert("/v2/app/manifests/latest".into(), (media, manifest.to_string().into_bytes()));
    documents
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn a_token_is_fetched_with_the_password() {
    let node = Node::start().await;
    let registry = TokenRegistry::start(documents());
    let image = format!("{}/app:latest", registry.address);
    for wrong in [None, password("wrong")] {
        let refused = node.cri.pull_image(spec(&image), wrong, None).await;
        assert!(matches!(refused, Err(RuntimeError::PermissionDenied(_))), "{refused:?}");
    }
    let reference = node.cri.pull_image(spec(&image), password("secret"), None).await.unwrap();
    assert!(registry.asked.lock().unwrap().iter().any(|path| path == "/token"));
    let sandbox = node.sandbox("token").await;
    let mut config = node.container_config("c", &["true"]);
    config.image = Some(spec(&reference));
    let id = node.run(&sandbox, "token", config).await;
    assert_eq!(node.exited(&id).await.exit_code, 0);
    node.cri.remove_pod_sandbox(&sandbox).await.unwrap();
}

#[tokio::test]
#[ignore = "run by in_namespaces"]
async fn bad_layers_are_refused_and_leave_nothing() {
    let node = Node::start().await;
    let before = node.cri.list_images(None).await.unwrap().len();
    // Names that leave the root, and a gigabyte of nothing in a megabyte.
    let dir = node.path("bad");
    fs::create_dir(&dir).unwrap();
    run(&format!(
        "cd {} && echo x > f && tar -cPf up.tar --transform 's,f,../../../../escaped,' f && \
         tar -cPf bomb.tar --sparse /dev/null && truncate -s 540M big && tar -cf - big | gzip -9 > bomb.tar.gz && rm big",
        dir.display()
    ));
    for (name, layer, media) in [
        ("up", "up.tar", "application/vnd.oci.image.layer.v1.tar"),
        ("bomb", "bomb.tar.gz", "application/vnd.oci.image.layer.v1.tar+gzip"),
    ] {
        let bytes = fs::read(dir.join(layer)).unwrap();
        let sum = |bytes: &[u8]| {
            let path = dir.join("sum");
            fs::write(&path, bytes).unwrap();
            run(&format!("sha256sum < {} | cut -d' ' -f1", path.display())).trim().to_owned()
        };
        let plain = run(&format!(
            "cd {}; case {layer} in *.gz) gzip -dc {layer};; *) cat {layer};; esac | sha256sum | cut -d' ' -f1",
            dir.display()
        ));
        let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let config = serde_json::json!({ "architecture": arch, "os": "linux", "config": {},
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", plain.trim())] } })
        .to_string()
        .into_bytes();
        let manifest_media = "application/vnd.oci.image.manifest.v1+json";
        let (config_sum, layer_sum) = (sum(&config), sum(&bytes));
        let manifest = serde_json::json!({ "schemaVersion": 2, "mediaType": manifest_media,
            "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": format!("sha256:{config_sum}"), "size": config.len() },
            "layers": [{ "mediaType": media, "digest": format!("sha256:{layer_sum}"), "size": bytes.len() }] });
        let documents = HashMap::from([
            (format!("/v2/{name}/manifests/latest"), (manifest_media, manifest.to_string().into_bytes())),
            (format!("/v2/{name}/blobs/sha256:{config_sum}"), ("application/octet-stream", config)),
            (format!("/v2/{name}/blobs/sha256:{layer_sum}"), ("application/octet-stream", bytes)),
        ]);
        let registry = TokenRegistry::start(documents);
        let image = format!("{}/{name}:latest", registry.address);
        let refused = node.cri.pull_image(spec(&image), password("secret"), None).await.unwrap_err();
        println!("{name}: {refused}");
        assert!(!refused.to_string().is_empty());
        assert!(!Path::new("/escaped").exists());
    }
    let found = run(&format!("find {} -name escaped", node.path("root").display()));
    assert_eq!(found, "", "nothing of it is anywhere");
    assert_eq!(node.cri.list_images(None).await.unwrap().len(), before);
}
