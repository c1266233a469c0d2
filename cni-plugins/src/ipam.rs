//! The IPAM plugin of a network: host-local in this process, any other by exec.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    hostlocal::HostLocal,
    protocol::{Call, Error, NetResult, Plugin, Result, code},
};

/// Address management as a network configuration names it.
#[derive(Debug)]
pub enum Ipam {
    /// None: a layer 2 network.
    None,
    /// In this process.
    HostLocal,
    /// Another executable.
    Exec(String),
}

impl Ipam {
    /// Of a configuration's `ipam.type`.
    pub fn of(call: &Call) -> Self {
        match call.config.pointer("/ipam/type").and_then(Value::as_str) {
            None | Some("") => Ipam::None,
            Some("host-local") => Ipam::HostLocal,
            Some(other) => Ipam::Exec(other.to_owned()),
        }
    }

    /// Takes addresses.
    pub fn add(&self, call: &Call) -> Result<NetResult> {
        let result = match self {
            Ipam::None => return Ok(NetResult::default()),
            Ipam::HostLocal => HostLocal.add(call)?,
            Ipam::Exec(kind) => NetResult::parse(&delegate(call, kind, "ADD")?)?,
        };
        match result.ips.is_empty() {
            true => Err(Error::internal("IPAM plugin returned missing IP config")),
            false => Ok(result),
        }
    }

    /// Gives them back.
    pub fn del(&self, call: &Call) -> Result<()> {
        match self {
            Ipam::None => Ok(()),
            Ipam::HostLocal => HostLocal.del(call),
            Ipam::Exec(kind) => delegate(call, kind, "DEL").map(drop),
        }
    }

    /// Still taken?
    pub fn check(&self, call: &Call) -> Result<()> {
        match self {
            Ipam::None => Ok(()),
            Ipam::HostLocal => HostLocal.check(call),
            Ipam::Exec(kind) => delegate(call, kind, "CHECK").map(drop),
        }
    }

    /// Gives back all but the valid ones.
    pub fn gc(&self, call: &Call) -> Result<()> {
        match self {
            Ipam::None => Ok(()),
            Ipam::HostLocal => HostLocal.gc(call),
            Ipam::Exec(kind) => delegate(call, kind, "GC").map(drop),
        }
    }

    /// Ready?
    pub fn status(&self, call: &Call) -> Result<()> {
        match self {
            Ipam::None => Ok(()),
            Ipam::HostLocal => HostLocal.status(call),
            Ipam::Exec(kind) => delegate(call, kind, "STATUS").map(drop),
        }
    }
}

/// Runs another plugin with our environment and configuration.
fn delegate(call: &Call, kind: &str, command: &str) -> Result<Value> {
    let path = call.find_plugin(kind)?;
    let failed = |e: std::io::Error| Error::new(code::IO, format!("{}: {e}", path.display()));
    let mut child = Command::new(&path)
        .env("CNI_COMMAND", command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A plugin that does not read says so by its exit.
        let _ = stdin.write_all(call.config.to_string().as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    if output.status.success() {
        return Ok(answer);
    }
    let text = |key: &str| answer.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let number = answer.get("code").and_then(Value::as_u64).and_then(|c| u32::try_from(c).ok());
    match text("msg") {
        message if message.is_empty() => {
            Err(Error::internal(format!("{kind} failed without an error message: {}", output.status)))
        }
        message => Err(Error { code: number.unwrap_or(code::INTERNAL), message, details: text("details") }),
    }
}
