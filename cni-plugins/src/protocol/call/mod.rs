//! The environment and stdin of one call.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

// Errors.
mod error;

pub use self::error::CallError;
use super::{NetResult, Result, VERSIONS};
use crate::netns::Netns;

/// One call of a plugin.
#[derive(Debug, Clone, Default)]
pub struct Call {
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_NETNS`; empty when the runtime no longer has it.
    pub netns: PathBuf,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_ARGS`, `K=V` joined by `;`.
    pub args: BTreeMap<String, String>,
    /// `CNI_PATH`.
    pub path: Vec<PathBuf>,
    /// The version of the configuration and of the answer.
    pub version: String,
    /// The network's name.
    pub network: String,
    /// Stdin.
    pub config: Value,
}

/// An attachment that GC must keep.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
pub struct Attachment {
    /// The container.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// Its interface.
    pub ifname: String,
}

impl Call {
    /// Reads a call for `command` from `var` (the environment) and `stdin`.
    pub fn read(command: &str, var: impl Fn(&str) -> Option<String>, stdin: &[u8]) -> Result<Self> {
        let per_container = matches!(command, "ADD" | "DEL" | "CHECK");
        let needed: &[&'static str] = match command {
            "ADD" | "CHECK" => &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"],
            "DEL" => &["CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"],
            _ => &["CNI_PATH"],
        };
        let given = |name: &str| var(name).unwrap_or_default();
        let names: Vec<&'static str> = needed.iter().copied().filter(|name| given(name).is_empty()).collect();
        if !names.is_empty() {
            return Err(CallError::Missing { names }.into());
        }
        let config: Value = serde_json::from_slice(stdin).map_err(CallError::Syntax)?;
        let text = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let call = Call {
            container_id: given("CNI_CONTAINERID"),
            netns: given("CNI_NETNS").into(),
            ifname: given("CNI_IFNAME"),
            args: parse_args(&given("CNI_ARGS"))?,
            path: std::env::split_paths(&given("CNI_PATH")).collect(),
            version: text("cniVersion"),
            network: text("name"),
            config,
        };
        if per_container {
            valid_container_id(&call.container_id)?;
            valid_ifname(&call.ifname)?;
        }
        if !VERSIONS.contains(&call.version.as_str()) {
            return Err(CallError::Version { version: call.version }.into());
        }
        valid_network_name(&call.network)?;
        Ok(call)
    }

    /// The configuration as a plugin's own type.
    pub fn config_as<T: DeserializeOwned>(&self) -> Result<T> {
        Ok(T::deserialize(&self.config).map_err(CallError::Config)?)
    }

    /// The result of the plugins before, or of the ADD that CHECK and DEL are about.
    pub fn prev_result(&self) -> Result<Option<NetResult>> {
        match self.config.get("prevResult") {
            None | Some(Value::Null) => Ok(None),
            Some(value) => NetResult::parse(value).map(Some),
        }
    }

    /// As [`Call::prev_result`], for what makes no sense without one.
    pub fn required_prev_result(&self) -> Result<NetResult> {
        Ok(self.prev_result()?.ok_or(CallError::NoPrevResult)?)
    }

    /// The container's network namespace.
    pub fn open_netns(&self) -> Result<Netns> {
        let failed = |source| CallError::Netns { path: self.netns.clone(), source };
        Ok(Netns::open(&self.netns).map_err(failed)?)
    }

    /// The attachments GC keeps.
    pub fn valid_attachments(&self) -> Result<Vec<Attachment>> {
        let list = self.config.get("cni.dev/valid-attachments").or(self.config.get("cni.dev/attachments"));
        match list {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(list) => Ok(Vec::deserialize(list).map_err(CallError::Attachments)?),
        }
    }

    /// The executable of a delegated plugin.
    pub fn find_plugin(&self, kind: &str) -> Result<PathBuf> {
        let found = self.path.iter().map(|dir| dir.join(kind)).find(|path| Path::is_file(path));
        match found {
            Some(path) if !kind.is_empty() && !kind.contains('/') => Ok(path),
            _ => Err(CallError::NoPlugin { kind: kind.to_owned(), path: self.path.clone() }.into()),
        }
    }
}

