//! Runs a command in a container.
//!
//! Not with libcontainer: its commands have neither the container's seccomp filter nor its user namespace.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use coracle_keeper::enter::{self, Request, StepError, Steps};
use libcontainer::container::ContainerStatus;
use liboci_cli::Exec;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use oci_spec::runtime::Process;

use super::container::Known;
use super::error::Error;
use super::filter::Filter;
use super::prepare::settings;
use super::terminal::{Console, ConsoleSocket};
use super::{keyring, limits, process, reseal};

/// What the caller adds to the keeper's steps.
struct Command {
    filter: Filter,
    console: Option<ConsoleSocket>,
    uid: u32,
}

impl Steps for Command {
    fn terminal(&self) -> Result<(), StepError> {
        self.console.as_ref().map_or(Ok(()), |console| Ok(console.take_terminal(self.uid, Console::Kept)?))
    }

    fn filter(&self) -> Result<(), StepError> {
        self.filter.load()
    }
}

/// `exec`: with `--detach` it returns as soon as the command runs, otherwise it has the exit code of the command.
pub fn exec(root: &Path, args: &Exec) -> Result<ExitCode, Error> {
    reseal::ensure()?;
    let known = Known::load(root, &args.container_id)?;
    match known.container.status() {
        ContainerStatus::Running => {}
        ContainerStatus::Paused if args.ignore_paused => {}
        ContainerStatus::Paused => return Err(Error::Paused),
        status => return Err(Error::Status { verb: "exec in", status }),
    }
    let settings = settings(known.container.bundle())?;
    let process = match &args.process {
        Some(path) => {
            let text = fs::read(path).map_err(Error::file(path))?;
            serde_json::from_slice(&text).map_err(Error::json(path))?
        }
        None => changed(settings.process, args)?,
    };
    if process.terminal().unwrap_or(false) != args.console_socket.is_some() {
        return Err(Error::Unsupported("a terminal without --console-socket, or the reverse"));
    }
    let request = Request {
        pid: known.pid(),
        start_time: known.start_time,
        cgroup: Some(cgroup(&known, args.cgroup.as_deref())?),
        user_namespace: true,
        keyring: Some(keyring::name(&args.container_id)),
        ..process::request(&process)?
    };
    let command = Command {
        filter: settings.filter,
        console: args.console_socket.as_deref().map(ConsoleSocket::connect).transpose()?,
        uid: request.uid,
    };
    let pid_file = args.pid_file.as_deref().map(fs::File::create).transpose();
    let pid_file = pid_file.map_err(Error::file(args.pid_file.clone().unwrap_or_default()))?;
    limits::set(process.rlimits().as_deref().unwrap_or_default()).map_err(Error::kernel("resource limit"))?;
    let pid = enter::launch(&request, &command)?;
    if let Some(mut file) = pid_file {
        use std::io::Write;
        write!(file, "{pid}").map_err(Error::file("pid file"))?;
    }
    if args.detach {
        return Ok(ExitCode::SUCCESS);
    }
    let code = match waitpid(Pid::from_raw(pid), None).map_err(Error::kernel("wait"))? {
        WaitStatus::Exited(_, code) => code,
        WaitStatus::Signaled(_, signal, _) => 128 + signal as i32,
        _ => 1,
    };
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// The container's process with the changes of the command line.
fn changed(mut process: Process, args: &Exec) -> Result<Process, Error> {
    if args.command.is_empty() {
        return Err(Error::Missing("command"));
    }
    if !args.cap.is_empty() {
        return Err(Error::Unsupported("--cap"));
    }
    process.set_args(Some(args.command.clone())).set_terminal(Some(args.tty));
    let mut env = process.env().clone().unwrap_or_default();
    for (name, value) in &args.env {
        env.retain(|entry| entry.split_once('=').is_none_or(|(known, _)| known != name));
        env.push(format!("{name}={value}"));
    }
    process.set_env(Some(env));
    if let Some(cwd) = &args.cwd {
        process.set_cwd(cwd.clone());
    }
    let mut user = process.user().clone();
    if let Some((uid, gid)) = args.user {
        user.set_uid(uid).set_gid(gid.unwrap_or(0)).set_additional_gids(None);
    }
    if !args.additional_gids.is_empty() {
        let mut groups = user.additional_gids().clone().unwrap_or_default();
        groups.extend(&args.additional_gids);
        user.set_additional_gids(Some(groups));
    }
    process.set_user(user);
    if args.no_new_privs {
        process.set_no_new_privileges(Some(true));
    }
    if let Some(profile) = &args.apparmor {
        process.set_apparmor_profile(Some(profile.clone()));
    }
    if let Some(label) = &args.process_label {
        process.set_selinux_label(Some(label.clone()));
    }
    Ok(process)
}

/// The container's cgroup, or one below it.
fn cgroup(known: &Known, below: Option<&str>) -> Result<PathBuf, Error> {
    let own = known.cgroup()?;
    let Some(below) = below else { return if is_leaf(&own) { Ok(own) } else { known.cgroup_of_process() } };
    let path = Path::new(below.trim_start_matches('/'));
    if path.components().any(|part| !matches!(part, Component::Normal(_))) {
        return Err(Error::Invalid { what: "cgroup", value: below.to_owned() });
    }
    Ok(own.join(path))
}

/// False if the container, such as one that runs systemd, has given its controllers to cgroups below: the kernel allows no
/// process in it then.
fn is_leaf(cgroup: &Path) -> bool {
    fs::read_to_string(cgroup.join("cgroup.subtree_control"))
        .is_ok_and(|controllers| controllers.trim().is_empty())
}
