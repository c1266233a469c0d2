//! An environment variable for every option of a program that runs as a service. The command line takes precedence over the
//! environment, and the environment over the file of `--config`.

use clap::{Arg, Command};

/// The command with a variable for every option that has none, such as `CORACLE_SERVER_TLS_SAN` for `--tls-san`. Options in `without`
/// belong on the command line only.
pub fn with_variables(command: Command, prefix: &str, without: &[&str]) -> Command {
    command.mut_args(|argument| {
        let long =
            argument.get_long().filter(|long| !["help", "version"].contains(long) && !without.contains(long));
        match long.map(|long| variable(prefix, long)) {
            Some(name) if argument.get_env().is_none() => argument.env(name),
            _ => argument,
        }
    })
}

/// The name of a variable. The parser wants names that last as long as the program; they are made once.
fn variable(prefix: &str, long: &str) -> &'static str {
    Box::leak(format!("{prefix}{}", long.replace('-', "_").to_ascii_uppercase()).into_boxed_str())
}

/// Whether the environment sets an option, so that the file does not. Variables that other programs use as well do not count.
pub fn is_set(argument: &Arg) -> bool {
    let name = argument.get_env().filter(|name| name.to_string_lossy().starts_with("CORACLE_"));
    name.and_then(std::env::var_os).is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::ArgAction;

    #[test]
    fn every_option_has_a_variable_but_those_of_the_command_line() {
        let command = Command::new("server")
            .arg(Arg::new("tls-san").long("tls-san").action(ArgAction::Append))
            .arg(Arg::new("data-dir").long("data-dir").env("CORACLE_DATA_DIR"))
            .arg(Arg::new("cluster-reset").long("cluster-reset").action(ArgAction::SetTrue))
            .arg(Arg::new("file"));
        let command = with_variables(command, "CORACLE_SERVER_", &["cluster-reset"]);
        let variables: Vec<Option<&str>> = command
            .get_arguments()
            .map(|argument| argument.get_env().and_then(|name| name.to_str()))
            .collect();
        assert_eq!(variables, [Some("CORACLE_SERVER_TLS_SAN"), Some("CORACLE_DATA_DIR"), None, None]);
    }

    #[test]
    fn variables_of_other_programs_do_not_come_before_the_file() {
        // Every process has it.
        assert!(std::env::var_os("PATH").is_some());
        assert!(!is_set(&Arg::new("path").env("PATH")));
        assert!(!is_set(&Arg::new("x").env("CORACLE_NO_SUCH_VARIABLE")));
    }
}
