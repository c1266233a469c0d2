//! Arguments, environment, capabilities and user of a container's process.

use coracle_proto::cri;
use oci_spec::runtime::{self, LinuxCapabilities, Process};

use super::super::image::ImageConfig;
use super::{Error, Facts, Host, capabilities, labels};

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The `process` section.
pub fn generate(
    config: &cri::ContainerConfig,
    image: &ImageConfig,
    security: &cri::LinuxContainerSecurityContext,
    facts: &Facts,
    host: &Host,
) -> Result<Process, Error> {
    let adjust = config.linux.as_ref().and_then(|l| l.resources.as_ref()).map_or(0, |r| r.oom_score_adj);
    let adjust = adjust.max(host.oom_score_adj_min);
    let mut user = runtime::User::default();
    user.set_uid(facts.user.uid).set_gid(facts.user.gid).set_additional_gids(Some(facts.user.groups.clone()));
    let mut process = Process::default();
    process
        .set_capabilities(Some(sets(security, host)?))
        .set_terminal(Some(config.tty))
        .set_user(user)
        .set_args(Some(args(config, image)?))
        .set_env(Some(env(config, image, &facts.hostname)))
        .set_cwd(cwd(config, image)?.into())
        .set_rlimits(None)
        // youki takes a `false` for a wish to load the filter after the capabilities are gone, which fails.
        .set_no_new_privileges(security.no_new_privs.then_some(true))
        // The kernel refuses values far below this maximum.
        .set_oom_score_adj(Some(i32::try_from(adjust).unwrap_or(i32::MAX)))
        .set_apparmor_profile(labels::apparmor(security, host)?)
        .set_selinux_label(facts.selinux.as_ref().map(|labels| labels.process.clone()));
    Ok(process)
}

fn sets(security: &cri::LinuxContainerSecurityContext, host: &Host) -> Result<LinuxCapabilities, Error> {
    let set = capabilities::typed(capabilities::effective(security, &host.capabilities)?)?;
    let ambient = security.capabilities.iter().flat_map(|c| &c.add_ambient_capabilities);
    let ambient = ambient
        .map(|name| match capabilities::number(name) {
            Some(n) => Ok(capabilities::NAMES[usize::from(n)]),
            None => Err(Error::Capability(name.clone())),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let ambient = capabilities::typed(ambient)?;
    let mut sets = LinuxCapabilities::default();
    sets.set_bounding(Some(set.clone()))
        .set_effective(Some(set.clone()))
        .set_permitted(Some(set))
        .set_inheritable(Some(ambient.clone()))
        .set_ambient(Some(ambient));
    Ok(sets)
}

/// The pod's command replaces the image's entry point and its arguments; its arguments replace only those.
pub fn args(config: &cri::ContainerConfig, image: &ImageConfig) -> Result<Vec<String>, Error> {
    let (command, args) = if !config.command.is_empty() {
        (&config.command, &config.args)
    } else if !config.args.is_empty() {
        (&image.entrypoint, &config.args)
    } else {
        (&image.entrypoint, &image.cmd)
    };
    let args: Vec<String> = command.iter().chain(args).cloned().collect();
    if args.is_empty() { Err(Error::NoCommand) } else { Ok(args) }
}

/// Later ones win over earlier ones of the same name, in the place of the first.
fn env(config: &cri::ContainerConfig, image: &ImageConfig, hostname: &str) -> Vec<String> {
    let mut env: Vec<String> = vec![PATH.into()];
    if config.tty {
        env.push("TERM=xterm".into());
    }
    env.push(format!("HOSTNAME={hostname}"));
    let own = config.envs.iter().map(|kv| format!("{}={}", kv.key, kv.value));
    for entry in image.env.iter().cloned().chain(own) {
        let name = entry.split('=').next().unwrap_or_default().to_owned();
        match env.iter_mut().find(|e| e.split('=').next() == Some(&name)) {
            Some(old) => *old = entry,
            None => env.push(entry),
        }
    }
    env
}

fn cwd(config: &cri::ContainerConfig, image: &ImageConfig) -> Result<String, Error> {
    let cwd = [&config.working_dir, &image.working_dir].into_iter().find(|dir| !dir.is_empty());
    let Some(cwd) = cwd else { return Ok("/".into()) };
    if !cwd.starts_with('/') {
        return Err(Error::Relative { what: "working directory", path: cwd.clone() });
    }
    Ok(cwd.clone())
}
