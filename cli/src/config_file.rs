//! Options from a YAML file: the long flags in camel case. The command line takes precedence, and so do environment variables.

use crate::closest;
use crate::yaml::YamlError;
use clap::{Arg, ArgAction, Command};
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{0}")]
    Read(PathBuf, #[source] std::io::Error),
    /// It is no YAML mapping.
    #[error("{0} is not a valid configuration")]
    Parse(PathBuf, #[source] YamlError),
    /// Unknown option.
    #[error("{path}: there is no option {name}{similar}")]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The option.
        name: String,
        /// What was probably meant, if anything.
        similar: String,
    },
    /// Invalid value.
    #[error(
        "{0}: {1} takes a word, a number, true, false, or a list or mapping of those where it takes several"
    )]
    Value(PathBuf, String),
}

/// The name of a flag in a file: `podLogDir` for `pod-log-dir`.
pub fn key(long: &str) -> String {
    let mut words = long.split('-');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |key, word| {
        let mut letters = word.chars();
        let upper = letters.next().map(|c| c.to_ascii_uppercase());
        key + &upper.into_iter().chain(letters).collect::<String>()
    })
}

/// The names that options of a command have in a file.
pub fn keys(command: &Command) -> Vec<String> {
    let longs = command.get_arguments().filter_map(Arg::get_long);
    longs.filter(|long| !["config", "help"].contains(long)).map(key).collect()
}

/// Adds the options of the `--config` file to the arguments, except those that the command line or the environment sets.
/// `command` is the subcommand that `arguments` begins with, after the program's name.
pub fn expand(arguments: Vec<OsString>, command: &Command) -> Result<Vec<OsString>, Error> {
    let text: Vec<String> = arguments.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    if text.get(1).map(String::as_str) != Some(command.get_name()) {
        return Ok(arguments);
    }
    let named = text.iter().enumerate().find_map(|(at, word)| match word.strip_prefix("--config") {
        Some("") => text.get(at + 1).map(PathBuf::from),
        Some(rest) => rest.strip_prefix('=').map(PathBuf::from),
        None => None,
    });
    let Some(path) = named else { return Ok(arguments) };
    let content = std::fs::read_to_string(&path).map_err(|e| Error::Read(path.clone(), e))?;
    // A file with nothing but comments is null.
    let options: Option<Map<String, Value>> =
        crate::yaml::from_str(&content).map_err(|e| Error::Parse(path.clone(), e))?;
    let mut expanded: Vec<OsString> = arguments[..2].to_vec();
    for (name, value) in options.unwrap_or_default() {
        let known = command.get_arguments().find_map(|argument| {
            let long = argument.get_long().filter(|long| key(long) == name)?;
            Some((argument, format!("--{long}")))
        });
        let (argument, flag) = known.ok_or_else(|| {
            let keys = keys(command);
            let similar = closest::suggestion(&name, keys.iter().map(String::as_str));
            Error::Unknown { path: path.clone(), name: name.clone(), similar }
        })?;
        let is_flag = text.iter().any(|word| *word == flag || word.starts_with(&format!("{flag}=")));
        if is_flag || crate::environment::is_set(argument) {
            continue;
        }
        expanded.extend(
            flags(argument, &flag, &value)
                .ok_or(Error::Value(path.clone(), name))?
                .into_iter()
                .map(OsString::from),
        );
    }
    expanded.extend_from_slice(&arguments[2..]);
    Ok(expanded)
}

fn flags(argument: &Arg, flag: &str, value: &Value) -> Option<Vec<String>> {
    // A switch is on when it is named; other options take the word, so that `false` overrides a default.
    let is_switch = !argument.get_action().takes_values();
    match value {
        Value::Null => Some(vec![]),
        Value::Bool(false) if is_switch => Some(vec![]),
        Value::Bool(true) if is_switch => Some(vec![flag.to_owned()]),
        Value::Bool(word) => Some(vec![format!("{flag}={word}")]),
        Value::String(text) => Some(vec![format!("{flag}={text}")]),
        Value::Number(number) => Some(vec![format!("{flag}={number}")]),
        Value::Array(items) => {
            let each: Option<Vec<Vec<String>>> =
                items.iter().map(|item| flags(argument, flag, item)).collect();
            each.map(|each| each.concat())
        }
        // `nodeLabels: {a: b}` is `nodeLabels: [a=b]`.
        Value::Object(entries) if matches!(argument.get_action(), ArgAction::Append) => {
            entries.iter().map(|(key, value)| Some(format!("{flag}={key}={}", word(value)?))).collect()
        }
        Value::Object(_) => None,
    }
}

