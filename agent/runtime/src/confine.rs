//! Confines the first process of a container and execs its program.
//!
//! libcontainer calls [`Executor::validate`] in the container, as its root, with all capabilities, and [`Executor::exec`] once the
//! container is started. The steps and their order are those of runc, and of `coracle_keeper::enter::confine`.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::ffi::{CString, NulError};
use std::rc::Rc;

use coracle_keeper::causes::chain;
use coracle_keeper::enter::label::{LabelError, Labels};
use coracle_keeper::enter::program::{self, ProgramError};
use coracle_keeper::enter::{Capabilities, Request, StepError, confine};
use libcontainer::workload::{Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError};
use nix::errno::Errno;
use nix::sys::stat::{Mode, umask};
use oci_spec::runtime::{PosixRlimit, Spec};

use super::error::Error;
use super::filter::Filter;
use super::prepare::Prepared;
use super::rootfs::{Rootfs, RootfsError};
use super::terminal::{Console, ConsoleSocket, TerminalError};
use super::{keyring, limits};

/// Why the program does not run. Users see the wording of runc.
#[derive(Debug, thiserror::Error)]
enum ConfineError {
    #[error("{step}")]
    Step {
        step: &'static str,
        #[source]
        errno: Errno,
    },
    #[error("seccomp filter")]
    Filter(#[source] StepError),
    #[error(transparent)]
    Rootfs(#[from] RootfsError),
    #[error("terminal")]
    Terminal(#[from] TerminalError),
    #[error(transparent)]
    Label(#[from] LabelError),
    #[error(transparent)]
    User(#[from] confine::ConfineError),
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error("an argument or variable")]
    Nul(#[from] NulError),
    #[error("exec {path}: {}", errno.desc().to_lowercase())]
    Exec { path: String, errno: Errno },
}

/// Confines and execs a process.
#[derive(Clone)]
pub struct Confine(Rc<Parts>);

struct Parts {
    request: Request,
    filter: Filter,
    labels: Labels,
    rootfs: Rootfs,
    limits: Vec<PosixRlimit>,
    console: Option<ConsoleSocket>,
    /// Name of the session keyring; none to keep that of the caller.
    keyring: Option<String>,
    program: OnceCell<Program>,
}

struct Program {
    path: String,
    env: Vec<String>,
}

fn step<T>(step: &'static str, result: Result<T, Errno>) -> Result<T, ConfineError> {
    result.map_err(|errno| ConfineError::Step { step, errno })
}

impl Confine {
    /// Opens what it needs of the host.
    pub fn new(
        prepared: &Prepared,
        console: Option<ConsoleSocket>,
        keyring: Option<String>,
    ) -> Result<Self, Error> {
        Ok(Self(Rc::new(Parts {
            request: prepared.request.clone(),
            filter: prepared.filter.clone(),
            labels: Labels::open(&prepared.request).map_err(Error::file("/proc"))?,
            rootfs: prepared.rootfs.clone(),
            limits: prepared.limits.clone(),
            console,
            keyring,
            program: OnceCell::new(),
        })))
    }
}

impl Parts {
    fn confine(&self) -> Result<(), ConfineError> {
        let request = &self.request;
        if let Some(name) = &self.keyring {
            step("session keyring", keyring::join(name))?;
        }
        self.rootfs.complete()?;
        match &self.console {
            Some(console) => console.take_terminal(request.uid, Console::Mounted)?,
            None => confine::chown_streams(request.uid),
        }
        self.rootfs.restrict()?;
        umask(Mode::from_bits_truncate(request.umask.unwrap_or(0o022)));
        self.labels.take(request)?;
        step("resource limits", limits::set(&self.limits))?;
        if !request.no_new_privileges {
            self.filter.load().map_err(ConfineError::Filter)?;
        }
        // As runc, without those that the node itself does not have.
        let sets = within(&request.capabilities, step("capabilities", confine::permitted())?);
        confine::take_user(request, &sets)?;
        let mut env = request.env.clone();
        if !env.iter().any(|entry| entry.starts_with("HOME=")) {
            env.push(format!("HOME={}", program::home(request.uid)));
        }
        let path = program::find(request.args.first().map_or("", String::as_str), &env)?;
        let _ = self.program.set(Program { path, env });
        Ok(())
    }

    fn exec(&self) -> Result<Infallible, ConfineError> {
        let Some(Program { path, env }) = self.program.get() else {
            return Err(ConfineError::Step { step: "exec before it is confined", errno: Errno::EINVAL });
        };
        let strings = |list: &[String]| -> Result<Vec<CString>, NulError> {
            list.iter().map(|text| CString::new(text.as_str())).collect()
        };
        let (args, env) = (strings(&self.request.args)?, strings(env)?);
        let file = CString::new(path.as_str())?;
        confine::default_signals();
        if self.request.no_new_privileges {
            self.filter.load().map_err(ConfineError::Filter)?;
        }
        nix::unistd::execve(&file, &args, &env)
            .map_err(|errno| ConfineError::Exec { path: path.clone(), errno })
    }
}

/// The sets, without what is not in `limit`.
fn within(sets: &Capabilities, limit: u64) -> Capabilities {
    Capabilities {
        bounding: sets.bounding & limit,
        effective: sets.effective & limit,
        permitted: sets.permitted & limit,
        inheritable: sets.inheritable & limit,
        ambient: sets.ambient & limit,
    }
}

impl Executor for Confine {
    fn validate(&self, _: &Spec) -> Result<(), ExecutorValidationError> {
        self.0.confine().map_err(|error| ExecutorValidationError::ArgValidationError(chain(&error)))
    }

    /// The environment is an argument of exec: in the order of the configuration.
    fn setup_envs(&self, _: HashMap<String, String>) -> Result<(), ExecutorSetEnvsError> {
        Ok(())
    }

    fn exec(&self, _: &Spec) -> Result<(), ExecutorError> {
        match self.0.exec() {
            Ok(never) => match never {},
            Err(error) => Err(ExecutorError::Other(chain(&error))),
        }
    }
}
