//! Command lines of the OCI runtime.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::objects::Container;
use super::paths::Paths;
use super::record::ContainerRecord;
use coracle_keeper::wire::LaunchSpec;

/// The configured OCI runtime.
pub(crate) struct OciRuntime {
    program: PathBuf,
    paths: Arc<Paths>,
}

impl OciRuntime {
    pub(crate) fn new(program: PathBuf, paths: Arc<Paths>) -> Self {
        Self { program, paths }
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Name of the one handler besides the default: the runtime's own.
    pub(crate) fn handler_name(&self) -> String {
        self.program.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The OCI runtime that started the container; the configured one may have changed since.
    pub(crate) fn program_of(&self, container: &Container) -> PathBuf {
        let started = container.record.lock().runtime.clone();
        if started.as_os_str().is_empty() { self.program.clone() } else { started }
    }

    /// A runtime with the options every verb needs.
    pub(crate) fn command(&self, program: &Path, log: &Path) -> Vec<String> {
        let state = self.paths.runtime_state();
        let text = |path: &Path| path.display().to_string();
        let mut argv = vec![text(program)];
        argv.extend(["--root".to_owned(), text(&state), "--log".to_owned(), text(log)]);
        argv.extend(["--log-format", "json"].map(str::to_owned));
        argv
    }

    /// The command that creates and starts a container.
    pub(crate) fn run_spec(&self, record: &ContainerRecord) -> LaunchSpec {
        self.launch_spec(record, &["run", "--detach"])
    }

    /// The command that creates a container, whose process then waits to be started.
    pub(crate) fn create_spec(&self, record: &ContainerRecord) -> LaunchSpec {
        self.launch_spec(record, &["create"])
    }

    fn launch_spec(&self, record: &ContainerRecord, verb: &[&str]) -> LaunchSpec {
        let dir = self.paths.bundle(&record.id);
        let pid_file = self.paths.transient(&record.id, "pid");
        let runtime_log = self.paths.transient(&record.id, "log");
        let mut argv = self.command(&self.program, &runtime_log);
        argv.extend(verb.iter().map(|&word| word.to_owned()));
        argv.extend(["--bundle".to_owned(), dir.display().to_string()]);
        argv.extend(["--pid-file".to_owned(), pid_file.display().to_string(), record.id.clone()]);
        LaunchSpec {
            id: record.id.clone(),
            console_at: argv.len() - 1,
            argv,
            dir,
            pid_file,
            runtime_log,
            log: (!record.log.as_os_str().is_empty()).then(|| record.log.clone()),
            tty: record.config.tty,
            stdin: record.config.stdin,
            stdin_once: record.config.stdin_once,
        }
    }
}
