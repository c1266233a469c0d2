//! Options of `coracle trace`, and its names as a plugin of kubectl.

use super::super::connect::ConnectArgs;
use super::ask::AskError;
use super::waterfall::Form;
use clap::{Args, FromArgMatches as _, ValueEnum};
use coracle_proto::time::parse_duration;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

/// Options of `coracle trace`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 ready, 1 failed or stuck, 2 bad input or no such object, 3 the server does not answer."
)]
pub struct TraceArgs {
    /// Object, as KIND/NAME or KIND NAME.
    #[arg(value_name = "KIND/NAME", num_args = 0..=2)]
    pub(super) object: Vec<String>,
    #[command(flatten)]
    pub(super) connect: ConnectArgs,
    /// Draw everything that changed in the last 10m, or whatever is given, the newest last.
    #[arg(long, value_name = "DURATION")]
    pub(super) since: Option<String>,
    /// Draw the last N operations instead of the last change, the newest last.
    #[arg(long, value_name = "N")]
    pub(super) last: Option<usize>,
    /// Go on until it is ready or has failed.
    #[arg(long)]
    pub(super) follow: bool,
    /// Show what stages usually take on this cluster, and mark those that took more than twice as long.
    #[arg(long)]
    pub(super) compare: bool,
    /// Draw every span.
    #[arg(long)]
    pub(super) all: bool,
    /// Draw only the stages of the critical path, each with its share of the time.
    #[arg(long)]
    pub(super) short: bool,
    /// Output format.
    #[arg(short, long, value_enum)]
    pub(super) output: Option<Output>,
    /// Trace id, instead of an object.
    #[arg(long, value_name = "ID")]
    pub(super) trace: Option<String>,
    /// How long to wait for what the command made.
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub(super) timeout: String,
    /// Wait until the timeout, even if something that the command made is stuck.
    #[arg(long)]
    pub(super) keep_going: bool,
    /// Command to run; what its requests cause is drawn.
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

/// Output formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// A waterfall with whole labels, however wide.
    Wide,
    /// The answer of the server.
    Json,
    /// An `ExportTraceServiceRequest` of OpenTelemetry, as JSON.
    Otlp,
}

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Task<'a> {
    Object { kind: &'a str, name: &'a str },
    Trace(&'a str),
    Command(&'a [OsString]),
}

/// The arguments of `coracle` for a program that is called as a plugin of kubectl: `kubectl-trace pod/x` is
/// `coracle trace pod/x`. Others stay as they are.
pub fn plugin_arguments(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let program = arguments.first().map(Path::new).and_then(Path::file_name).and_then(|name| name.to_str());
    let command = match program {
        Some("kubectl-trace") => "trace",
        Some("kubectl-why") => "why",
        Some("kubectl-coracle_ui") => "ui",
        _ => return arguments,
    };
    arguments[0] = "coracle".into();
    arguments.insert(1, command.into());
    arguments
}

impl TraceArgs {
    /// Options that draw the short form of an object of the namespace `default`.
    pub(crate) fn short_of_object(object: &str, kubeconfig: &Path) -> Result<Self, clap::Error> {
        let words: [&OsStr; 6] = [
            "trace".as_ref(),
            object.as_ref(),
            "--short".as_ref(),
            "--namespace=default".as_ref(),
            "--kubeconfig".as_ref(),
            kubeconfig.as_ref(),
        ];
        let matches = Self::augment_args(clap::Command::new("trace")).try_get_matches_from(words)?;
        Self::from_arg_matches(&matches)
    }

    /// What is asked for, if the flags fit together.
    pub(super) fn task(&self) -> Result<Task<'_>, AskError> {
        let wrong = |text: &str| Err(AskError::Input(text.to_owned()));
        if self.last == Some(0) {
            return wrong("--last 0 draws nothing: want at least 1");
        }
        for text in self.since.iter().chain([&self.timeout]) {
            duration(text)?;
        }
        if self.follow && matches!(self.output, Some(Output::Json | Output::Otlp)) {
            return wrong("--follow draws: it cannot be combined with -o json and -o otlp");
        }
        if self.short && (self.all || self.compare || self.output.is_some()) {
            return wrong("--short is a form of its own: it cannot be combined with --all, --compare and -o");
        }
        match (&self.object[..], self.trace.as_deref(), &self.command[..]) {
            ([], None, []) => {
                wrong("name an object as KIND/NAME, a trace with --trace, or a command after --")
            }
            ([], None, command) => Ok(Task::Command(command)),
            ([], Some(id), []) => {
                let is_id =
                    id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
                if is_id {
                    Ok(Task::Trace(id))
                } else {
                    wrong("a trace id has 32 hexadecimal digits in lower case")
                }
            }
            ([object], None, []) => match object.split_once('/') {
                Some((kind, name)) if !kind.is_empty() && !name.is_empty() && !name.contains('/') => {
                    Ok(Task::Object { kind, name })
                }
                _ => Err(AskError::Input(format!("{object} is no object: want KIND/NAME, such as pod/web"))),
            },
            ([kind, name], None, []) if !kind.contains('/') && !name.contains('/') => {
                Ok(Task::Object { kind, name })
            }
            _ => wrong("want one of an object, --trace, and a command"),
        }
    }

    pub(super) fn form(&self) -> Form {
        let wide = self.output == Some(Output::Wide);
        Form { all: self.all, compare: self.compare, wide, short: self.short }
    }
}

