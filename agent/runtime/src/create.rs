//! Creates and starts containers.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use coracle_keeper::causes::chain;
use libcontainer::container::Container;
use libcontainer::container::builder::ContainerBuilder;
use libcontainer::syscall::syscall::SyscallType;
use liboci_cli::{Create, Run};
use nix::sys::stat::{Mode, umask};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::confine::Confine;
use super::container::{Known, Record, directory};
use super::error::Error;
use super::prepare::{Scratch, prepare};
use super::terminal::ConsoleSocket;
use super::{devices, keyring, limits, reseal, user_namespace};

/// A container to create.
struct Wanted {
    id: String,
    bundle: PathBuf,
    pid_file: Option<PathBuf>,
    console_socket: Option<PathBuf>,
    preserve_fds: i32,
    no_pivot: bool,
    keyring: bool,
}

/// `create`: the process waits to be started.
pub fn create(root: &Path, args: Create) -> Result<(), Error> {
    build(root, Wanted::from(args)).map(drop)
}

/// `run`: create and start. Without `--detach` it waits for the container, deletes it, and has its exit code.
pub fn run(root: &Path, args: Run) -> Result<ExitCode, Error> {
    let (detach, keep) = (args.detach, args.keep);
    if !detach && args.console_socket.is_some() {
        return Err(Error::Unsupported("a terminal without --detach"));
    }
    let mut container = build(root, Wanted::from(args))?;
    if let Err(error) = container.start() {
        let _ = container.delete(true);
        return Err(error.into());
    }
    if detach {
        return Ok(ExitCode::SUCCESS);
    }
    // libcontainer's Pid is that of another version of nix.
    let pid = container.pid().ok_or(Error::Missing("process"))?;
    let code = match waitpid(Pid::from_raw(pid.as_raw()), None).map_err(Error::kernel("wait"))? {
        WaitStatus::Exited(_, code) => code,
        WaitStatus::Signaled(_, signal, _) => 128 + signal as i32,
        _ => 1,
    };
    if !keep {
        container.delete(true)?;
    }
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// `start`: lets the process of a created container exec its program.
pub fn start(root: &Path, id: &str) -> Result<(), Error> {
    let mut known = Known::load(root, id)?;
    let status = known.container.status();
    if !known.container.can_start() {
        return Err(Error::Status { verb: "start", status });
    }
    Ok(known.container.start()?)
}

impl From<Create> for Wanted {
    fn from(args: Create) -> Self {
        Self {
            id: args.container_id,
            bundle: args.bundle,
            pid_file: args.pid_file,
            console_socket: args.console_socket,
            preserve_fds: args.preserve_fds,
            no_pivot: args.no_pivot,
            keyring: !args.no_new_keyring,
        }
    }
}

impl From<Run> for Wanted {
    fn from(args: Run) -> Self {
        Self {
            id: args.container_id,
            bundle: args.bundle,
            pid_file: args.pid_file,
            console_socket: args.console_socket,
            preserve_fds: args.preserve_fds,
            no_pivot: args.no_pivot,
            keyring: !args.no_new_keyring,
        }
    }
}

fn build(root: &Path, wanted: Wanted) -> Result<Container, Error> {
    reseal::ensure()?;
    directory(root, &wanted.id)?;
    DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(Error::file(root))?;
    let root = &fs::canonicalize(root).map_err(Error::file(root))?;
    let bundle = fs::canonicalize(&wanted.bundle).map_err(Error::file(&wanted.bundle))?;
    let mut prepared = prepare(&bundle, &wanted.id)?;
    if prepared.terminal != wanted.console_socket.is_some() {
        return Err(Error::Unsupported("a terminal without --console-socket, or the reverse"));
    }
    let console = wanted.console_socket.as_deref().map(ConsoleSocket::connect).transpose()?;
    let executor = Confine::new(&prepared, console, wanted.keyring.then(|| keyring::name(&wanted.id)))?;
    limits::raise(&prepared.limits)?;
    let scratch = Scratch::create(&bundle)?;
    let opened = user_namespace::open(&mut prepared.spec, &[root, &bundle, &prepared.root])?;
    scratch.write(&prepared.spec)?;
    // What the first process inherits.
    umask(Mode::from_bits_truncate(0o022));
    let mut container = ContainerBuilder::new(wanted.id, SyscallType::default())
        .with_executor(executor)
        .with_root_path(root)?
        .with_preserved_fds(wanted.preserve_fds)
        .validate_id()?
        .as_init(&scratch.dir)
        .with_systemd(false)
        .with_detach(true)
        .with_no_pivot(wanted.no_pivot)
        .build()
        .map_err(|error| Error::Create(chain(&error)))?;
    drop(opened);
    container.state.bundle = bundle;
    let finished = finish(&container, &prepared.devices, wanted.pid_file.as_deref());
    if let Err(error) = finished {
        let _ = container.delete(true);
        return Err(error);
    }
    Ok(container)
}

/// The steps between creation and start: nothing of the image runs yet.
fn finish(
    container: &Container,
    rules: &[oci_spec::runtime::LinuxDeviceCgroup],
    pid_file: Option<&Path>,
) -> Result<(), Error> {
    container.save()?;
    Record::save(container)?;
    let known = Known { container: container.clone(), start_time: 0 };
    devices::apply(&known.cgroup()?, rules)?;
    if let (Some(path), Some(pid)) = (pid_file, container.pid()) {
        fs::write(path, pid.to_string()).map_err(Error::file(path))?;
    }
    Ok(())
}
