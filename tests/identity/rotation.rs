//! Certificates that live for a short time: server, administrator and node renew them under load, and no request fails.
//! `CORACLE_TEST_ROTATION_SECONDS` makes their lives longer than the usual minute.

use crate::caller::token;
use coracle_agent::identity::client::Identity;
use coracle_agent::identity::join::{IdentityFiles, JoinParams, join};
use coracle_agent::identity::rotate;
use coracle_tests::server::Server;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const USUAL: u64 = 60;
/// How many ask at the same time.
const CLIENTS: usize = 8;

/// How often a file has another content than before, looked at between requests.
struct Changes {
    path: std::path::PathBuf,
    last: Vec<u8>,
    count: usize,
}

impl Changes {
    fn of(path: &Path) -> Self {
        Self { path: path.into(), last: std::fs::read(path).unwrap(), count: 0 }
    }

    fn look(&mut self) {
        let now = std::fs::read(&self.path).unwrap();
        if now != self.last {
            (self.last, self.count) = (now, self.count + 1);
        }
    }
}

#[test]
fn certificates_are_renewed_under_load() {
    let _alone = crate::alone();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let life = std::env::var("CORACLE_TEST_ROTATION_SECONDS").ok().map_or(USUAL, |s| s.parse().unwrap());
    let server = Server::with(&["--certificate-lifetime-seconds", &life.to_string()]);
    let dir = tempfile::tempdir().unwrap();
    let place = IdentityFiles::below(dir.path());
    let invitation = JoinParams::read(&server.url(), &token(&server, &[]), None).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        join(&invitation, "node-a", &place, Duration::from_secs(60)).await.unwrap();
        let identity = Identity::read(&place.kubeconfig).await.unwrap();
        let client = identity.client();
        tokio::spawn(rotate::run(std::sync::Arc::new(identity)));
        let pki = server.data_dir().join("pki");
        let mut files = [place.pki.join("client.pem"), pki.join("apiserver.crt"), pki.join("admin.crt")]
            .map(|path| Changes::of(&path));
        let begun = Instant::now();
        // Longer than any certificate lives that was there in the beginning.
        let end = begun + Duration::from_secs(life + life / 4);
        let (requests, slowest) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..CLIENTS {
            let (client, requests, slowest) = (client.clone(), requests.clone(), slowest.clone());
            all.spawn(async move {
                while Instant::now() < end {
                    let begun = Instant::now();
                    let request = http::Request::get("/api/v1/services").body(Vec::new()).unwrap();
                    let number = requests.fetch_add(1, Ordering::Relaxed);
                    let answer = client.request_text(request).await;
                    answer.unwrap_or_else(|error| panic!("request {number}: {error}"));
                    slowest.fetch_max(begun.elapsed().as_millis() as usize, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
        }
        // The administrator reads the kubeconfig anew for every command, as kubectl does.
        let kubeconfig = server.kubeconfig();
        let mut commands = 0;
        while Instant::now() < end {
            files.iter_mut().for_each(Changes::look);
            let admin = Identity::read(&kubeconfig).await.unwrap().client();
            let request = http::Request::get("/api/v1/nodes").body(Vec::new()).unwrap();
            admin.request_text(request).await.unwrap_or_else(|error| panic!("command {commands}: {error}"));
            commands += 1;
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        while let Some(ended) = all.join_next().await {
            ended.unwrap();
        }
        files.iter_mut().for_each(Changes::look);
        let counts = files.each_ref().map(|file| file.count);
        println!(
            "certificates of {life} s, {} s: {} requests of a node by {CLIENTS} at a time and {commands} commands, none failed, slowest {} ms; renewed: node {}, server {}, administrator {}",
            begun.elapsed().as_secs(),
            requests.load(Ordering::Relaxed),
            slowest.load(Ordering::Relaxed),
            counts[0],
            counts[1],
            counts[2]
        );
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
        assert!(requests.load(Ordering::Relaxed) > 200);
    });
}
