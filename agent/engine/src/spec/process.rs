//! Arguments, environment, capabilities and user of a container's process.

use coracle_proto::cri;
use serde_json::{Value, json};

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
) -> Result<Value, Error> {
    let set = capabilities::effective(security, &host.capabilities)?;
    let ambient = security.capabilities.iter().flat_map(|c| &c.add_ambient_capabilities);
    let ambient = ambient
        .map(|name| match capabilities::number(name) {
            Some(n) => Ok(capabilities::NAMES[usize::from(n)]),
            None => Err(Error::Capability(name.clone())),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut process = json!({
        "terminal": config.tty,
        "user": { "uid": facts.user.uid, "gid": facts.user.gid, "additionalGids": facts.user.groups },
        "args": args(config, image)?,
        "env": env(config, image, &facts.hostname),
        "cwd": cwd(config, image)?,
        "capabilities": {
            "bounding": set,
            "effective": set,
            "permitted": set,
            "inheritable": ambient,
            "ambient": ambient,
        },
    });
    // youki takes a `false` for a wish to load the filter after the capabilities are gone, which fails.
    if security.no_new_privs {
        process["noNewPrivileges"] = true.into();
    }
    let adjust = config.linux.as_ref().and_then(|l| l.resources.as_ref()).map_or(0, |r| r.oom_score_adj);
    process["oomScoreAdj"] = adjust.max(host.oom_score_adj_min).into();
    if let Some(profile) = labels::apparmor(security, host)? {
        process["apparmorProfile"] = profile.into();
    }
    Ok(process)
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
