//! Finds the cluster DNS addresses if they are not configured.

use coracle_cli::causes;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use kube::api::Api;
use std::path::Path;
use std::time::Duration;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "kube-dns";
/// Timeout of the API request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_secs(1);

/// The addresses of the cluster's DNS Service; none where the cluster has no such Service.
///
/// If the API server is unavailable, the addresses saved in `kept` are used. Without either this waits, unless `alone`:
/// a node with static pods starts without a server.
pub async fn addresses(client: &kube::Client, kept: &Path, alone: bool) -> Vec<String> {
    let api: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    loop {
        let error = match tokio::time::timeout(REQUEST_TIMEOUT, api.get_opt(NAME)).await {
            Ok(Ok(service)) => {
                let found = service.and_then(|service| service.spec).map_or_else(Vec::new, of);
                save(kept, &found);
                return found;
            }
            Ok(Err(error)) => causes::chain(&error),
            Err(late) => late.to_string(),
        };
        match std::fs::read_to_string(kept) {
            Ok(text) => return text.split_whitespace().map(str::to_owned).collect(),
            Err(_) if alone => {
                tracing::warn!(error, "cluster DNS addresses not found; set --cluster-dns");
                return Vec::new();
            }
            Err(_) => tracing::warn!(error, "cluster DNS addresses not found, will retry"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Saves addresses for a start without the API server, and for cleanup scripts.
pub fn save(kept: &Path, addresses: &[String]) {
    let text: String = addresses.iter().map(|address| format!("{address}\n")).collect();
    if std::fs::read_to_string(kept).is_ok_and(|known| known == text) {
        return;
    }
    if let Err(error) = std::fs::write(kept, text) {
        tracing::warn!(path = %kept.display(), error = %causes::chain(&error), "cluster DNS addresses not saved");
    }
}

/// Cluster IPs of a Service; none if it is headless.
fn of(spec: ServiceSpec) -> Vec<String> {
    let all = spec.cluster_ips.unwrap_or_else(|| spec.cluster_ip.into_iter().collect());
    all.into_iter().filter(|address| address.parse::<std::net::IpAddr>().is_ok()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_service_has_the_addresses_of_its_families() {
        let spec = |text: &str| serde_json::from_str::<ServiceSpec>(text).unwrap();
        assert_eq!(of(spec(r#"{"clusterIP": "10.96.0.10"}"#)), ["10.96.0.10"]);
        assert_eq!(
            of(spec(r#"{"clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10", "fd00::a"]}"#)),
            ["10.96.0.10", "fd00::a"]
        );
        assert!(of(spec(r#"{"clusterIP": "None", "clusterIPs": ["None"]}"#)).is_empty());
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_is_not_needed_a_second_time() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let kept = dir.path().join("cluster-dns");
        // Nobody listens on the port of nothing.
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = kube::Client::try_from(config).unwrap();
        assert!(addresses(&client, &kept, true).await.is_empty());
        save(&kept, &["10.96.0.10".into(), "fd00::a".into()]);
        assert_eq!(addresses(&client, &kept, false).await, ["10.96.0.10", "fd00::a"]);
    }
}
