//! Where a node's agent is, as its Node object says.

use coracle_fields::View;
use coracle_fields::core::v1::Node;
use std::time::Duration;

/// A node that has just joined gets its certificate within moments; requests wait for it.
const JOINED_RECENTLY: Duration = Duration::from_secs(60);
/// The agent's port when the Node does not say.
const PORT: u16 = 10250;

/// Why a Node does not say where its agent is.
#[derive(Debug, thiserror::Error)]
pub enum AgentAddressError {
    /// It has no address.
    #[error("no preferred addresses found for node {0}")]
    NoAddress(String),
    /// Its port is none.
    #[error("node {node} has no port {port}")]
    Port {
        /// The node.
        node: String,
        /// What it says.
        port: String,
    },
}

/// Host and port of a node's agent, as the Node says.
pub(super) fn agent_address(node: &str, object: View<'_, Node>) -> Result<(String, u16), AgentAddressError> {
    let status = object.status();
    let find =
        |kind: &str| status.addresses().items().find(|a| a.type_() == kind).and_then(|a| a.address().get());
    let host = find("InternalIP").or_else(|| find("ExternalIP")).or_else(|| find("Hostname"));
    let host = host.ok_or_else(|| AgentAddressError::NoAddress(node.into()))?;
    let port = status.daemon_endpoints().kubelet_endpoint().port();
    let port = match port.int() {
        None if !port.is_set() => PORT,
        Some(number) if number <= 0 => PORT,
        number => number.and_then(|number| u16::try_from(number).ok()).ok_or_else(|| {
            AgentAddressError::Port { node: node.into(), port: port.to_value().to_string() }
        })?,
    };
    Ok((host.to_owned(), port))
}

/// Whether a node joined so recently that its certificate may not be issued yet.
pub(super) fn joined_recently(object: View<'_, Node>) -> bool {
    let created = object.metadata().creation_timestamp().text();
    let created = created.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second);
    jiff::Timestamp::now().as_second() - created < JOINED_RECENTLY.as_secs() as i64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_fields::Schema as _;
    use serde_json::{Value, json};

    #[test]
    fn a_node_says_where_its_agent_is() {
        let at = |port: Value| {
            let address =
                json!([{"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": "192.0.2.1"}]);
            let ports = json!({"kubeletEndpoint": {"Port": port}});
            let object = json!({"status": {"addresses": address, "daemonEndpoints": ports}});
            agent_address("n", Node::of(&object))
        };
        for (port, expected) in
            [(json!(1234), 1234), (json!(0), PORT), (json!(-1), PORT), (Value::Null, PORT)]
        {
            assert_eq!(at(port).unwrap(), ("192.0.2.1".to_owned(), expected));
        }
        for port in [json!(65_536), json!(75_786), json!("10250")] {
            assert!(matches!(at(port), Err(AgentAddressError::Port { .. })));
        }
        assert!(matches!(agent_address("n", Node::of(&json!({}))), Err(AgentAddressError::NoAddress(_))));
        let now = jiff::Timestamp::now().to_string();
        let joined = |at: &str| {
            let object = json!({"metadata": {"creationTimestamp": at}});
            joined_recently(Node::of(&object))
        };
        assert!(joined(&now) && !joined("2020-01-01T00:00:00Z"));
    }
}
