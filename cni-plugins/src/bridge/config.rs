//! The bridge's configuration.

use serde::Deserialize;

use super::BridgeError;
use crate::protocol::{Call, Result};

/// A network made by a bridge.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    /// Name of the bridge.
    pub bridge: String,
    /// The bridge has the gateway's address.
    pub is_gateway: bool,
    /// The container's default route uses the bridge.
    pub is_default_gateway: bool,
    /// An address of the bridge that is not the gateway's is removed instead of being an error.
    pub force_address: bool,
    /// Masquerade traffic that leaves the network.
    pub ip_masq: bool,
    /// Largest packet; 0 for the default.
    pub mtu: u32,
    /// Hairpin mode: a container may reach itself through the bridge.
    pub hairpin_mode: bool,
    /// Promiscuous mode of the bridge.
    pub promisc_mode: bool,
    /// Port isolation.
    pub port_isolation: bool,
    vlan: u32,
    vlan_trunk: Vec<serde_json::Value>,
    macspoofchk: bool,
    disable_container_interface: bool,
    args: Args,
    runtime_config: RuntimeConfig,
    #[serde(skip)]
    mac_by_environment: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Args {
    cni: CniArgs,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct CniArgs {
    mac: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct RuntimeConfig {
    mac: String,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            bridge: "cni0".into(),
            is_gateway: false,
            is_default_gateway: false,
            force_address: false,
            ip_masq: false,
            mtu: 0,
            hairpin_mode: false,
            promisc_mode: false,
            port_isolation: false,
            vlan: 0,
            vlan_trunk: Vec::new(),
            macspoofchk: false,
            disable_container_interface: false,
            args: Args::default(),
            runtime_config: RuntimeConfig::default(),
            mac_by_environment: None,
        }
    }
}

impl Config {
    /// Reads the configuration of a call.
    pub fn of(call: &Call) -> Result<Self> {
        let mut config: Config = call.config_as()?;
        if config.hairpin_mode && config.promisc_mode {
            return Err(BridgeError::HairpinAndPromiscuous.into());
        }
        let unsupported = [
            ("vlan", config.vlan != 0),
            ("vlanTrunk", !config.vlan_trunk.is_empty()),
            ("macspoofchk", config.macspoofchk),
            ("disableContainerInterface", config.disable_container_interface),
        ];
        if let Some((field, _)) = unsupported.into_iter().find(|(_, set)| *set) {
            return Err(BridgeError::Field { field }.into());
        }
        if config.bridge.is_empty() || config.bridge.len() > 15 {
            return Err(BridgeError::Name { name: config.bridge }.into());
        }
        if config.is_default_gateway {
            config.is_gateway = true;
        }
        config.mac_by_environment = call.args.get("MAC").cloned();
        Ok(config)
    }

    /// The requested MAC address; `runtimeConfig` has precedence.
    pub fn mac(&self) -> Result<Option<[u8; 6]>, BridgeError> {
        let given =
            [Some(&self.runtime_config.mac), Some(&self.args.cni.mac), self.mac_by_environment.as_ref()];
        let Some(text) = given.into_iter().flatten().find(|text| !text.is_empty()) else { return Ok(None) };
        let parts: Vec<u8> = text.split(':').filter_map(|part| u8::from_str_radix(part, 16).ok()).collect();
        let mac = <[u8; 6]>::try_from(parts).map_err(|_| BridgeError::BadMac { text: text.clone() })?;
        Ok(Some(mac))
    }
}