/// What a value is on a command line; nothing if it is no single value.
fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A list of `NAME=VALUE`, one such text with commas between them, or a mapping: how files give what a flag takes several of.
pub fn pairs<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let form = || serde::de::Error::custom("takes a list of NAME=VALUE, or a mapping of names to values");
    match serde::Deserialize::deserialize(deserializer)? {
        Value::Null => Ok(vec![]),
        Value::String(text) => Ok(text.split(',').map(|pair| pair.trim().to_owned()).collect()),
        Value::Array(items) => {
            items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(form)).collect()
        }
        Value::Object(entries) => {
            let pair = |(name, value): (&String, &Value)| {
                word(value).map(|word| format!("{name}={word}")).ok_or_else(form)
            };
            entries.iter().map(pair).collect()
        }
        Value::Bool(_) | Value::Number(_) => Err(form()),
    }
}

/// A file with every option, what it means and its default, all commented out: `#name: value`, or `#name: ` where there is
/// no default. Options that take several values, and only they, have a list in brackets: `#name: []`, `#name: [a, b]`.
pub fn template(command: &Command, program: &str) -> String {
    let mut text = format!(
        "# Options of `{program} {}`. Every option is here; those in force are not commented out.\n# Flags on the command line win, then environment variables.\n",
        command.get_name()
    );
    for argument in command.get_arguments().filter(|a| !a.is_hide_set()) {
        let Some(long) = argument.get_long().filter(|long| *long != "config" && *long != "help") else {
            continue;
        };
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let defaults: Vec<String> =
            argument.get_default_values().iter().map(|v| v.to_string_lossy().into_owned()).collect();
        let example = match argument.get_action() {
            ArgAction::SetTrue => "false".to_owned(),
            ArgAction::Append => {
                format!("[{}]", defaults.iter().map(|v| scalar(v)).collect::<Vec<_>>().join(", "))
            }
            _ => defaults.first().map(|v| scalar(v)).unwrap_or_default(),
        };
        let _ = writeln!(text, "\n# {help}\n#{}: {example}", key(long));
    }
    text
}

