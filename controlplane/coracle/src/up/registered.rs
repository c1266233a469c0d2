//! The registry of a cluster: what `--registry` says, and what is stored between runs.

use super::process::Process;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// A value of `--registry`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistryArg {
    /// No registry any more. Its images stay on disk.
    Off,
    /// A registry at this port.
    Port(u16),
}

/// Why a text is no value of `--registry`.
#[derive(Debug, thiserror::Error)]
#[error("want a port from 1 to 65535, or `off`")]
pub struct RegistryArgError;

impl FromStr for RegistryArg {
    type Err = RegistryArgError;

    fn from_str(text: &str) -> Result<Self, RegistryArgError> {
        match text {
            "off" => Ok(Self::Off),
            port => port.parse::<u16>().ok().filter(|port| *port > 0).map(Self::Port).ok_or(RegistryArgError),
        }
    }
}

/// The registry of a cluster, stored between runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registry {
    /// Port on the loopback of this machine.
    pub port: u16,
    /// Keeps the program running.
    #[serde(default)]
    pub process: Option<Process>,
    /// Keeps the forwarder running.
    #[serde(default)]
    pub forwarder: Option<Process>,
}

impl Registry {
    /// One that does not run yet.
    pub fn at(port: u16) -> Self {
        Self { port, process: None, forwarder: None }
    }

    /// The same without its processes, which have ended.
    pub fn ended(self) -> Self {
        Self::at(self.port)
    }

    /// What names of images begin with.
    pub fn host(&self) -> String {
        format!("localhost:{}", self.port)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_port_or_off() {
        assert_eq!("5001".parse::<RegistryArg>().unwrap(), RegistryArg::Port(5001));
        assert_eq!("off".parse::<RegistryArg>().unwrap(), RegistryArg::Off);
        for bad in ["", "0", "-1", "70000", "x", "on", "localhost:5000"] {
            assert!(bad.parse::<RegistryArg>().is_err(), "{bad:?}");
        }
    }
}
