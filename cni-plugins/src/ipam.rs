//! Delegation to an IPAM plugin: host-local runs in this process, others are executed.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::{Command, ExitStatus, Stdio},
};

use serde_json::Value;

use crate::{
    hostlocal::HostLocal,
    protocol::{Call, Error, NetResult, Plugin, Result, code},
};

/// Why an executed IPAM plugin returned no usable result.
#[derive(Debug, thiserror::Error)]
pub enum IpamError {
    /// A result without addresses.
    #[error("IPAM plugin returned missing IP config")]
    NoAddresses,
    /// The executable cannot be run.
    #[error("{}", path.display())]
    Run {
        /// The executable.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It failed without printing an error.
    #[error("{kind} failed without an error message: {status}")]
    Silent {
        /// The plugin's type.
        kind: String,
        /// How it ended.
        status: ExitStatus,
    },
}

impl From<IpamError> for Error {
    fn from(error: IpamError) -> Self {
        let code = match error {
            IpamError::Run { .. } => code::IO,
            IpamError::NoAddresses | IpamError::Silent { .. } => code::INTERNAL,
        };
        Error::of(code, &error)
    }
}

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

    /// Allocates addresses.
    pub fn add(&self, call: &Call) -> Result<NetResult> {
        let result = match self {
            Ipam::None => return Ok(NetResult::default()),
            Ipam::HostLocal => HostLocal.add(call)?,
            Ipam::Exec(kind) => NetResult::parse(&delegate(call, kind, "ADD")?)?,
        };
        match result.ips.is_empty() {
            true => Err(IpamError::NoAddresses.into()),
            false => Ok(result),
        }
    }

    /// Releases the addresses.
    pub fn del(&self, call: &Call) -> Result<()> {
        match self {
            Ipam::None => Ok(()),
            Ipam::HostLocal => HostLocal.del(call),
            Ipam::Exec(kind) => delegate(call, kind, "DEL").map(drop),
        }
    }

    /// Checks that the addresses are still allocated.
    pub fn check(&self, call: &Call) -> Result<()> {
        match self {
            Ipam::None => Ok(()),
            Ipam::HostLocal => HostLocal.check(call),
            Ipam::Exec(kind) => delegate(call, kind, "CHECK").map(drop),
        }
    }

    /// Releases all addresses but those of valid attachments.
    pub fn gc(&self, call: &Call) -> Result<()> {
        match self {
            Ipam::None => Ok(()),
            Ipam::HostLocal => HostLocal.gc(call),
            Ipam::Exec(kind) => delegate(call, kind, "GC").map(drop),
        }
    }

    /// Checks that the plugin can serve ADD.
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
    let failed = |source| IpamError::Run { path: path.clone(), source };
    let mut child = Command::new(&path)
        .env("CNI_COMMAND", command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A plugin that does not read its input reports that by its exit status.
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
            Err(IpamError::Silent { kind: kind.to_owned(), status: output.status }.into())
        }
        message => Err(Error { code: number.unwrap_or(code::INTERNAL), message, details: text("details") }),
    }
}
