//! `coracle kubeconfig`: prints a kubeconfig of a cluster, or merges it into the user's own.

// One cluster, one user, one context.
mod entry;
// Changes of a kubeconfig that has others too.
mod merge;
// The file: locked, replaced as a whole, with a backup.
mod file;
// That of the user who ran sudo.
pub(crate) mod of_user;

pub(crate) use entry::Entry;

use crate::cluster_args::{ClusterArgs, context_of};
use crate::output::Output;
use crate::sudo;
use anyhow::{Context as _, bail};
use clap::Args;
use coracle_pki::authority::{Authority, Profile};
use entry::Identity;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Certificates cannot be revoked one by one, so that of a user is short-lived unless more is asked for.
const USER_LIFE: &str = "30d";
/// The longest life in seconds, a hundred years.
const LONGEST_LIFE: i64 = 36_500 * 86_400;

/// Options of `coracle kubeconfig`.
#[derive(Debug, Clone, Args)]
pub struct KubeconfigCommandArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Merge it into a kubeconfig, and make it the current context there; without FILE into the first file of $KUBECONFIG or
    /// ~/.kube/config, that of the user who ran sudo. Other entries stay, and a backup is kept beside it.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    merge: Option<Option<PathBuf>>,
    /// Remove what --merge added, instead.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, conflicts_with_all = ["merge", "user", "server"])]
    remove: Option<Option<PathBuf>>,
    /// With --merge, leave the current context as it is.
    #[arg(long, requires = "merge")]
    keep_current: bool,
    /// Issue a client certificate for this user, instead of using the administrator's. Roles must be bound to the user or a
    /// group; needs the key of the cluster's CA.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Group of the user; may be repeated.
    #[arg(long, value_name = "NAME", requires = "user")]
    group: Vec<String>,
    /// Lifetime of the user's certificate, such as 12h or 7d.
    #[arg(long, default_value = USER_LIFE, value_parser = lifetime)]
    ttl: Duration,
    /// Name of the context and the cluster [default: coracle, or coracle-NAME of a cluster with a name].
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Address of the API server, instead of that in the administrator's kubeconfig.
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Format of the output; `text` is a kubeconfig in YAML, or with --merge and --remove what was done.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Runs `coracle kubeconfig`.
pub fn run(args: &KubeconfigCommandArgs) -> anyhow::Result<()> {
    let dir = args.cluster.data_dir();
    let context = args.context.clone().unwrap_or_else(|| context_of(&dir));
    if context.is_empty() {
        bail!("--context: the name is empty");
    }
    if let Some(path) = &args.remove {
        return remove(args, path.as_deref(), &context);
    }
    let mut entry = Entry::of_admin(&dir, &context)?;
    if let Some(server) = &args.server {
        if !server.starts_with("https://") {
            bail!("--server {server}: want an address that begins with https://");
        }
        entry.server.clone_from(server);
    }
    if let Some(user) = &args.user {
        entry.identity = issue(&dir, user, &args.group, args.ttl)?;
    }
    match &args.merge {
        Some(path) => merge(args, path.as_deref(), &entry),
        None => Ok(args.output.print(&entry.config(), || entry.text())?),
    }
}

/// The value of `--ttl`.
fn lifetime(text: &str) -> anyhow::Result<Duration> {
    match crate::token::seconds(text)? {
        life @ 1..=LONGEST_LIFE => Ok(Duration::from_secs(life.unsigned_abs())),
        _ => bail!("want more than nothing and at most 36500d"),
    }
}

/// A new certificate of a user, signed by the CA of the cluster.
fn issue(dir: &Path, user: &str, groups: &[String], life: Duration) -> anyhow::Result<Identity> {
    if user.is_empty() || user.len() > 64 {
        bail!("--user: want a name of 1 to 64 bytes");
    }
    let pki = dir.join("pki");
    let authority = Authority::read(&pki, "ca")?.with_context(|| {
        format!("{}/ca.key cannot be read: run it as root on the machine of a server", pki.display())
    })?;
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    let signed = authority.sign(&Profile::client(user, &groups).lasting(life))?;
    Ok(Identity::new(user, &signed))
}

fn merge(args: &KubeconfigCommandArgs, path: Option<&Path>, entry: &Entry) -> anyhow::Result<()> {
    let path = destination(path)?;
    let changed = file::update(&path, |there| merge::add(there, entry, !args.keep_current))?;
    let answer = json!({"file": path, "context": entry.context, "backup": changed.backup});
    let text = || {
        let backup =
            changed.backup.as_ref().map(|backup| format!("; the former file is {}", backup.display()));
        let backup = backup.unwrap_or_default();
        format!("{} has the context {}{backup}\n", path.display(), entry.context)
    };
    Ok(args.output.print(&answer, text)?)
}

fn remove(args: &KubeconfigCommandArgs, path: Option<&Path>, context: &str) -> anyhow::Result<()> {
    let path = destination(path)?;
    let changed = file::update(&path, |there| merge::remove(there, context))?;
    let answer =
        json!({"file": path, "context": context, "removed": changed.changed, "backup": changed.backup});
    let text = || match changed.changed {
        true => format!("the context {context} is no longer in {}\n", path.display()),
        false => format!("{} has no context {context}\n", path.display()),
    };
    Ok(args.output.print(&answer, text)?)
}

/// The kubeconfig to change. With sudo it is that of the user who ran it, whose rights this process has from then on.
fn destination(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let given = given.map(std::path::absolute).transpose()?;
    let user = sudo::invoker();
    if let Some(user) = &user {
        user.assume()?;
    }
    if let Some(path) = given {
        return Ok(path);
    }
    let listed = std::env::var_os("KUBECONFIG").unwrap_or_default();
    if let Some(first) = std::env::split_paths(&listed).find(|path| !path.as_os_str().is_empty()) {
        return Ok(std::path::absolute(first)?);
    }
    let home = user.map(|user| user.home).or_else(|| std::env::var_os("HOME").map(PathBuf::from));
    let home = home.context("neither KUBECONFIG nor HOME is set: name the file, --merge=FILE")?;
    Ok(home.join(".kube/config"))
}
