//! Objects that the server publishes when it starts: those that every cluster has, and its own address and authorities.

use super::addresses::dns_addresses;
use super::bootstrap_roles;
use super::build::Built;
use super::flow_control;
use super::open::Opened;
use crate::config::Config;
use anyhow::Context as _;
use coracle_apiserver::authn::ca_files::CaBundle;
use coracle_apiserver::authn::front_proxy::FrontProxy;
use coracle_apiserver::tls::Tls;
use coracle_cli::causes;
use coracle_client::Client;
use coracle_fields::core::v1::ConfigMap;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_fields::{Schema as _, make};
use coracle_kinds::registry::bootstrap::{self, Cluster};
use coracle_kinds::registry::kinds::Kind;
use coracle_pki::{Pki, kubeconfig};
use coracle_validation::names::{cidr, network};
use futures::{StreamExt, TryStreamExt};
use http::HeaderName;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// When to publish again what could not be published.
const RETRY: Duration = Duration::from_secs(10);

/// Which front proxies aggregated API servers are told to trust.
pub(super) type Delegation = FrontProxy;

/// Publishes everything, and writes the administrator's kubeconfig. Authorities that cannot be published are no reason not to start:
/// a webhook that refuses them, or does not answer, may need this server.
pub(super) async fn publish(
    config: &Config,
    opened: &Opened,
    built: &Built,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let Built { client, tls, front_proxy, .. } = built;
    let pki = &opened.pki;
    bootstrap(client, config, opened.bound, &opened.service_ip).await?;
    let authority = pki.authority();
    kubeconfig::write(&opened.kubeconfig, &opened.url, &authority.certificate, "admin", &pki.admin)?;
    if let Err(error) = publish_authorities(client, front_proxy, tls, pki, &opened.url).await {
        tracing::warn!(error = %causes::chain(&*error), "cannot publish the certificate authorities, will retry");
        let (client, delegation, tls) = (client.clone(), front_proxy.clone(), tls.clone());
        let (pki, url, stop) = (pki.clone(), opened.url.clone(), stop.clone());
        tokio::spawn(async move {
            let published = async {
                loop {
                    tokio::time::sleep(RETRY).await;
                    if publish_authorities(&client, &delegation, &tls, &pki, &url).await.is_ok() {
                        tracing::info!("the certificate authorities are published");
                        return;
                    }
                }
            };
            tokio::select! {
                () = published => {}
                () = stop.cancelled() => {}
            }
        });
    }
    Ok(())
}

/// Publishes the authorities, for aggregated API servers and for joining nodes.
pub(super) async fn publish_authorities(
    client: &Client,
    delegation: &Delegation,
    tls: &Tls,
    pki: &Pki,
    url: &str,
) -> anyhow::Result<()> {
    publish_authentication(client, delegation, tls, pki).await?;
    publish_cluster(client, url, &pki.authority().certificate).await
}

/// Tells aggregated API servers whose certificates and headers to believe.
pub(super) async fn publish_authentication(
    client: &Client,
    delegation: &Delegation,
    tls: &Tls,
    pki: &Pki,
) -> anyhow::Result<()> {
    let headers = &delegation.headers;
    let list = |names: &[HeaderName]| {
        let names: Vec<&str> = names.iter().map(HeaderName::as_str).collect();
        json!(names).to_string()
    };
    let operator = tls.operator_cas();
    let with = |own: &str, operators: &CaBundle| format!("{own}{}", operators.pem());
    let map = make!(ConfigMap {
        metadata: { name: "extension-apiserver-authentication", namespace: "kube-system" },
        data: [
            ("client-ca-file", with(&pki.authority().certificate, &operator.clients)),
            ("requestheader-allowed-names", json!(delegation.names).to_string()),
            ("requestheader-client-ca-file", with(&pki.front_proxy.certificate, &operator.proxies)),
            ("requestheader-extra-headers-prefix", json!(headers.extra).to_string()),
            ("requestheader-group-headers", list(&headers.group)),
            ("requestheader-uid-headers", list(&headers.uid)),
            ("requestheader-username-headers", list(&headers.user)),
        ],
    });
    replace(client, map.into_value()).await
}

/// Publishes the URL and the CA of the cluster in `kube-public`, for joining nodes.
async fn publish_cluster(client: &Client, url: &str, authority: &str) -> anyhow::Result<()> {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "", "cluster":
        {"server": url, "certificate-authority-data": STANDARD.encode(authority)}}]});
    let map = make!(ConfigMap {
        metadata: { name: "cluster-info", namespace: "kube-public" },
        data: [("kubeconfig", kubeconfig.to_string())],
    });
    replace(client, map.into_value()).await
}

