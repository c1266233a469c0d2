//! Executes a plugin.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Stdio,
};

use coracle_trace::{Stage, tracked};
use serde_json::Value;
use tokio::{io::AsyncWriteExt, process::Command};

use super::{Error, Result};

/// The verbs of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Attaches a container.
    Add,
    /// Detaches a container; idempotent.
    Del,
    /// Verifies the attachment.
    Check,
    /// Removes everything but the listed attachments.
    Gc,
    /// Whether the plugin can serve ADD.
    Status,
}

impl Verb {
    fn command(self) -> &'static str {
        match self {
            Verb::Add => "ADD",
            Verb::Del => "DEL",
            Verb::Check => "CHECK",
            Verb::Gc => "GC",
            Verb::Status => "STATUS",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Verb::Add => "add",
            Verb::Del => "delete",
            Verb::Check => "check",
            Verb::Gc => "gc",
            Verb::Status => "status",
        }
    }
}

/// The environment of one call.
#[derive(Debug, Clone, Default)]
pub struct CallArgs {
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_NETNS`; empty when it is gone.
    pub netns: PathBuf,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_ARGS`, `K=V` joined by `;`.
    pub args: String,
}

/// Runs `plugin` of `network` with `config` on stdin; its stdout as JSON, `Null` when there is none.
///
/// If the returned future is dropped, the plugin is killed and the caller must run DEL.
pub async fn run(
    dirs: &[PathBuf],
    network: &str,
    verb: Verb,
    args: &CallArgs,
    config: &Value,
) -> Result<Value> {
    let plugin = config.get("type").and_then(Value::as_str).unwrap_or_default();
    let name = format!("{plugin} {}", verb.command());
    tracked(Stage::CniPlugin, &name, Box::pin(call(dirs, network, verb, args, config))).await
}

async fn call(dirs: &[PathBuf], network: &str, verb: Verb, args: &CallArgs, config: &Value) -> Result<Value> {
    let plugin = config.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let path = find(dirs, &plugin)?;
    let spawn_error = |source| Error::Spawn { path: path.clone(), source };

    let mut command = Command::new(&path);
    command
        .env("CNI_COMMAND", verb.command())
        .env("CNI_PATH", join_paths(dirs))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if !matches!(verb, Verb::Gc | Verb::Status) {
        command
            .env("CNI_CONTAINERID", &args.container_id)
            .env("CNI_NETNS", &args.netns)
            .env("CNI_IFNAME", &args.ifname)
            .env("CNI_ARGS", &args.args);
    }
    let mut child = command.spawn().map_err(spawn_error)?;
    let mut stdin = child.stdin.take();
    let bytes = config.to_string();
    let feed = async move {
        // A plugin may exit without reading its input; its exit status decides.
        if let Some(stdin) = &mut stdin {
            let _ = stdin.write_all(bytes.as_bytes()).await;
        }
        drop(stdin);
    };
    let ((), output) = tokio::join!(feed, child.wait_with_output());
    let output = output.map_err(spawn_error)?;

    let answer: Option<Value> = serde_json::from_slice(&output.stdout).ok();
    if output.status.success() {
        let blank = output.stdout.iter().all(u8::is_ascii_whitespace);
        return match answer {
            Some(answer) => Ok(answer),
            None if blank => Ok(Value::Null),
            None => Err(Error::Plugin {
                plugin,
                network: network.to_owned(),
                verb: verb.word(),
                code: 6,
                message: "the result is not JSON".into(),
            }),
        };
    }
    let text =
        |key: &str| answer.as_ref().and_then(|a| a.get(key)).and_then(Value::as_str).unwrap_or_default();
    let code = answer.as_ref().and_then(|a| a.get("code")).and_then(Value::as_u64).unwrap_or(0);
    let mut message = match (text("msg"), text("details")) {
        ("", _) => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            format!("netplugin failed with no error message: {} {}", output.status, stderr.trim())
        }
        (msg, "") => msg.to_owned(),
        (msg, details) => format!("{msg}; {details}"),
    };
    message = message.chars().take(4096).collect();
    Err(Error::Plugin {
        plugin,
        network: network.to_owned(),
        verb: verb.word(),
        code: u32::try_from(code).unwrap_or(999),
        message,
    })
}

pub(super) fn find(dirs: &[PathBuf], plugin: &str) -> Result<PathBuf> {
    let missing = || Error::PluginMissing { plugin: plugin.to_owned(), dirs: dirs.to_vec() };
    if plugin.is_empty() || plugin.contains('/') {
        return Err(missing());
    }
    dirs.iter().map(|dir| dir.join(plugin)).find(|path| Path::is_file(path)).ok_or_else(missing)
}

fn join_paths(dirs: &[PathBuf]) -> OsString {
    std::env::join_paths(dirs).unwrap_or_default()
}