fn parse_args(text: &str) -> Result<BTreeMap<String, String>, CallError> {
    let pairs = text.split(';').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| match pair.split_once('=') {
            Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
            None => Err(CallError::Args { pair: pair.to_owned() }),
        })
        .collect()
}

fn valid_container_id(id: &str) -> Result<(), CallError> {
    let good = id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
    if good {
        return Ok(());
    }
    Err(CallError::ContainerId { id: id.to_owned() })
}

fn valid_network_name(name: &str) -> Result<(), CallError> {
    if name.is_empty() {
        return Err(CallError::NoNetworkName);
    }
    let good = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
    if good { Ok(()) } else { Err(CallError::NetworkName { name: name.to_owned() }) }
}

fn valid_ifname(name: &str) -> Result<(), CallError> {
    let bad = |reason| Err(CallError::InterfaceName { name: name.to_owned(), reason });
    match name {
        "" | "." | ".." => bad("is not a name"),
        _ if name.len() > 15 => bad("is too long"),
        _ if name.contains(['/', ':']) || name.contains(char::is_whitespace) => {
            bad("contains / or : or whitespace characters")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(command: &str, env: &[(&str, &str)], stdin: &str) -> Result<Call> {
        let var = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
        Call::read(command, var, stdin.as_bytes())
    }

    const ENV: &[(&str, &str)] =
        &[("CNI_CONTAINERID", "c1"), ("CNI_NETNS", "/n"), ("CNI_IFNAME", "eth0"), ("CNI_PATH", "/a:/b")];

    fn with(name: &'static str, value: &'static str) -> Vec<(&'static str, &'static str)> {
        ENV.iter().map(|&(key, old)| (key, if key == name { value } else { old })).collect()
    }

    #[test]
    fn good_calls() {
        let mut env = ENV.to_vec();
        env.push(("CNI_ARGS", "IgnoreUnknown=1;IP=10.0.0.7"));
        let call = read("ADD", &env, r#"{"cniVersion":"1.0.0","name":"n"}"#).unwrap();
        assert_eq!(call.args["IP"], "10.0.0.7");
        assert_eq!(call.path, [Path::new("/a"), Path::new("/b")]);
        assert!(read("DEL", &with("CNI_NETNS", ""), r#"{"cniVersion":"0.3.1","name":"n"}"#).is_ok());
        assert!(read("GC", &[("CNI_PATH", "/a")], r#"{"cniVersion":"1.1.0","name":"n"}"#).is_ok());
    }

    #[test]
    fn bad_calls_have_the_codes_of_the_spec() {
        let conf = r#"{"cniVersion":"1.0.0","name":"n"}"#;
        for (env, stdin, code, message) in [
            (with("CNI_NETNS", ""), conf, 4, "[CNI_NETNS] missing"),
            (with("CNI_CONTAINERID", "../x"), conf, 4, "containerID"),
            (with("CNI_IFNAME", "seventeen-letters"), conf, 4, "too long"),
            (with("CNI_IFNAME", "a/b"), conf, 4, "contains /"),
            (ENV.to_vec(), "{", 6, "failed to parse"),
            (ENV.to_vec(), r#"{"cniVersion":"9.9.9","name":"n"}"#, 1, "incompatible"),
            (ENV.to_vec(), r#"{"name":"n"}"#, 1, "incompatible"),
            (ENV.to_vec(), r#"{"cniVersion":"1.0.0"}"#, 7, "missing network name"),
            (ENV.to_vec(), r#"{"cniVersion":"1.0.0","name":"../n"}"#, 7, "network name"),
        ] {
            let error = read("ADD", &env, stdin).unwrap_err();
            assert_eq!(error.code, code, "{error}");
            assert!(error.message.contains(message), "{error}");
        }
    }
}
