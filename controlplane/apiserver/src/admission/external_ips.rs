//! DenyServiceExternalIPs: rejects new `externalIPs` of Services.

use super::{Attributes, Operation, Phase, Plugin};
use async_trait::async_trait;
use coracle_fields::Schema as _;
use coracle_fields::core::v1::Service;
use coracle_proto::status::ApiError;
use serde_json::Value;

/// The plugin.
pub struct DenyServiceExternalIps;

#[async_trait]
impl Plugin for DenyServiceExternalIps {
    fn name(&self) -> &'static str {
        "DenyServiceExternalIPs"
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Validate && at.writes() && at.is("", "services")
    }

    async fn validate(&self, at: &mut Attributes<'_>, service: &Value) -> Result<(), ApiError> {
        if !at.is("", "services") || !matches!(at.operation, Operation::Create | Operation::Update) {
            return Ok(());
        }
        let addresses = |service: &Value| Service::of(service).spec().external_ips().to_values();
        let had = at.old.map(addresses).unwrap_or_default();
        if addresses(service).iter().all(|address| had.contains(address)) {
            return Ok(());
        }
        Err(at.forbidden("Use of external IPs is denied by admission control"))
    }
}
