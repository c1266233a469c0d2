//! The `coracle` command.

#![forbid(unsafe_code)]

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use coracle::backup::BackupArgs;
use coracle::backup::restore::RestoreArgs;
use coracle::certificate::CertificateArgs;
use coracle::config::ServerArgs;
use coracle::config_command::ConfigArgs;
use coracle::doctor::DoctorArgs;
use coracle::explain::proxy::UiArgs;
use coracle::explain::trace::{self, TraceArgs};
use coracle::hollow::HollowArgs;
use coracle::image::ImageArgs;
use coracle::kubeconfig::KubeconfigCommandArgs;
use coracle::kubectl::KubectlArgs;
use coracle::logs::LogsArgs;
use coracle::member::MemberArgs;
use coracle::reset::ResetArgs;
use coracle::revoke_node::RevokeNodeArgs;
use coracle::secrets_encrypt::SecretsEncryptArgs;
use coracle::status::StatusArgs;
use coracle::store_command::StoreArgs;
use coracle::token::TokenArgs;
use coracle::up::{DownArgs, ForwardArgs, NodeArgs, SuperviseArgs, UpArgs};
use coracle_cli::causes;
use coracle_cli::environment;
use coracle_cli::log::LogArgs;
use coracle_cli::manual::CompletionArgs;
use coracle_cli::version::VersionArgs;
use coracle_why::args::{KubectlWhy, WhyArgs, is_plugin};
use std::process::ExitCode;

/// Kubernetes you can carry.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the control plane: API server, scheduler and controllers in one process.
    Server(Box<ServerArgs>),
    /// Start a cluster on this machine, in its own namespaces.
    Up(UpArgs),
    /// Stop the cluster of `coracle up`.
    Down(DownArgs),
    /// Add nodes to the cluster of `coracle up`, and remove them.
    Node(NodeArgs),
    /// End an installed server and node of this machine, and remove their state.
    Reset(ResetArgs),
    /// Check whether this machine can run a cluster, and how to fix what is missing.
    Doctor(DoctorArgs),
    /// Print a kubeconfig of a cluster, or merge it into ~/.kube/config.
    Kubeconfig(KubeconfigCommandArgs),
    /// Run kubectl with the kubeconfig of a cluster of this machine.
    Kubectl(KubectlArgs),
    /// Print the log of the server, an agent or a shim.
    Logs(LogsArgs),
    /// Load images of this machine into nodes.
    Image(ImageArgs),
    /// Check configuration files.
    Config(ConfigArgs),
    /// Print a script that completes commands in a shell.
    Completion(CompletionArgs),
    /// Print versions of this program and of Kubernetes.
    Version(VersionArgs),
    /// Write man pages, completions and a documented configuration file.
    #[command(hide = true)]
    Manual(coracle_cli::manual::ManualArgs),
    /// Run simulated nodes without containers, for load tests.
    Hollow(HollowArgs),
    /// Show what happened to an object and where the time went.
    Trace(Box<TraceArgs>),
    /// Serve the cluster's page on this machine, read-only.
    Ui(UiArgs),
    /// Manage tokens of nodes and servers that join: create, list, revoke.
    Token(TokenArgs),
    /// Manage the members of the etcd that servers run: list, remove.
    Member(MemberArgs),
    /// Revoke a node: reject its current certificates, revoke bootstrap tokens, delete its Node.
    RevokeNode(RevokeNodeArgs),
    /// Show servers, store, leaders, last backup and certificates of a cluster, and what is wrong with them.
    Status(StatusArgs),
    /// Check and renew the certificates of a server.
    Certificate(CertificateArgs),
    /// Copy the store of a cluster to another one.
    Store(StoreArgs),
    /// Show and rotate the keys that encrypt Secrets in the store.
    SecretsEncrypt(SecretsEncryptArgs),
    /// Back up a running cluster, and list, verify and remove backups.
    Backup(Box<BackupArgs>),
    /// Restore a backup into a new data directory or an empty etcd.
    Restore(Box<RestoreArgs>),
    /// Find the root cause of what is not well in a cluster: all of it, one object, or a connection.
    Why(Box<WhyArgs>),
    /// Forward a published port into a cluster; started by `up`.
    #[command(hide = true)]
    Forward(ForwardArgs),
    /// Hold the namespaces of a node open; started by `up`.
    #[command(hide = true)]
    Hold,
    /// Run a program and restart it when it fails; started by `up`.
    #[command(hide = true)]
    Supervise(SuperviseArgs),
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {}", causes::chain(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    // kubectl runs its plugins by links to this program.
    if std::env::args_os().next().is_some_and(|program| is_plugin(&program)) {
        return why(&KubectlWhy::parse().args);
    }
    let arguments = trace::plugin_arguments(std::env::args_os().collect());
    let matches = command().get_matches_from(arguments);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if let Err(error) = coracle::cluster_args::check_environment() {
        command().error(clap::error::ErrorKind::ValueValidation, error).exit();
    }
    let log = match &cli.command {
        Command::Server(args) => args.log(),
        _ => LogArgs::of_environment(),
    };
    log.start(usual_log(&cli.command), "");
    match cli.command {
        Command::Server(args) => {
            let matches = matches.subcommand_matches("server").expect("the command is server");
            if let Err(error) = coracle::privileges::drop_capabilities() {
                tracing::warn!(error = %causes::chain(&error), "cannot drop capabilities that the server does not need");
            }
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let config = args.resolve(matches)?;
            if config.cluster_reset {
                return runtime.block_on(coracle::server::reset_cluster(&config));
            }
            let restart = runtime.block_on(coracle::server::run(config))?;
            match restart {
                // Tasks that still run end with this process.
                Some(listeners) => {
                    Err(anyhow::Error::from(listeners.exec_replacement()).context("execute the new binary"))
                }
                None => Ok(()),
            }
        }
        Command::Hollow(args) => {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            runtime.block_on(coracle::hollow::run(args))
        }
        Command::Trace(args) => std::process::exit(trace::run(&args)?),
        Command::Ui(args) => coracle::explain::proxy::ui(&args),
        Command::Token(args) => small_runtime()?.block_on(coracle::token::run(&args)),
        Command::Member(args) => small_runtime()?.block_on(coracle::member::run(&args)),
        Command::RevokeNode(args) => small_runtime()?.block_on(coracle::revoke_node::run(&args)),
        Command::Status(args) => end(small_runtime()?.block_on(coracle::status::run(&args))?),
        Command::Certificate(args) => end(small_runtime()?.block_on(coracle::certificate::run(&args))?),
        Command::Store(args) => medium_runtime()?.block_on(coracle::store_command::run(&args)),
        Command::SecretsEncrypt(args) => small_runtime()?.block_on(coracle::secrets_encrypt::run(&args)),
        Command::Backup(args) => small_runtime()?.block_on(coracle::backup::run(&args)),
        Command::Restore(args) => small_runtime()?.block_on(coracle::backup::restore::run(*args)),
        Command::Why(args) => why(&args),
        Command::Kubeconfig(args) => coracle::kubeconfig::run(&args),
        Command::Kubectl(args) => Err(coracle::kubectl::run(&args).into()),
        Command::Logs(args) => coracle::logs::run(&args),
        Command::Image(args) => coracle::image::run(&args),
        Command::Config(args) => end(coracle::config_command::run(&args)?),
        Command::Completion(args) => Ok(args.print(command())?),
        Command::Version(args) => Ok(coracle_cli::version!(coracle_proto::version::KUBERNETES).print(&args)?),
        Command::Forward(args) => small_runtime()?.block_on(coracle::up::forward(args)),
        Command::Hold => coracle::up::hold(),
        Command::Supervise(args) => {
            std::process::exit(small_runtime()?.block_on(coracle::up::supervise(&args))?);
        }
        Command::Up(args) => coracle::up::up(&args),
        Command::Down(args) => coracle::up::down(&args),
        Command::Node(args) => coracle::up::node_command(&args),
        Command::Reset(args) => coracle::reset::run(&args),
        Command::Manual(args) => Ok(args.write(command(), &[("server", "server.yaml")])?),
        Command::Doctor(args) => {
            let fit = coracle::doctor::run(&args)?;
            std::process::exit(i32::from(!fit));
        }
    }
}

