//! Images that cannot be pulled.

use crate::case::{Case, object};

fn of(image: &str) -> String {
    format!("containers: [{{name: c, image: '{image}', command: [sleep, '100000']}}]")
}

pub fn cases() -> Vec<Case> {
    let private = of("$REGISTRY/private/app:1");
    let credentials = r#"type: kubernetes.io/dockerconfigjson, stringData: {.dockerconfigjson: '{"auths":{"other.example.com":{"username":"u","password":"p"}}}'}"#;
    vec![
        Case::pod("image-tag-not-found", &of("$REGISTRY/tagged:nope"))
            .because("/tagged:nope")
            .says("not found", "kubectl set image pod/p")
            .mended_by("set image pod/p c=busybox"),
        Case::pod("image-not-found", &of("$REGISTRY/no/such:1"))
            .because("/no/such:1, or it is private")
            .says("NAME_UNKNOWN", "kubectl set image"),
        Case::pod("image-pull-denied", &private)
            .because("without valid credentials")
            .says("container c waits", "kubectl create secret docker-registry"),
        Case::pod("image-pull-secret-missing", &format!("imagePullSecrets: [{{name: pull}}], {private}"))
            .because("the Secret pull in imagePullSecrets does not exist")
            .says("container c waits", "kubectl create secret docker-registry"),
        Case::pod("image-pull-secret-invalid", &format!("imagePullSecrets: [{{name: pull}}], {private}"))
            .with(&object("v1", "Secret", "pull", credentials))
            .because("only for other.example.com")
            .says("container c waits", "kubectl create secret docker-registry"),
        Case::pod("registry-unreachable", &of("127.0.0.1:9/nowhere:1"))
            .because("cannot reach the registry 127.0.0.1:9")
            .says("container c waits", "check network"),
        Case::pod("registry-certificate-untrusted", &of("10.89.0.11:5443/app:1"))
            .because("does not trust the certificate of the registry 10.89.0.11:5443")
            .says("container c waits", "authority"),
        Case::pod("registry-rate-limited", &of("$REGISTRY/busy:1"))
            .because("limits the rate of pulls")
            .says("429", "use a mirror"),
        Case::pod("image-architecture-mismatch", &of("$REGISTRY/foreign:1"))
            .because("/foreign:1 has no variant for the architecture of node")
            .says("no match for platform", "built for the node's architecture"),
        Case::pod("image-name-invalid", &of("Nginx:"))
            .because("is not the name of an image")
            .says("", "kubectl set image"),
        Case::pod(
            "image-never-pulled",
            "containers: [{name: c, image: 'example.test/none:1', imagePullPolicy: Never}]",
        )
        .because("imagePullPolicy is Never")
        .says("", "load the image on node"),
        Case::pod("image-pull-failed", &of("$REGISTRY/damaged:1"))
            .because("cannot be pulled")
            .says("container c waits", "kubectl set image"),
    ]
}
