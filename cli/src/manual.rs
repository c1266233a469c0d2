//! Man pages, completions and documented files of a program, written by its hidden command `manual`.

use crate::config_file;
use clap::Command;
use clap_complete::{Shell, generate, generate_to};
use std::path::Path;

/// Options of the hidden command.
#[derive(Debug, Clone, clap::Args)]
pub struct ManualArgs {
    /// Where to write `man/`, `completions/` and `etc/`.
    dir: std::path::PathBuf,
}

impl ManualArgs {
    /// Writes everything; `files` are the subcommands that read options from a file, with the file's name.
    pub fn write(&self, command: Command, files: &[(&str, &str)]) -> std::io::Result<()> {
        write(command, &self.dir, files)
    }
}

/// Options of the command `completion`.
#[derive(Debug, Clone, clap::Args)]
pub struct CompletionArgs {
    /// Shell to complete commands in.
    #[arg(value_enum)]
    shell: CompletionShell,
}

/// Shells with completion.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum CompletionShell {
    /// source <(coracle completion bash)
    Bash,
    /// source <(coracle completion zsh)
    Zsh,
    /// coracle completion fish | source
    Fish,
}

impl CompletionArgs {
    /// Prints the script for the shell.
    pub fn print(&self, command: Command) -> std::io::Result<()> {
        crate::print::print(&self.script(command))
    }

    fn script(&self, mut command: Command) -> String {
        let shell = match self.shell {
            CompletionShell::Bash => Shell::Bash,
            CompletionShell::Zsh => Shell::Zsh,
            CompletionShell::Fish => Shell::Fish,
        };
        let (name, mut script) = (command.get_name().to_owned(), Vec::new());
        generate(shell, &mut command, name, &mut script);
        String::from_utf8_lossy(&script).into_owned()
    }
}

fn write(mut command: Command, dir: &Path, files: &[(&str, &str)]) -> std::io::Result<()> {
    let name = command.get_name().to_owned();
    let documented = without_help(command.clone());
    let (man, completions, etc) = (dir.join("man"), dir.join("completions"), dir.join("etc"));
    for dir in [&man, &completions, &etc] {
        std::fs::create_dir_all(dir)?;
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut command, &name, &completions)?;
    }
    for (subcommand, file) in files {
        if let Some(found) = command.find_subcommand(subcommand) {
            std::fs::write(etc.join(file), config_file::template(found, &name))?;
        }
    }
    clap_mangen::generate_to(documented, man)
}

/// Without the commands `help`, on every level: their pages would say nothing.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_shell_completes_flags() {
        let command = || {
            let run = Command::new("run").arg(clap::Arg::new("x").long("x-y"));
            Command::new("boat").subcommand(run)
        };
        for shell in [CompletionShell::Bash, CompletionShell::Zsh, CompletionShell::Fish] {
            let script = CompletionArgs { shell }.script(command());
            assert!(script.contains("x-y") && script.contains("boat"), "{shell:?}: {script}");
        }
    }

    #[test]
    fn everything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let run = Command::new("run").about("Runs.").arg(clap::Arg::new("x").long("x-y").help("An x."));
        let image = Command::new("image").subcommand(Command::new("ls").about("Lists."));
        let command = Command::new("boat").version("1").about("A boat.").subcommands([run, image]);
        write(command, dir.path(), &[("run", "boat.yaml")]).unwrap();
        let read = |path: &str| std::fs::read_to_string(dir.path().join(path)).unwrap();
        assert!(read("completions/boat.bash").contains("--x-y"));
        assert!(read("man/boat-run.1").contains("An x."));
        assert!(read("etc/boat.yaml").contains("#xY: "));
        let mut pages: Vec<String> = std::fs::read_dir(dir.path().join("man"))
            .unwrap()
            .map(|page| page.unwrap().file_name().into_string().unwrap())
            .collect();
        pages.sort();
        assert_eq!(pages, ["boat-image-ls.1", "boat-image.1", "boat-run.1", "boat.1"]);
        assert!(
            read("completions/boat.fish").contains("the help of the given subcommand"),
            "the command stays"
        );
    }
}
