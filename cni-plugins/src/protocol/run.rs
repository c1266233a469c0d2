//! From process start to exit code.

use std::{
    io::{Read, Write},
    process::ExitCode,
};

use serde_json::{Value, json};

use super::{Call, CallError, NetResult, Result, VERSIONS, at_least};

/// What a plugin does for each verb.
pub trait Plugin {
    /// Joins a container; the result is printed.
    fn add(&self, call: &Call) -> Result<NetResult>;
    /// Takes a container out; succeeds when there is nothing left to do.
    fn del(&self, call: &Call) -> Result<()>;
    /// Fails when the attachment is not as ADD left it.
    fn check(&self, call: &Call) -> Result<()>;
    /// Removes every attachment of the network but the valid ones.
    fn gc(&self, call: &Call) -> Result<()>;
    /// Fails when ADD cannot be served.
    fn status(&self, call: &Call) -> Result<()>;
}

/// Runs a plugin for the process's environment and stdin, and prints its answer.
pub fn run(plugin: &impl Plugin) -> ExitCode {
    let command = std::env::var("CNI_COMMAND").unwrap_or_default();
    let mut stdin = Vec::new();
    let outcome = match std::io::stdin().read_to_end(&mut stdin) {
        Ok(_) => answer(plugin, &command, |name| std::env::var(name).ok(), &stdin),
        Err(e) => Err(CallError::Stdin(e).into()),
    };
    let (output, exit) = match outcome {
        Ok(Value::Null) => return ExitCode::SUCCESS,
        Ok(value) => (value, ExitCode::SUCCESS),
        Err(error) => (error.to_json(&version_of(&stdin)), ExitCode::FAILURE),
    };
    // The runtime may have closed the pipe.
    let _ = writeln!(std::io::stdout(), "{output}");
    exit
}

fn answer(
    plugin: &impl Plugin,
    command: &str,
    var: impl Fn(&str) -> Option<String>,
    stdin: &[u8],
) -> Result<Value> {
    if command == "VERSION" {
        return Ok(json!({ "cniVersion": version_of(stdin), "supportedVersions": VERSIONS }));
    }
    if !matches!(command, "ADD" | "DEL" | "CHECK" | "GC" | "STATUS") {
        let error = match command {
            "" => CallError::Missing { names: vec!["CNI_COMMAND"] },
            other => CallError::Command { command: other.to_owned() },
        };
        return Err(error.into());
    }
    let call = Call::read(command, var, stdin)?;
    let since = match command {
        "CHECK" => "0.4.0",
        "GC" | "STATUS" => "1.1.0",
        _ => "0.3.0",
    };
    if !at_least(&call.version, since) {
        let (command, version) = (command.to_owned(), call.version);
        return Err(CallError::TooOld { command, version, since }.into());
    }
    let silent = |outcome: Result<()>| outcome.map(|()| Value::Null);
    match command {
        "ADD" => plugin.add(&call).map(|result| result.to_json(&call.version)),
        "DEL" => silent(plugin.del(&call)),
        "CHECK" => silent(plugin.check(&call)),
        "GC" => silent(plugin.gc(&call)),
        _ => silent(plugin.status(&call)),
    }
}

/// The version in the configuration, for errors before the call is parsed.
fn version_of(stdin: &[u8]) -> String {
    let config: Value = serde_json::from_slice(stdin).unwrap_or_default();
    let given = config.get("cniVersion").and_then(Value::as_str).filter(|v| VERSIONS.contains(v));
    given.unwrap_or("1.1.0").to_owned()
}