/// A YAML scalar, quoted if necessary.
fn scalar(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/' || c == '.')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "/.:_=+-".contains(c))
        && !text.ends_with(':')
        && text != "null";
    if plain { text.to_owned() } else { format!("{text:?}") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn command() -> Command {
        Command::new("run")
            .arg(Arg::new("config").long("config"))
            .arg(Arg::new("node-name").long("node-name").help("Name of the node."))
            .arg(Arg::new("max-pods").long("max-pods").help("How many.").default_value("110"))
            .arg(Arg::new("node-ip").long("node-ip").help("Addresses.").action(ArgAction::Append))
            .arg(Arg::new("eviction-hard").long("eviction-hard").help("Least.").default_value("memory<5%"))
            .arg(Arg::new("bind").long("bind").help("Where.").default_value("0.0.0.0:6443"))
            .arg(Arg::new("pattern").long("pattern").help("Which.").default_value("[a-z]: #"))
            .arg(
                Arg::new("dir")
                    .long("dir")
                    .help("Dirs.")
                    .action(ArgAction::Append)
                    .default_values(["/a", "b, c", "d:1"]),
            )
            .arg(Arg::new("external-network").long("external-network").help("No.").action(ArgAction::SetTrue))
            .arg(
                Arg::new("metrics")
                    .long("metrics")
                    .help("Whether.")
                    .default_value("true")
                    .value_parser(clap::value_parser!(bool)),
            )
    }

    fn expanded(file: &str, arguments: &[&str]) -> Result<Vec<String>, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.yaml");
        std::fs::write(&path, file).unwrap();
        let config = path.display().to_string();
        let all = ["agent", "run", "--config", &config].iter().chain(arguments).map(OsString::from).collect();
        let words = expand(all, &command()).map_err(|e| e.to_string().replace(&config, "FILE"))?;
        Ok(words.iter().map(|w| w.to_string_lossy().replace(&config, "FILE")).skip(2).collect())
    }

    #[test]
    fn options_become_flags_and_flags_win() {
        let file = "nodeName: a\nmaxPods: 20\nnodeIp: [10.0.0.1, 'fd00::1']\nexternalNetwork: true\n";
        let want = [
            "--node-name=a",
            "--max-pods=20",
            "--node-ip=10.0.0.1",
            "--node-ip=fd00::1",
            "--external-network",
        ];
        let mut got = expanded(file, &[]).unwrap();
        assert_eq!(got.split_off(got.len() - 2), ["--config", "FILE"]);
        got.sort();
        let mut want = want.map(str::to_owned);
        want.sort();
        assert_eq!(got, want);
        assert_eq!(
            expanded("nodeName: a\n", &["--node-name", "b"]).unwrap(),
            ["--config", "FILE", "--node-name", "b"]
        );
        assert_eq!(expanded("# nothing\n", &[]).unwrap(), ["--config", "FILE"]);
        assert_eq!(expanded("externalNetwork: false\n", &[]).unwrap(), ["--config", "FILE"]);
        assert_eq!(
            expanded("nodename: a\n", &[]).unwrap_err(),
            "FILE: there is no option nodename; the closest that exists is nodeName"
        );
        assert_eq!(expanded("flavour: a\n", &[]).unwrap_err(), "FILE: there is no option flavour");
        for file in ["nodeName: {a: b}\n", "nodeIp: {a: [b]}\n"] {
            let name = file.split(':').next().unwrap();
            assert!(expanded(file, &[]).unwrap_err().starts_with(&format!("FILE: {name} takes")), "{file}");
        }
        assert_eq!(
            expanded("nodeIp: {a: true, b: c=d, e: 1}\n", &[]).unwrap()[..3],
            ["--node-ip=a=true", "--node-ip=b=c=d", "--node-ip=e=1"]
        );
        let other: Vec<OsString> = ["agent", "image", "--config", "x"].map(OsString::from).into();
        assert_eq!(expand(other.clone(), &command()).unwrap(), other);
    }

    #[test]
    fn pairs_are_a_list_a_text_or_a_mapping() {
        let read = |text: &str| {
            let value: Value = serde_json::from_str(text).unwrap();
            pairs(value).map_err(|error| error.to_string())
        };
        for text in [
            r#"["A=true", "B=2"]"#,
            r#""A=true, B=2""#,
            r#"{"A": true, "B": 2}"#,
            r#"{"A": "true", "B": "2"}"#,
        ] {
            assert_eq!(read(text), Ok(vec!["A=true".to_owned(), "B=2".to_owned()]), "{text}");
        }
        assert_eq!(read("null"), Ok(vec![]));
        for text in ["true", "[1]", r#"{"A": []}"#] {
            assert!(read(text).unwrap_err().starts_with("takes a list of NAME=VALUE"), "{text}");
        }
    }

    #[test]
    fn what_is_on_by_default_can_be_switched_off() {
        for (file, want) in [("", true), ("metrics: true\n", true), ("metrics: false\n", false)] {
            let words = expanded(file, &[]).unwrap();
            let words = words.into_iter().filter(|word| *word != "--config" && *word != "FILE");
            let matches = command().no_binary_name(true).get_matches_from(words);
            assert_eq!(matches.get_one::<bool>("metrics"), Some(&want), "{file}");
        }
        assert!(template(&command(), "agent").contains("#metrics: true\n"));
    }

    #[test]
    fn a_template_with_every_line_in_force_is_valid() {
        let text = template(&command(), "agent");
        assert!(text.contains("\n# How many.\n#maxPods: 110\n"), "{text}");
        assert!(text.contains("#evictionHard: \"memory<5%\"\n"), "{text}");
        assert!(text.contains("#bind: 0.0.0.0:6443\n"), "{text}");
        assert!(text.contains("#nodeName: \n"), "no default: {text}");
        let in_force: Vec<String> = text
            .lines()
            .filter(|l| l.starts_with('#') && !l.starts_with("# "))
            .map(|l| l[1..].to_owned())
            .collect();
        assert_eq!(in_force.len(), 9);
        let flags = expanded(&in_force.join("\n"), &[]).unwrap();
        for flag in [
            "--max-pods=110",
            "--bind=0.0.0.0:6443",
            "--pattern=[a-z]: #",
            "--dir=/a",
            "--dir=b, c",
            "--dir=d:1",
        ] {
            assert!(flags.contains(&flag.to_owned()), "{flag} in {flags:?}");
        }
        let lists: Vec<&str> =
            in_force.iter().filter_map(|line| line.split_once(": [")).map(|(name, _)| name).collect();
        assert_eq!(lists, ["nodeIp", "dir"], "brackets are the mark of lists: {text}");
    }
}
