//! The bridge's configuration.

use serde::Deserialize;

use crate::protocol::{Call, Error, Result, code};

/// A network made by a bridge.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    /// Name of the bridge.
    pub bridge: String,
    /// The bridge has the gateway's address.
    pub is_gateway: bool,
    /// The container's default route goes over it.
    pub is_default_gateway: bool,
    /// An address of the bridge that is not the gateway's is removed instead of being an error.
    pub force_address: bool,
    /// What leaves the network is masqueraded.
    pub ip_masq: bool,
    /// Largest packet; 0 for the default.
    pub mtu: u32,
    /// A container reaches itself over the bridge.
    pub hairpin_mode: bool,
    /// The bridge receives everything.
    pub promisc_mode: bool,
    /// Ports do not reach each other.
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
            return Err(Error::config("cannot set hairpin mode and promiscuous mode at the same time"));
        }
        let unsupported = [
            ("vlan", config.vlan != 0),
            ("vlanTrunk", !config.vlan_trunk.is_empty()),
            ("macspoofchk", config.macspoofchk),
            ("disableContainerInterface", config.disable_container_interface),
        ];
        if let Some((field, _)) = unsupported.iter().find(|(_, set)| *set) {
            return Err(Error::new(code::UNSUPPORTED_FIELD, format!("field {field:?} is not supported")));
        }
        if config.bridge.is_empty() || config.bridge.len() > 15 {
            return Err(Error::config(format!("invalid bridge name {:?}", config.bridge)));
        }
        if config.is_default_gateway {
            config.is_gateway = true;
        }
        config.mac_by_environment = call.args.get("MAC").cloned();
        Ok(config)
    }

    /// The hardware address asked for; the runtime's word counts most.
    pub fn mac(&self) -> Result<Option<[u8; 6]>> {
        let given =
            [Some(&self.runtime_config.mac), Some(&self.args.cni.mac), self.mac_by_environment.as_ref()];
        let Some(text) = given.into_iter().flatten().find(|text| !text.is_empty()) else { return Ok(None) };
        let parts: Vec<u8> = text.split(':').filter_map(|part| u8::from_str_radix(part, 16).ok()).collect();
        let mac =
            <[u8; 6]>::try_from(parts).map_err(|_| Error::config(format!("invalid MAC address {text:?}")))?;
        Ok(Some(mac))
    }
}
