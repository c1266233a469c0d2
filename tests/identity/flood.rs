//! One user sends thousands of lists; heartbeats of nodes and other users go on.

use coracle_apiserver::https_client::{ClientTls, HttpsClient};
use coracle_pki::authority::{Authority, Profile};
use coracle_tests::caller::Caller;
use coracle_tests::server::Server;
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const REQUESTS: usize = 5000;
const AT_ONCE: usize = 300;

/// Requests of a user with a certificate, on connections that stay.
pub fn remote(server: &Server, user: &str, groups: &[&str]) -> HttpsClient {
    let pki = server.data_dir().join("pki");
    let authority = Authority::ensure(&pki, "ca", "x").unwrap();
    let signed = authority.sign(&Profile::client(user, groups)).unwrap();
    let tls = ClientTls {
        authority: Some(authority.certificate.clone()),
        client: Some((signed.certificate, signed.key)),
    };
    HttpsClient::new(&server.url(), &tls).unwrap().with_timeout(Duration::from_secs(60))
}

/// Somebody who makes one request after the other while the flood lasts, on a thread of its own: what is measured is the
/// server, not how this program shares its threads with the flood that it makes.
fn meanwhile<F: Future<Output = ()>>(
    left: &Arc<AtomicUsize>,
    mut request: impl FnMut() -> F + Send + 'static,
) -> std::thread::JoinHandle<Vec<Duration>> {
    let left = left.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut times = Vec::new();
        while left.load(Ordering::Relaxed) > 0 {
            let now = Instant::now();
            runtime.block_on(request());
            times.push(now.elapsed());
            std::thread::sleep(Duration::from_millis(20));
        }
        times
    })
}

/// A request that is sent again when its connection breaks, as agents and kubectl do; the time counts all the same.
async fn persistent(remote: &HttpsClient, method: Method, path: &str, body: Option<&Value>) -> (u16, Value) {
    loop {
        match remote.send(method.clone(), path, body).await {
            Ok(answer) => return answer,
            Err(error) => println!("{method} {path} is sent again: {error}"),
        }
    }
}

/// The slowest of a hundred, and the slowest.
fn figures(times: &mut [Duration]) -> (Duration, Duration) {
    times.sort();
    (times[(times.len() * 99 / 100).min(times.len() - 1)], *times.last().unwrap())
}

/// What flow control counted for a schema and its level.
struct FlowCounts {
    dispatched: usize,
    /// Requests that had to wait.
    queued: usize,
    /// Requests in the same queue that those found, themselves included, all together.
    ahead: usize,
}

fn flow_counts(page: &str, schema: &str, level: &str) -> FlowCounts {
    let value = |name: &str| {
        let labels = format!("{{flow_schema=\"{schema}\",priority_level=\"{level}\"}} ");
        let series = format!("apiserver_flowcontrol_{name}{labels}");
        let value = page.lines().find_map(|line| line.strip_prefix(&series)?.parse::<usize>().ok());
        value.unwrap_or_else(|| panic!("no {series} in {page}"))
    };
    FlowCounts {
        dispatched: value("dispatched_requests_total"),
        queued: value("request_queue_length_after_enqueue_count"),
        ahead: value("request_queue_length_after_enqueue_sum"),
    }
}

