//! What `version` prints: the version of the program, what it was built from, and the version of Kubernetes.

use crate::output::Output;
use serde::Serialize;
use std::io;

/// Options of the command `version`.
#[derive(Debug, Clone, clap::Args)]
pub struct VersionArgs {
    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// The version of a program. Commit and date are those that the build was told, such as by `scripts/package`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// Name of the program.
    pub program: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Version of Kubernetes whose API it speaks.
    pub kubernetes_version: &'static str,
    /// The commit it was built from.
    pub commit: Option<&'static str>,
    /// When it was built.
    pub build_date: Option<&'static str>,
    /// Operating system and architecture, as in images.
    pub platform: String,
}

/// The version of the program that uses it: name, version and build are those of its crate.
#[macro_export]
macro_rules! version {
    ($kubernetes:expr) => {
        $crate::version::Version {
            program: env!("CARGO_BIN_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            kubernetes_version: $kubernetes,
            commit: option_env!("CORACLE_COMMIT"),
            build_date: option_env!("CORACLE_BUILD_DATE"),
            platform: $crate::version::platform(),
        }
    };
}

/// Operating system and architecture, as in images: `linux/amd64`.
pub fn platform() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{architecture}", std::env::consts::OS)
}

impl Version {
    /// Prints it.
    pub fn print(&self, args: &VersionArgs) -> io::Result<()> {
        args.output.print(self, || self.text())
    }

    fn text(&self) -> String {
        let commit = match (self.commit, self.build_date) {
            (Some(commit), Some(date)) => format!("{commit}, built {date}"),
            (Some(commit), None) => commit.to_owned(),
            (None, _) => "not recorded in this build".to_owned(),
        };
        format!(
            "{} {}\nKubernetes: {}\ncommit:     {commit}\nplatform:   {}\n",
            self.program, self.version, self.kubernetes_version, self.platform
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_without_a_commit_say_so() {
        let mut version = Version {
            program: "coracle",
            version: "0.1.0",
            kubernetes_version: "v1.36.0",
            commit: None,
            build_date: None,
            platform: "linux/amd64".into(),
        };
        let lines = "coracle 0.1.0\nKubernetes: v1.36.0\ncommit:     not recorded in this build\nplatform:   linux/amd64\n";
        assert_eq!(version.text(), lines);
        (version.commit, version.build_date) = (Some("5fc2e19"), Some("2026-11-18T02:40:34Z"));
        assert!(version.text().contains("commit:     5fc2e19, built 2026-11-18T02:40:34Z\n"));
        assert!(
            serde_json::to_string(&version)
                .is_ok_and(|text| text.contains("\"kubernetesVersion\":\"v1.36.0\""))
        );
    }
}
