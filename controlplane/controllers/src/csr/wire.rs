//! Certificate signing requests as the API has them.

use coracle_informer::conditions::Condition;
use serde::Deserialize;
use serde_json::Value;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Wire {
    pub(super) metadata: Meta,
    pub(super) spec: Spec,
    pub(super) status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Meta {
    pub(super) creation_timestamp: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    pub(super) request: String,
    pub(super) signer_name: String,
    pub(super) usages: Vec<String>,
    pub(super) expiration_seconds: Option<u64>,
    pub(super) username: String,
    pub(super) uid: String,
    pub(super) groups: Vec<String>,
    pub(super) extra: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) certificate: String,
    pub(super) conditions: Vec<Condition>,
}
