//! `coracle config`: checks configuration files without starting anything.

use crate::authentication;
use crate::config::ServerArgs;
use crate::output::Output;
use crate::up::program_beside;
use anyhow::{Context as _, bail};
use clap::{ArgMatches, Args, FromArgMatches as _, Subcommand, ValueEnum};
use coracle_cli::causes;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where `install` puts configuration files.
const DIRECTORY: &str = "/etc/coracle";

/// Options of `coracle config`.
#[derive(Debug, Clone, Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Clone, Subcommand)]
enum ConfigCommand {
    /// Check configuration files: syntax, names and values of options. Exits with 1 if one of them is wrong.
    Validate(ValidateArgs),
}

#[derive(Debug, Clone, Args)]
struct ValidateArgs {
    /// Files to check; without any, those of /etc/coracle.
    files: Vec<PathBuf>,
    /// Program that reads the files; by default the agent for those whose name begins with "agent".
    #[arg(long, value_enum)]
    role: Option<Role>,
    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// The program that reads a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    /// `coracle server`.
    Server,
    /// `coracle-agent run`.
    Agent,
}

#[derive(Debug, Serialize)]
struct Checked {
    file: PathBuf,
    role: Role,
    /// What is wrong; none if the file is valid.
    problem: Option<String>,
}

/// Runs `coracle config`; whether all files are valid.
pub fn run(args: &ConfigArgs) -> anyhow::Result<bool> {
    let ConfigCommand::Validate(args) = &args.command;
    let mut files = args.files.clone();
    if files.is_empty() {
        files = ["server.yaml", "agent.yaml"].map(|name| Path::new(DIRECTORY).join(name)).to_vec();
        files.retain(|file| file.exists());
        if files.is_empty() {
            bail!("there are no configuration files in {DIRECTORY}: name one");
        }
    }
    let checked: anyhow::Result<Vec<Checked>> =
        files.into_iter().map(|file| check(file, args.role)).collect();
    let checked = checked?;
    args.output.print(&checked, || text(&checked))?;
    Ok(checked.iter().all(|each| each.problem.is_none()))
}

fn check(file: PathBuf, role: Option<Role>) -> anyhow::Result<Checked> {
    let is_agent = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("agent"));
    let role = role.unwrap_or(if is_agent { Role::Agent } else { Role::Server });
    let problem = match role {
        Role::Server => server_problem(&file),
        Role::Agent => agent_problem(&file)?,
    };
    Ok(Checked { file, role, problem })
}

/// Reads the file as `coracle server --config FILE` does.
fn server_problem(file: &Path) -> Option<String> {
    let command = ServerArgs::augment_args(clap::Command::new("server"));
    let words = [Path::new("server"), Path::new("--config"), file];
    let parsed: Result<ArgMatches, clap::Error> = command.try_get_matches_from(words);
    let resolve = |matches: ArgMatches| {
        let config = ServerArgs::from_arg_matches(&matches)?.resolve(&matches)?;
        config.security.check()?;
        authentication::configuration(&config.security)?;
        anyhow::Ok(())
    };
    parsed.map_err(anyhow::Error::from).and_then(resolve).err().map(|error| causes::chain(&*error))
}

/// The agent checks its own files.
fn agent_problem(file: &Path) -> anyhow::Result<Option<String>> {
    let agent = program_beside("coracle-agent")?;
    let mut command = Command::new(&agent);
    let output = command.args(["config", "validate", "--output", "text"]).arg(file).output();
    let output = output.with_context(|| agent.display().to_string())?;
    if output.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(Some(said.trim().trim_start_matches("Error: ").to_owned()))
}

fn text(checked: &[Checked]) -> String {
    let line = |each: &Checked| match &each.problem {
        None => format!("{}: valid\n", each.file.display()),
        Some(problem) => format!("{}: {problem}\n", each.file.display()),
    };
    checked.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_of_the_server_are_read_as_the_server_does() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("server.yaml");
        for (text, problem) in [
            ("", None),
            ("# nothing\n", None),
            ("bind: 127.0.0.1:7443\ntlsSan: [a, b]\n", None),
            ("bind: somewhere\n", Some("invalid socket address")),
            ("bnd: 127.0.0.1:1\n", Some("unknown field `bnd`; the closest that exists is bind")),
            (
                "auditLogPth: /a\n",
                Some("the closest that exists is auditLogPath; `coracle server --help` lists"),
            ),
            ("tracesize: 1\n", Some("the closest that exists is traceSize")),
            ("flavour: a\n", Some("unknown field `flavour`; `coracle server --help` lists all options")),
            ("bind: [\n", Some("line ")),
            ("clusterReset: true\n", Some("clusterReset belongs on the command line")),
            ("authenticationConfig: /nowhere/authentication.yaml\n", Some("/nowhere/authentication.yaml")),
        ] {
            std::fs::write(&file, text).unwrap();
            let found = server_problem(&file);
            match problem {
                None => assert_eq!(found, None, "{text}"),
                Some(part) => {
                    assert!(found.as_deref().is_some_and(|found| found.contains(part)), "{text}: {found:?}")
                }
            }
        }
        assert!(server_problem(&dir.path().join("none.yaml")).unwrap().contains("none.yaml"));
    }
}
