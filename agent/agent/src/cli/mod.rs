//! The commands of `coracle-agent`, one file each.

// Logs.
mod log;
// Options of the node.
pub mod options;
// What is checked before anything is made.
mod check;
// The node.
pub mod run;
// Builds the parts of the node.
pub mod assemble;
// Options about evictions.
pub mod eviction;
// Options about cpus, memory and NUMA nodes.
pub mod resources;
// Parsers of option values.
pub mod values;
// Checks a configuration file.
pub mod config;
// Joins a cluster.
pub mod join;
// Images of this node.
pub mod image;
// Serves the engine as CRI.
pub mod engine;

use clap::{CommandFactory, FromArgMatches};
use coracle_cli::environment;
use coracle_cli::version::Version;

/// What names of environment variables begin with.
const PREFIX: &str = "CORACLE_AGENT_";

/// The Coracle node agent.
#[derive(Debug, clap::Parser)]
#[command(name = "coracle-agent", version, about = "The Coracle node agent")]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Run the node: start and supervise the pods that are bound to it.
    Run(Box<options::RunArgs>),
    /// Join a cluster: verify the server and request a certificate with a token.
    Join(join::JoinArgs),
    /// Manage images of this node: import, pull, ls, rm, gc.
    Image(image::ImageArgs),
    /// Run only the container engine and serve CRI on a unix socket.
    Engine(engine::EngineArgs),
    /// Check a configuration file.
    Config(config::ConfigArgs),
    /// Print a script that completes commands in a shell.
    Completion(coracle_cli::manual::CompletionArgs),
    /// Print versions of this program and of Kubernetes.
    Version(coracle_cli::version::VersionArgs),
    /// Write man pages, completions and a documented configuration file.
    #[command(hide = true)]
    Manual(coracle_cli::manual::ManualArgs),
}

/// Options without a variable: the name of one image is not that of all.
const FLAGS_ONLY: [&str; 1] = ["name"];

impl Cli {
    /// The command line. Every option has an environment variable, too; those of `run` have not its name.
    pub fn full_command() -> clap::Command {
        let of_run = |run| environment::with_variables(run, PREFIX, &FLAGS_ONLY);
        let command = Self::command().mut_subcommand("run", of_run);
        environment::with_variables_of_subcommands(command, PREFIX, &FLAGS_ONLY)
    }

    /// Parses the command line and the file of `run --config`.
    pub fn read() -> anyhow::Result<Self> {
        let mut command = Self::full_command();
        command.build();
        let arguments = std::env::args_os().collect();
        let arguments = match command.find_subcommand("run") {
            Some(run) => coracle_cli::config_file::expand(arguments, run)?,
            None => arguments,
        };
        let matches = Self::full_command().get_matches_from(arguments);
        Ok(Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()))
    }

    /// Runs the command; `version` is that of the program.
    pub fn run(self, version: &Version) -> anyhow::Result<()> {
        match self.command {
            Command::Config(args) => args.run(),
            Command::Completion(args) => Ok(args.print(Self::full_command())?),
            Command::Version(args) => Ok(version.print(&args)?),
            Command::Run(args) => args.run(),
            Command::Join(args) => args.run(),
            Command::Image(args) => args.run(),
            Command::Engine(args) => args.run(),
            Command::Manual(args) => Ok(args.write(Self::full_command(), &[("run", "agent.yaml")])?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands without `--output` that are not hidden.
    fn without_output(command: &clap::Command) -> Vec<String> {
        let has_output = command.get_arguments().any(|argument| argument.get_long() == Some("output"));
        if !command.has_subcommands() {
            return if has_output { Vec::new() } else { vec![command.get_name().to_owned()] };
        }
        let visible =
            command.get_subcommands().filter(|each| !each.is_hide_set() && each.get_name() != "help");
        visible.flat_map(without_output).collect()
    }

    #[test]
    fn all_commands_that_end_with_an_answer_have_formats_for_programs() {
        let mut command = Cli::full_command();
        command.build();
        assert_eq!(without_output(&command), ["engine", "completion", "run"]);
    }

    /// Options of commands that are not hidden, and their variables.
    fn variables(command: &clap::Command, path: &str) -> Vec<(String, Option<String>)> {
        let named = |argument: &clap::Arg| {
            let variable = argument.get_env().map(|name| name.to_string_lossy().into_owned());
            Some((format!("{path} --{}", argument.get_long()?), variable))
        };
        let mut found: Vec<_> = command.get_arguments().filter_map(named).collect();
        for each in command.get_subcommands().filter(|each| !each.is_hide_set()) {
            found.extend(variables(each, &format!("{path} {}", each.get_name())));
        }
        found
    }

    #[test]
    fn every_option_has_a_variable_of_its_own() {
        let found = variables(&Cli::full_command(), "coracle-agent");
        let mut seen = std::collections::BTreeMap::new();
        for (option, variable) in &found {
            match variable {
                None => assert_eq!(option, "coracle-agent image import --name"),
                Some(variable) => {
                    let other = seen.insert(variable, option);
                    assert_eq!(other, None, "{variable} is also {option}");
                }
            }
        }
        let is = |variable: &str, option: &str| {
            assert!(found.contains(&(option.to_owned(), Some(variable.to_owned()))), "{found:?}");
        };
        is("CORACLE_AGENT_NODE_NAME", "coracle-agent run --node-name");
        is("CORACLE_AGENT_JOIN_NODE_NAME", "coracle-agent join --node-name");
        is("CORACLE_AGENT_IMAGE_GC_HIGH", "coracle-agent image gc --high");
    }
}