/// What a command logs unless told otherwise: what is printed for people is not interrupted by logs, and errors of requests are in the
/// answer of the command.
fn usual_log(command: &Command) -> &'static str {
    match command {
        Command::Member(_) => "error",
        Command::Trace(_)
        | Command::Ui(_)
        | Command::Why(_)
        | Command::Status(_)
        | Command::Certificate(_)
        | Command::Store(_)
        | Command::SecretsEncrypt(_)
        | Command::Backup(_)
        | Command::Restore(_)
        | Command::Kubeconfig(_)
        | Command::Config(_) => "warn,kube_client=off",
        _ => "info",
    }
}

/// Options without a variable of their command: those that confirm or remove something, which the environment must not repeat, and
/// those that select a cluster, which have one variable for all commands.
const FLAGS_ONLY: [&str; 9] = [
    "allow-empty-datastore",
    "cluster-reset",
    "data-dir",
    "force",
    "name",
    "prune",
    "purge",
    "remove",
    "yes",
];

/// The command line. Every option has an environment variable, too.
fn command() -> clap::Command {
    let command = Cli::command().mut_subcommand("server", coracle::config::with_variables);
    environment::with_variables_of_subcommands(command, "CORACLE_", &FLAGS_ONLY)
}

/// Ends the process with the exit code of `why`.
fn why(args: &WhyArgs) -> anyhow::Result<()> {
    let code = small_runtime()?.block_on(coracle_why::run::run(args));
    std::process::exit(code.into());
}

/// Ends the process: with success if all is well.
fn end(well: bool) -> anyhow::Result<()> {
    std::process::exit(i32::from(!well));
}

/// A runtime for commands that open a store.
fn medium_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

/// A single-threaded runtime for short commands.
fn small_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
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
        let mut command = command();
        command.build();
        assert_eq!(without_output(&command), ["kubectl", "logs", "completion", "ui", "server"]);
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
        let shared = ["CORACLE_DATA_DIR", "KUBECONFIG"];
        let found = variables(&command(), "coracle");
        let mut seen = std::collections::BTreeMap::new();
        for (option, variable) in &found {
            match variable {
                None => {
                    let name = option.rsplit_once("--").map(|(_, name)| name);
                    assert!(name.is_some_and(|name| FLAGS_ONLY.contains(&name)), "{option}");
                }
                Some(variable) if shared.contains(&variable.as_str()) => {}
                Some(variable) => {
                    let other = seen.insert(variable, option);
                    assert_eq!(other, None, "{variable} is also {option}");
                }
            }
        }
        for (option, variable) in [
            ("coracle server --tls-san", "CORACLE_SERVER_TLS_SAN"),
            ("coracle up --nodes", "CORACLE_UP_NODES"),
            ("coracle token create --ttl", "CORACLE_TOKEN_CREATE_TTL"),
        ] {
            assert!(found.contains(&(option.to_owned(), Some(variable.to_owned()))), "{option}");
        }
    }
}
