//! OCI runtimes that the engine knows, and what it knows of them.

use std::path::{Path, PathBuf};

/// A runtime whose containers consist only of namespaces and cgroups of this kernel (no VMs).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Implementation {
    Runc,
    Crun,
    Youki,
    /// Our own: `agent/runtime`.
    Coracle,
}

impl Implementation {
    pub(crate) const ALL: [Self; 4] = [Self::Runc, Self::Crun, Self::Youki, Self::Coracle];

    /// File name of its program.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Runc => "runc",
            Self::Crun => "crun",
            Self::Youki => "youki",
            Self::Coracle => "coracle-runtime",
        }
    }

    /// Name of its handler: what a RuntimeClass names.
    pub(crate) fn handler(self) -> &'static str {
        match self {
            Self::Coracle => "coracle",
            other => other.program(),
        }
    }

    /// By the file name of a program.
    pub(crate) fn of(program: &Path) -> Option<Self> {
        let name = program.file_name()?.to_str()?;
        Self::ALL.into_iter().find(|known| known.program() == name)
    }

    /// By what a program says of itself with `--version`: its name is the first word.
    pub(crate) fn from_version(output: &[u8]) -> Option<Self> {
        let name = output.split(u8::is_ascii_whitespace).next()?;
        Self::ALL.into_iter().find(|known| known.program().as_bytes() == name)
    }

    /// Name of the session keyring that a container and its commands share; others have one each.
    pub(crate) fn keyring(self, container: &str) -> Option<String> {
        matches!(self, Self::Runc | Self::Coracle).then(|| format!("_ses.{container}"))
    }

    /// Its program: our own is beside this one, others are searched for in `PATH`.
    pub(crate) fn find(self, own: Option<&Path>) -> Option<PathBuf> {
        if self == Self::Coracle {
            return own.map(Path::to_owned);
        }
        let dirs = std::env::var_os("PATH")?;
        std::env::split_paths(&dirs).map(|dir| dir.join(self.program())).find(|path| path.is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_by_file_and_by_what_they_say() {
        for (path, wanted) in [
            ("runc", Some(Implementation::Runc)),
            ("/usr/bin/crun", Some(Implementation::Crun)),
            ("/x/coracle-runtime", Some(Implementation::Coracle)),
            ("/x/runsc", None),
            ("/", None),
        ] {
            assert_eq!(Implementation::of(Path::new(path)), wanted, "{path}");
        }
        for (text, wanted) in [
            ("runc version 1.1.5\ncommit: x", Some(Implementation::Runc)),
            ("youki version: 0.7.0", Some(Implementation::Youki)),
            ("coracle-runtime 0.1.0\n", Some(Implementation::Coracle)),
            ("runcx 1", None),
            ("", None),
        ] {
            assert_eq!(Implementation::from_version(text.as_bytes()), wanted, "{text}");
        }
    }
}
