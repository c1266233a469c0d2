//! The heartbeat: a Lease that is renewed every ten seconds.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use std::time::Duration;

/// How often it is renewed.
pub const PERIOD: Duration = Duration::from_secs(10);
const LIFE_SECONDS: i32 = 40;

/// Renews the lease, or makes it.
pub async fn renew(client: &kube::Client, node: &str, node_uid: Option<&str>) -> Result<(), kube::Error> {
    let api: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let spec = LeaseSpec {
        holder_identity: Some(node.into()),
        lease_duration_seconds: Some(LIFE_SECONDS),
        renew_time: Some(MicroTime(Timestamp::now())),
        ..LeaseSpec::default()
    };
    let patch = json!({"spec": spec});
    match api.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        other => return other.map(|_| ()),
    }
    let owner = node_uid.map(|uid| OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: node.into(),
        uid: uid.into(),
        ..OwnerReference::default()
    });
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(node.into()),
            namespace: Some("kube-node-lease".into()),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
    };
    api.create(&PostParams::default(), &lease).await.map(|_| ())
}
