//! An environment variable for every option. The command line takes precedence over the environment, and the environment over the
//! file of `--config`.

use clap::{Arg, Command};

/// Options whose values are not shown in the help.
const SECRET: [&str; 2] = ["creds", "token"];

/// The command with a variable for every option that has none, such as `CORACLE_SERVER_TLS_SAN` for `--tls-san`. Options in `without`
/// belong on the command line only.
pub fn with_variables(command: Command, prefix: &str, without: &[&str]) -> Command {
    command.mut_args(|argument| {
        let long =
            argument.get_long().filter(|long| !["help", "version"].contains(long) && !without.contains(long));
        match long.map(|long| variable(prefix, long)) {
            Some(name) if argument.get_env().is_none() => {
                let secret = argument.get_long().is_some_and(|long| SECRET.contains(&long));
                argument.env(name).hide_env_values(secret)
            }
            _ => argument,
        }
    })
}

/// The same for all subcommands, with their names before that of the option: `CORACLE_TOKEN_CREATE_TTL` is `--ttl` of `token create`.
/// Hidden commands have none, because the program starts them itself.
pub fn with_variables_of_subcommands(command: Command, prefix: &str, without: &[&str]) -> Command {
    let visible = command.get_subcommands().filter(|each| !each.is_hide_set());
    let names: Vec<String> = visible.map(|each| each.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        let prefix = format!("{prefix}{}_", upper(&name));
        command.mut_subcommand(name, |each| {
            with_variables_of_subcommands(with_variables(each, &prefix, without), &prefix, without)
        })
    })
}

/// The name of a variable. The parser wants names that last as long as the program; they are made once.
fn variable(prefix: &str, long: &str) -> &'static str {
    Box::leak(format!("{prefix}{}", upper(long)).into_boxed_str())
}

fn upper(name: &str) -> String {
    name.replace('-', "_").to_ascii_uppercase()
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
    fn options_of_subcommands_have_the_names_of_these_in_their_variables() {
        let ttl = Arg::new("ttl").long("ttl");
        let hidden = Command::new("hold").hide(true).arg(ttl.clone());
        let create = Command::new("create").arg(ttl).arg(Arg::new("token").long("token"));
        let command = Command::new("coracle").subcommand(hidden);
        let command = command.subcommand(Command::new("revoke-node").subcommand(create));
        let command = with_variables_of_subcommands(command, "CORACLE_", &[]);
        let create = command.find_subcommand("revoke-node").unwrap().find_subcommand("create").unwrap();
        let variables =
            create.get_arguments().map(|argument| argument.get_env().and_then(|name| name.to_str()));
        let expected = ["CORACLE_REVOKE_NODE_CREATE_TTL", "CORACLE_REVOKE_NODE_CREATE_TOKEN"];
        assert_eq!(variables.collect::<Vec<_>>(), expected.map(Some));
        let secret: Vec<bool> = create.get_arguments().map(Arg::is_hide_env_values_set).collect();
        assert_eq!(secret, [false, true]);
        let hidden = command.find_subcommand("hold").unwrap().get_arguments();
        assert_eq!(hidden.filter_map(Arg::get_env).count(), 0);
    }

    #[test]
    fn variables_of_other_programs_do_not_come_before_the_file() {
        // Every process has it.
        assert!(std::env::var_os("PATH").is_some());
        assert!(!is_set(&Arg::new("path").env("PATH")));
        assert!(!is_set(&Arg::new("x").env("CORACLE_NO_SUCH_VARIABLE")));
    }
}
