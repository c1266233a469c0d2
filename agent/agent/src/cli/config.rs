//! `coracle-agent config validate`: checks a configuration file without starting anything.

use super::{Cli, Command};
use clap::{Args, CommandFactory as _, Parser as _, Subcommand};
use coracle_cli::config_file;
use coracle_cli::output::Output;
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Checks of configuration files.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Check a file as `run --config FILE` reads it: syntax, names and values of options, and files that they name.
    Validate {
        /// The file.
        #[arg(default_value = "/etc/coracle/agent.yaml")]
        file: PathBuf,
        /// Format of the output.
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
}

/// What `coracle config validate` says of a file, too.
#[derive(Debug, Serialize)]
struct Checked<'a> {
    file: &'a Path,
    role: &'static str,
    /// What is wrong; none if the file is valid.
    problem: Option<String>,
}

/// Why a file is not valid.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read, or has options that there are not.
    #[error(transparent)]
    File(#[from] config_file::Error),
    /// An option has a value that it does not take or that contradicts another, or is missing.
    #[error("{0}")]
    Value(String),
}

impl ConfigArgs {
    /// Runs the subcommand. In text, what is wrong with the file is an error.
    pub fn run(self) -> anyhow::Result<()> {
        let Verb::Validate { file, output } = self.verb;
        let problem = match validate(&file) {
            Err(error) if output == Output::Text => return Err(error.into()),
            Err(error) => Some(coracle_cli::causes::chain(&error)),
            Ok(()) => None,
        };
        let wrong = problem.is_some();
        let checked = [Checked { file: &file, role: "agent", problem }];
        output.print(&checked, || format!("{}: valid\n", file.display()))?;
        if wrong {
            std::process::exit(1);
        }
        Ok(())
    }
}

fn validate(file: &Path) -> Result<(), ConfigError> {
    let mut command = Cli::command();
    command.build();
    let words: Vec<OsString> = ["coracle-agent".into(), "run".into(), "--config".into(), file.into()].into();
    let words = match command.find_subcommand("run") {
        Some(run) => config_file::expand(words, run)?,
        None => words,
    };
    match Cli::try_parse_from(words) {
        Ok(Cli { command: Command::Run(options) }) => {
            options.check().map_err(|error| ConfigError::Value(format!("{error:#}")))
        }
        Ok(_) => Ok(()),
        Err(error) => {
            let text = error.to_string();
            // Without the usage, which is about the command line.
            let lines =
                text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
            let lines: Vec<&str> = lines.map(str::trim).filter(|line| !line.is_empty()).collect();
            Err(ConfigError::Value(lines.join(" ").trim_start_matches("error: ").to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_is_read_as_run_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agent.yaml");
        let kubeconfig = dir.path().join("kubeconfig");
        let admin = "{clusters: [{name: c, cluster: {server: 'https://h', insecure-skip-tls-verify: true}}],
            users: [{name: u, user: {token: t}}], contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}";
        std::fs::write(&kubeconfig, admin).unwrap();
        let check = |text: &str| {
            std::fs::write(&file, format!("kubeconfig: {}\n{text}\n", kubeconfig.display())).unwrap();
            validate(&file).map_err(|error| error.to_string())
        };
        assert_eq!(check("nodeName: a\nnodeIp: [10.0.0.1]"), Ok(()));
        assert!(check("nodename: a").unwrap_err().contains("there is no option nodename"));
        // Names that kubelets have for options.
        for (option, known) in [
            ("cpuCFSQuotaPeriod: 20ms", "cpuCFSQuotaPeriod; the closest that exists is cpuCfsQuotaPeriod"),
            ("cpuCFSQuota: false", "cpuCFSQuota; the closest that exists is cpuCfsQuota"),
            (
                "crashLoopBackOff: {maxContainerRestartPeriod: 30s}",
                "crashLoopBackOff; the closest that exists is crashLoopBackOffMax",
            ),
        ] {
            let error = check(option).unwrap_err();
            assert!(error.ends_with(&format!("there is no option {known}")), "{error}");
        }
        let error = check("network: carrier-pigeons").unwrap_err();
        assert!(
            error.contains("carrier-pigeons") && error.contains("--network") && !error.contains("Usage"),
            "{error}"
        );
        for (options, wrong) in [
            ("featureGates: [SidecarContainers=true, Bogus=true]", "unrecognized feature gate: Bogus"),
            ("evictionSoft: memory.available<500Mi", "--eviction-soft: memory.available has no grace period"),
            ("featureGates: {SidecarContainers: true, Bogus: true}", "unrecognized feature gate: Bogus"),
            (
                "shutdownGracePeriodCriticalPods: 5",
                "5 must not be more than --shutdown-grace-period, which is 0",
            ),
            (
                "cpuManagerPolicyOptions: {full-pcpus-only: true}",
                "--cpu-manager-policy-options: the policy none has no options",
            ),
            (
                "cpuManagerPolicy: static\ncpuManagerPolicyOptions: {align-by-socket: true}",
                "--cpu-manager-policy-options: align-by-socket is an alpha option",
            ),
            (
                "topologyManagerPolicyOptions: {max-allowable-numa-nodes: 4}",
                "--topology-manager-policy-options: max-allowable-numa-nodes=4: not a number from 8 on",
            ),
            ("shutdownInhibitor: true", "--shutdown-inhibitor: pods have no time to end"),
            ("imageGcLowThreshold: 90", "--image-gc-low-threshold: 90 must be less"),
            ("nodeName: A_B", "--node-name: \"A_B\" cannot be the name of a node"),
            ("clientCaFile: /none.crt", "--client-ca-file /none.crt: No such file"),
        ] {
            let error = check(options).unwrap_err();
            assert!(error.contains(wrong), "{error}");
        }
        std::fs::write(&kubeconfig, admin.replace("user: u", "user: v")).unwrap();
        let error = check("nodeName: a").unwrap_err();
        assert!(error.contains("user \"v\" was not found for context \"x\""), "{error}");
    }
}
