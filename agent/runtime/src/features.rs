//! features: what this runtime can do, as the runtime specification has it.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};

use super::error::Error;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Features {
    oci_version_min: &'static str,
    oci_version_max: &'static str,
    hooks: [&'static str; 6],
    linux: Value,
    annotations: Value,
}

/// `features`.
pub fn print() -> Result<(), Error> {
    let features = Features {
        oci_version_min: "1.0.0",
        oci_version_max: oci_spec::runtime::VERSION,
        hooks: ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"],
        linux: json!({
            "namespaces": ["cgroup", "ipc", "mount", "network", "pid", "time", "user", "uts"],
            "cgroup": { "v1": false, "v2": true, "systemd": false, "systemdUser": false, "rdma": false },
            "seccomp": { "enabled": true, "supportedFlags": [
                "SECCOMP_FILTER_FLAG_TSYNC", "SECCOMP_FILTER_FLAG_SPEC_ALLOW", "SECCOMP_FILTER_FLAG_LOG"] },
            "apparmor": { "enabled": true },
            "selinux": { "enabled": true },
        }),
        annotations: json!({ "io.coracle.runtime.version": env!("CARGO_PKG_VERSION") }),
    };
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &features).map_err(Error::json("standard output"))?;
    writeln!(out).map_err(Error::file("standard output"))
}
