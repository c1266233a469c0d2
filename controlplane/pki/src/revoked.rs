//! The list of nodes whose older certificates are rejected.

use coracle_fields::Schema as _;
use coracle_fields::core::v1::ConfigMap;
use serde_json::Value;

/// Where revoked nodes stand, in `kube-system`: node name to the time since when its certificates count.
pub const REVOKED: &str = "coracle-revoked-nodes";

/// Since when certificates of a node count again, in seconds since 1970, when the list (the ConfigMap [`REVOKED`]) has it.
pub fn revoked(list: &Value, node: &str) -> Option<i64> {
    let since = ConfigMap::of(list).data().key(node).get()?;
    // A time that cannot be read revokes for good.
    Some(since.parse::<jiff::Timestamp>().map_or(i64::MAX, |time| time.as_second()))
}
