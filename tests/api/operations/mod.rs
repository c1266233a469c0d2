//! Commands of operators against a real server: status, certificates, copies of the store, keys of encryption at rest.

// `coracle status`.
mod status;
// `coracle certificate check` and `rotate`.
mod certificates;
// `coracle store copy`.
mod store_copy;
// `coracle secrets-encrypt`.
mod encryption;

use coracle_tests::program;
use coracle_tests::server::Server;
use serde_json::Value;
use std::process::Command;

/// What a command printed, and whether it succeeded.
struct Said {
    ok: bool,
    out: String,
    err: String,
}

impl Said {
    /// What a successful command printed as JSON.
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }

    /// The problems that it found.
    fn problems(&self) -> Vec<String> {
        let json = self.json();
        json["problems"].as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
    }
}

/// Runs `coracle` with the data directory of a server.
fn coracle(server: &Server, args: &[&str]) -> Said {
    let mut command = Command::new(program("coracle"));
    command.args(args).env("CORACLE_DATA_DIR", server.data_dir());
    let output = command.output().unwrap();
    Said {
        ok: output.status.success(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The same, which has to succeed.
fn well(server: &Server, args: &[&str]) -> Said {
    let said = coracle(server, args);
    assert!(said.ok, "{args:?}: {}{}", said.out, said.err);
    said
}