#[test]
fn a_flood_of_lists_stops_neither_heartbeats_nor_others() {
    let _alone = crate::alone();
    // Few seats, of which a level with one share gets one.
    let server = Server::with(&[
        "--api-only",
        "--max-requests-inflight",
        "40",
        "--max-mutating-requests-inflight",
        "20",
    ]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let admin = remote(&server, "root", &["system:masters"]);
        for number in 0..20 {
            let body = json!({"metadata": {"name": format!("m{number}")}, "data": {"text": "x".repeat(2000)}});
            let (code, _) = admin.send(Method::POST, "/api/v1/namespaces/default/configmaps", Some(&body)).await.unwrap();
            assert_eq!(code, 201);
        }
        for user in ["flooder", "other"] {
            let body = json!({"metadata": {"generateName": "view-"}, "subjects": [{"kind": "User", "name": user,
                "apiGroup": "rbac.authorization.k8s.io"}], "roleRef": {"apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole", "name": "view"}});
            let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
            assert_eq!(admin.send(Method::POST, path, Some(&body)).await.unwrap().0, 201);
        }
        // Both users have one seat together, so that lists wait for each other on any machine, and a schema each, so that they
        // are counted apart.
        let configuration = "/apis/flowcontrol.apiserver.k8s.io/v1";
        let level = json!({"metadata": {"name": "one-seat"}, "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0, "limitResponse": {
                "type": "Queue", "queuing": {"queues": 64, "handSize": 6, "queueLengthLimit": 50}}}}});
        let path = format!("{configuration}/prioritylevelconfigurations");
        assert_eq!(admin.send(Method::POST, &path, Some(&level)).await.unwrap().0, 201);
        for user in ["flooder", "other"] {
            let rule = json!({"subjects": [{"kind": "User", "user": {"name": user}}], "resourceRules": [
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]}]});
            let schema = json!({"metadata": {"name": user}, "spec": {"matchingPrecedence": 9000, "rules": [rule],
                "priorityLevelConfiguration": {"name": "one-seat"}, "distinguisherMethod": {"type": "ByUser"}}});
            let path = format!("{configuration}/flowschemas");
            assert_eq!(admin.send(Method::POST, &path, Some(&schema)).await.unwrap().0, 201);
        }
        let lease = json!({"metadata": {"name": "n", "namespace": "kube-node-lease"}, "spec": {"holderIdentity": "n"}});
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        let node = remote(&server, "system:node:n", &["system:nodes"]);
        let (code, beat) = node.send(Method::POST, leases, Some(&lease)).await.unwrap();
        assert_eq!(code, 201);

        let flooder = Arc::new(remote(&server, "flooder", &[]));
        let left = Arc::new(AtomicUsize::new(REQUESTS));
        let [served, refused, broken] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
        let begun = Instant::now();
        let mut flood = tokio::task::JoinSet::new();
        for _ in 0..AT_ONCE {
            let (flooder, left) = (flooder.clone(), left.clone());
            let (served, refused, broken) = (served.clone(), refused.clone(), broken.clone());
            flood.spawn(async move {
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                    match flooder.send(Method::GET, "/api/v1/configmaps", None).await {
                        Ok((200, _)) => served.fetch_add(1, Ordering::Relaxed),
                        Ok((429, _)) => refused.fetch_add(1, Ordering::Relaxed),
                        // On a machine that is busy elsewhere too, some of its many connections are given up.
                        Err(_) => broken.fetch_add(1, Ordering::Relaxed),
                        other => panic!("neither served nor told to wait: {other:?}"),
                    };
                }
            });
        }
        let beat = Arc::new(tokio::sync::Mutex::new((remote(&server, "system:node:n", &["system:nodes"]), beat)));
        let beats = meanwhile(&left, move || {
            let beat = beat.clone();
            async move {
                let mut beat = beat.lock().await;
                let (node, lease) = &mut *beat;
                let (code, body) = persistent(node, Method::PUT, &format!("{leases}/n"), Some(lease)).await;
                assert_eq!(code, 200, "a heartbeat: {body}");
                // The next names the version that this one made.
                *lease = body;
            }
        });
        let other = Arc::new(remote(&server, "other", &[]));
        let gets = meanwhile(&left, move || {
            let other = other.clone();
            async move {
                let path = "/api/v1/namespaces/default/configmaps/m1";
                let (code, _) = persistent(&other, Method::GET, path, None).await;
                assert_eq!(code, 200, "another user");
            }
        });
        while let Some(ended) = flood.join_next().await {
            ended.unwrap();
        }
        let took = begun.elapsed();
        let (mut beats, mut gets) = (beats.join().unwrap(), gets.join().unwrap());
        assert!(beats.len() > 5, "{} heartbeats", beats.len());
        let ((beat99, beat), (get99, get)) = (figures(&mut beats), figures(&mut gets));
        let [served, refused, broken] = [served, refused, broken].map(|count| count.load(Ordering::Relaxed));
        println!(
            "{served} lists served, {refused} refused and {broken} broken off in {took:?}; {} heartbeats, p99 {beat99:?}, worst {beat:?}; {} reads of another user, p99 {get99:?}, worst {get:?}",
            beats.len(),
            gets.len()
        );
        assert_eq!(served + refused + broken, REQUESTS);
        assert!(served > 0 && broken < REQUESTS / 10, "{served} served, {broken} broken off");
        // However slow the machine is: lists wait behind lists, heartbeats for nobody, and another user for nobody in its queue.
        let (_, page) = Caller::admin(&server).get("/metrics");
        let page = page.as_str().unwrap();
        let lists = flow_counts(page, "flooder", "one-seat");
        assert!(lists.ahead > lists.queued, "the flood fills no queue: {} of {}", lists.queued, lists.dispatched);
        let heartbeats = flow_counts(page, "system-node-high", "node-high");
        assert!(heartbeats.dispatched >= beats.len() && heartbeats.queued == 0, "{page}");
        let reads = flow_counts(page, "other", "one-seat");
        assert!(reads.dispatched > 0 && reads.ahead == reads.queued, "{page}");
    });
}