/// A duration that is not negative.
pub(super) fn duration(text: &str) -> Result<Duration, AskError> {
    let nanos = parse_duration(text).ok().and_then(|nanos| u64::try_from(nanos).ok());
    let wrong = || AskError::Input(format!("{text} is no duration: want one such as 30s or 10m"));
    nanos.map(Duration::from_nanos).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        args: TraceArgs,
    }

    fn parse(arguments: &[&str]) -> TraceArgs {
        Program::try_parse_from([&["trace"][..], arguments].concat()).unwrap().args
    }

    #[test]
    fn objects_traces_and_commands() {
        let object = Task::Object { kind: "deploy", name: "web" };
        assert_eq!(parse(&["deploy/web", "-n", "shop"]).task().unwrap(), object);
        assert_eq!(parse(&["deploy", "web", "--follow"]).task().unwrap(), object);
        let user = ["--client-certificate", "c", "--client-key", "k", "--as", "bob", "--as-uid", "1"];
        let flags = [&["deploy/web", "--tls-server-name", "api.example.com"][..], &user].concat();
        assert_eq!(parse(&flags).task().unwrap(), object);
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(parse(&["--trace", id]).task().unwrap(), Task::Trace(id));
        let command: [OsString; 4] = ["kubectl".into(), "apply".into(), "-f".into(), "x.yaml".into()];
        assert_eq!(
            parse(&["--", "kubectl", "apply", "-f", "x.yaml"]).task().unwrap(),
            Task::Command(&command)
        );
    }

    #[test]
    fn an_object_of_another_command() {
        let args = TraceArgs::short_of_object("deployment/web", Path::new("/k")).unwrap();
        assert!(args.form().short);
        assert_eq!(args.task().unwrap(), Task::Object { kind: "deployment", name: "web" });
    }

    #[test]
    fn bad_input_has_exit_code_2() {
        for arguments in [
            &[][..],
            &["web"],
            &["pod/"],
            &["/web"],
            &["pod/a/b"],
            &["pod/a", "pod/b"],
            &["pod/a", "--trace", "4bf92f3577b34da6a3ce929d0e0e4736"],
            &["pod/a", "--", "true"],
            &["--trace", "4BF92F3577B34DA6A3CE929D0E0E4736"],
            &["pod/a", "--since", "yesterday"],
            &["pod/a", "--timeout=-5s"],
            &["pod/a", "--follow", "-o", "json"],
            &["pod/a", "--short", "-o", "json"],
            &["pod/a", "--short", "--all"],
            &["pod/a", "--short", "--compare"],
        ] {
            assert_eq!(parse(arguments).task().unwrap_err().exit_code(), 2, "{arguments:?}");
        }
    }

    #[test]
    fn plugins_of_kubectl() {
        let called = |program: &str| plugin_arguments(vec![program.into(), "pod/x".into()]);
        assert_eq!(called("/usr/local/bin/kubectl-trace"), ["coracle", "trace", "pod/x"]);
        assert_eq!(called("kubectl-why"), ["coracle", "why", "pod/x"]);
        assert_eq!(called("kubectl-coracle_ui"), ["coracle", "ui", "pod/x"]);
        assert_eq!(called("coracle"), ["coracle", "pod/x"]);
        assert!(plugin_arguments(Vec::new()).is_empty());
    }
}
