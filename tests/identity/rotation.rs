//! Certificates that live for seconds: server, administrator and node renew them under load, and no request fails.

use crate::caller::token;
use coracle_agent::identity::client::Identity;
use coracle_agent::identity::join::{Invitation, Place, join};
use coracle_agent::identity::rotate;
use coracle_tests::server::Server;
use std::time::{Duration, Instant};

const LIFE: u64 = 30;

#[test]
fn certificates_are_renewed_under_load() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = Server::with(&["--certificate-lifetime-seconds", &LIFE.to_string()]);
    let dir = tempfile::tempdir().unwrap();
    let place = Place::below(dir.path());
    let invitation = Invitation::read(&server.url(), &token(&server, &[]), None).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        join(&invitation, "node-a", &place, Duration::from_secs(30)).await.unwrap();
        let identity = Identity::read(&place.kubeconfig).await.unwrap();
        let client = identity.client();
        tokio::spawn(rotate::keep(identity));
        let first = std::fs::read(place.pki.join("client.pem")).unwrap();
        let serving = std::fs::read(server.data_dir().join("pki/apiserver.crt")).unwrap();
        let begun = Instant::now();
        let mut requests = 0;
        // Longer than any certificate lives that was there in the beginning.
        while begun.elapsed() < Duration::from_secs(LIFE + 12) {
            let request = http::Request::get("/api/v1/services").body(Vec::new()).unwrap();
            client.request_text(request).await.unwrap_or_else(|error| panic!("request {requests}: {error}"));
            requests += 1;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_ne!(first, std::fs::read(place.pki.join("client.pem")).unwrap(), "the node's certificate");
        assert_ne!(
            serving,
            std::fs::read(server.data_dir().join("pki/apiserver.crt")).unwrap(),
            "the server's"
        );
        assert!(requests > 100, "{requests}");
        // The administrator's kubeconfig was written anew as well.
        let admin = Identity::read(&server.kubeconfig()).await.unwrap().client();
        let request = http::Request::get("/api/v1/nodes").body(Vec::new()).unwrap();
        admin.request_text(request).await.unwrap();
        println!("{requests} requests over {} s, none failed", begun.elapsed().as_secs());
    });
}
