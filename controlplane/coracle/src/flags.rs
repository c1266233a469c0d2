//! The options of the server as `/flagz` shows them: with the values that count, and without secrets.

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use coracle_cli::config_file;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What is shown instead of a secret.
const CLASSIFIED: &str = "CLASSIFIED";
/// Lists of the file that count together with those of the command line; all others are replaced by them.
const JOINED: [&str; 5] =
    ["tls-san", "enable-admission-plugins", "disable-admission-plugins", "feature-gates", "runtime-config"];

/// The values of all options of a command: those of the command line and the environment, else of the file, else the defaults.
pub fn reported(
    command: &Command,
    matches: &ArgMatches,
    file: &Map<String, Value>,
) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for argument in command.get_arguments() {
        let Some(long) = argument.get_long() else { continue };
        let id = argument.get_id().as_str();
        let given: Vec<String> = matches
            .try_get_raw(id)
            .ok()
            .flatten()
            .into_iter()
            .flatten()
            .map(|value| value.to_string_lossy().into_owned())
            .collect();
        let is_given = matches.value_source(id).is_some_and(|source| source != ValueSource::DefaultValue);
        let values = match file.get(&config_file::key(long)).filter(|value| !value.is_null()) {
            // A switch that the file turns on is on.
            Some(Value::Bool(true)) => vec!["true".into()],
            Some(value) if !is_given => plain(value),
            Some(value) if JOINED.contains(&long) => plain(value).into_iter().chain(given).collect(),
            _ => given,
        };
        all.insert(long.to_owned(), shown(long, values.join(",")));
    }
    all
}

/// The texts of a value; those of a map are `name=value`, as on the command line.
fn plain(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(plain).collect(),
        Value::Object(pairs) => {
            pairs.iter().map(|(name, value)| format!("{name}={}", plain(value).join(","))).collect()
        }
        other => vec![other.to_string()],
    }
}

/// A value, unless it may be a secret: by the name of its option, or as a password or in the query of a URL.
pub(crate) fn shown(long: &str, value: String) -> String {
    const WORDS: [&str; 8] =
        ["token", "password", "passphrase", "secret", "key", "keys", "credential", "credentials"];
    let is_place = ["-file", "-path", "-dir"].iter().any(|end| long.ends_with(end));
    let is_secret = !is_place && long.split('-').any(|word| WORDS.contains(&word));
    let may_tell = value.contains("://") && value.contains(['@', '?']);
    if !value.is_empty() && (is_secret || may_tell) { CLASSIFIED.into() } else { value }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::ServerArgs;
    use clap::Args as _;
    use serde_json::json;

    fn flags(arguments: &[&str], file: Value) -> BTreeMap<String, String> {
        let command = ServerArgs::augment_args(Command::new("server"));
        let all = [&["server"][..], arguments].concat();
        let matches = command.clone().get_matches_from(all);
        reported(&command, &matches, file.as_object().unwrap())
    }

    #[test]
    fn the_values_that_count_are_shown() {
        let file = json!({"bind": "127.0.0.1:1", "serviceCidr": "10.1.0.0/16", "tlsSan": ["a", "b"], "apiOnly": true});
        let shown = flags(&["--service-cidr", "10.2.0.0/16", "--tls-san", "c"], file);
        for (name, value) in [
            ("bind", "127.0.0.1:1"),
            ("service-cidr", "10.2.0.0/16"),
            ("tls-san", "a,b,c"),
            ("api-only", "true"),
            ("cluster-cidr", "10.244.0.0/16"),
            ("cluster-reset", "false"),
            ("advertise", ""),
        ] {
            assert_eq!(shown[name], value, "{name}");
        }
        assert!(!shown.contains_key("help"));
    }

    #[test]
    fn lists_are_those_that_count() {
        let file = json!({"authorizationMode": ["AlwaysAllow"], "tlsSan": "a",
            "runtimeConfig": {"a/v1": true, "b/v1": false}});
        let shown = flags(&["--authorization-mode", "RBAC", "--runtime-config", "c/v1=true"], file.clone());
        assert_eq!(shown["authorization-mode"], "RBAC", "in place of that of the file");
        assert_eq!(shown["runtime-config"], "a/v1=true,b/v1=false,c/v1=true");
        let shown = flags(&[], file);
        assert_eq!((shown["authorization-mode"].as_str(), shown["tls-san"].as_str()), ("AlwaysAllow", "a"));
    }

    #[test]
    fn secrets_are_not_shown_wherever_they_come_from() {
        let url = "https://ann:hush@etcd:2379";
        for shown in [
            flags(&["--token", "hush", "--datastore", url, "--otlp-endpoint", url], json!({})),
            flags(&[], json!({"token": "hush", "datastore": url, "otlpEndpoint": url})),
            flags(&[], json!({"token": {"a": "hush"}, "datastore": ["https://b", url], "tlsSan": [url]})),
        ] {
            assert_eq!((shown["token"].as_str(), shown["datastore"].as_str()), (CLASSIFIED, CLASSIFIED));
            assert!(!shown.values().any(|value| value.contains("hush")), "{shown:?}");
        }
        let shown = flags(&["--otlp-endpoint", "https://c/v1/traces?key=hush"], json!({}));
        assert_eq!(shown["otlp-endpoint"], CLASSIFIED);
        let shown = flags(&["--token-file", "/etc/token", "--etcd-key-file", "/k"], json!({}));
        assert_eq!((shown["token-file"].as_str(), shown["etcd-key-file"].as_str()), ("/etc/token", "/k"));
        assert_eq!(shown["token"], "", "there is none");
    }

    #[test]
    fn what_is_classified_is_known_for_every_option() {
        let command = ServerArgs::augment_args(Command::new("server"));
        let names = command.get_arguments().filter_map(|argument| argument.get_long());
        let hidden: Vec<&str> = names.filter(|name| shown(name, "x".into()) == CLASSIFIED).collect();
        assert_eq!(
            hidden,
            ["token"],
            "an option that is added may be a secret: see to it that it is shown, or not"
        );
    }
}