/// Makes what every cluster has from its first moment and is not there yet, completes its roles and bindings, and brings its flow
/// schemas and priority levels up to date.
async fn bootstrap(
    client: &Client,
    config: &Config,
    bound: SocketAddr,
    service_ip: &str,
) -> anyhow::Result<()> {
    let ranges = service_ranges(config);
    let cluster = Cluster { service_ranges: &ranges, service_address: service_ip, port: bound.port() };
    // Namespaces first; the rest does not depend on order, and together it costs a few commits instead of hundreds.
    let objects = bootstrap::objects(&cluster);
    let wanted = flow_control::names(&objects);
    let (namespaces, rest): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|object| PartialObjectMetadata::of(object).kind() == "Namespace");
    for objects in [namespaces, rest] {
        let made = futures::stream::iter(objects.into_iter().map(|object| ensure_default(client, object)));
        made.buffer_unordered(64).try_collect::<()>().await?;
    }
    if let Err(error) = flow_control::remove_obsolete(client, &wanted).await {
        tracing::warn!(error = %causes::chain(&error), "cannot remove an obsolete flow schema or priority level");
    }
    let addresses = dns_addresses(&config.service_cidr);
    if !addresses.is_empty()
        && let Err(error) = ensure(client, bootstrap::dns(&addresses)).await
    {
        // A cluster from before may have given an address to somebody else.
        tracing::warn!(?addresses, error = %causes::chain(&*error), "cannot create the kube-dns Service");
    }
    Ok(())
}

/// The ranges of the default ServiceCIDR.
pub(super) fn service_ranges(config: &Config) -> Vec<String> {
    config.service_cidr.split(',').map(|range| canonical(range.trim())).collect()
}

/// A range as ServiceCIDRs have to name it.
fn canonical(range: &str) -> String {
    let parsed = cidr(range).map(|(address, bits)| format!("{}/{bits}", network(address, bits)));
    parsed.unwrap_or_else(|| range.to_owned())
}

fn kind_of(client: &Client, object: &serde_json::Value) -> anyhow::Result<Arc<Kind>> {
    let object = PartialObjectMetadata::of(object);
    let version = object.api_version().text();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = object.kind().text();
    client.registry().kind(group, version, kind).with_context(|| format!("{kind} is in the table of kinds"))
}

/// Namespace and name of an object.
fn name_of(object: &serde_json::Value) -> (String, String) {
    let meta = PartialObjectMetadata::of(object).metadata();
    (meta.namespace().text().to_owned(), meta.name().text().to_owned())
}

/// Creates an object unless one of its name is there; a role or binding that is there gets what it lacks, and a flow schema or
/// priority level is brought up to date. A failure of that is no reason not to start: a webhook that refuses it may need this
/// server.
async fn ensure_default(client: &Client, object: serde_json::Value) -> anyhow::Result<()> {
    let kind = kind_of(client, &object)?;
    let reconciled = match kind.group.as_str() {
        bootstrap_roles::GROUP => bootstrap_roles::reconcile(client, &kind, &object).await,
        flow_control::GROUP => flow_control::reconcile(client, &kind, &object).await,
        _ => return ensure(client, object).await,
    };
    let Err(error) = reconciled else { return Ok(()) };
    let (namespace, name) = name_of(&object);
    tracing::warn!(
        resource = %kind.plural, %namespace, %name, error = %causes::chain(&error),
        "cannot update a default object"
    );
    ensure(client, object).await
}

/// Creates an object unless one of its name is there.
async fn ensure(client: &Client, object: serde_json::Value) -> anyhow::Result<()> {
    let kind = kind_of(client, &object)?;
    let (namespace, name) = name_of(&object);
    if client.get(&kind, &namespace, &name).await.is_ok() {
        return Ok(());
    }
    match client.create(&kind, &namespace, object).await {
        Err(error) if !error.is_already_exists() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Creates a ConfigMap, or makes the one of its name look like it. One that does is not written: the webhooks of the cluster are
/// called for a write, and may be away until this server serves.
async fn replace(client: &Client, object: serde_json::Value) -> anyhow::Result<()> {
    let kind = kind_of(client, &object)?;
    let (namespace, name) = name_of(&object);
    if let Ok(known) = client.get(&kind, &namespace, &name).await
        && known.value().get("data") == object.get("data")
    {
        return Ok(());
    }
    match client.create(&kind, &namespace, object.clone()).await {
        Err(error) if error.is_already_exists() => {
            client.update(&kind, &namespace, &name, "", object).await?;
            Ok(())
        }
        other => Ok(other.map(|_| ())?),
    }
}
