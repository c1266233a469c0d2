//! `coracle secrets-encrypt rotate`: a new key, in one step for one server, in three for several.

use super::file::File;
use super::{RotateArgs, Stage, servers, show, status};
use crate::admin::ask;
use crate::operations::encryption::{EncryptionStatus, Entry};
use crate::operations::{ENCRYPTION_RELOAD, ENCRYPTION_REWRITE};
use crate::other_servers;
use crate::output::Output;
use anyhow::{Context as _, bail};
use coracle_apiserver::https_client::HttpsClient;
use http::Method;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the server is asked how far it is.
const PERIOD: Duration = Duration::from_millis(200);

/// Rotates, and prints the state afterwards.
pub(super) async fn run(args: &RotateArgs) -> anyhow::Result<()> {
    let remote = args.server.remote()?;
    let before = status(&remote).await?;
    let path = config_file(&before)?;
    if args.prune && matches!(args.stage, Some(Stage::Add | Stage::Use)) {
        bail!("--prune goes with --stage rewrite, or without --stage");
    }
    let said = match args.stage {
        None => at_once(&remote, &path, &before).await?,
        Some(Stage::Add) => {
            let name = add(&remote, &path).await?;
            format!(
                "key {name} was added, and decrypts only. Copy the file to all other servers, then: --stage use"
            )
        }
        Some(Stage::Use) => {
            let name = promote(&remote, &path, &before).await?;
            format!("key {name} encrypts now. Copy the file to all other servers, then: --stage rewrite")
        }
        Some(Stage::Rewrite) => {
            let first = first_providers(&before.entries);
            let same = |other: &EncryptionStatus| first_providers(&other.entries) == first;
            servers::all(&remote, "does not encrypt with the key of this one", same).await?;
            rewrite(&remote).await?
        }
    };
    let pruned = match args.prune {
        true => prune(&remote, &path).await?,
        false => Vec::new(),
    };
    if args.output == Output::Text {
        println!("{said}");
        if !pruned.is_empty() {
            println!("removed from the file: {}", pruned.join(", "));
        } else if args.stage.is_none_or(|stage| stage == Stage::Rewrite) && !args.prune {
            println!("older keys stay in the file; --prune removes those that nothing is encrypted with");
        }
        println!();
    }
    show(&status(&remote).await?, args.output)
}

/// The file that the server reads, on this machine.
fn config_file(status: &EncryptionStatus) -> anyhow::Result<PathBuf> {
    if let Some(problem) = &status.problem {
        bail!("the server does not use its configuration as it is now: {problem}");
    }
    let path = status.config_file.as_ref().context(
        "the server has no --encryption-provider-config: write a configuration and start the server with it",
    )?;
    let here = std::fs::canonicalize(path);
    here.with_context(|| format!("{} (run this on the machine of the server)", path.display()))
}

/// The providers that encrypt, by entry.
fn first_providers(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.providers.first().map_or("", String::as_str)).collect()
}

/// All steps, for a cluster of one server. What an earlier rotation has left is finished first, without another key.
async fn at_once(remote: &HttpsClient, path: &Path, before: &EncryptionStatus) -> anyhow::Result<String> {
    let others = other_servers::addresses(remote).await?;
    if !others.is_empty() {
        bail!(
            "servers {} run, too, and need the key before it is used: rotate with --stage add, use and rewrite",
            others.join(", ")
        );
    }
    let unfinished = before.stored.iter().any(|stored| !stored.current);
    if !unfinished {
        let name = new_name();
        change(remote, path, |file| {
            file.add(&name)?;
            Ok(file.promote(&name)?)
        })
        .await?;
    }
    let said = rewrite(remote).await?;
    Ok(match unfinished {
        true => format!("an earlier rotation was finished, with its key: {said}"),
        false => said,
    })
}

/// A name that no key has: the time.
fn new_name() -> String {
    jiff::Timestamp::now().strftime("key%Y%m%d%H%M%S%3f").to_string()
}

async fn add(remote: &HttpsClient, path: &Path) -> anyhow::Result<String> {
    let name = new_name();
    change(remote, path, |file| Ok(file.add(&name)?)).await?;
    Ok(name)
}

/// Uses the key that was added last, if every server has it.
async fn promote(remote: &HttpsClient, path: &Path, before: &EncryptionStatus) -> anyhow::Result<String> {
    let added = before.entries.iter().find_map(|entry| {
        let second = entry.providers.get(1)?;
        let unused = before.stored.iter().all(|stored| stored.provider != *second);
        (unused && second.contains(':')).then(|| second.clone())
    });
    let added = added.context("no key was added that is not used yet: begin with --stage add")?;
    let knows = |other: &EncryptionStatus| other.entries.iter().any(|entry| entry.providers.contains(&added));
    servers::all(remote, &format!("does not have key {added}"), knows).await?;
    let name = added.split_once(':').map_or(added.as_str(), |(_, name)| name);
    change(remote, path, |file| Ok(file.promote(name)?)).await?;
    Ok(name.to_owned())
}

/// Changes the file and lets the server read it. If the server refuses, the file is as before.
async fn change(
    remote: &HttpsClient,
    path: &Path,
    change: impl FnOnce(&mut File) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let before = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let named = || path.display().to_string();
    let mut file = File::parse(&before).with_context(named)?;
    change(&mut file).with_context(named)?;
    let write = |text: &str| coracle_cli::private_files::write(path, text.as_bytes()).with_context(named);
    write(&file.text()?)?;
    if let Err(error) = ask(remote, Method::POST, ENCRYPTION_RELOAD, None).await {
        write(&before)?;
        return Err(error.context("the server does not use the changed file, which is as before now"));
    }
    Ok(())
}

/// Encrypts stored values again, and fails if some are left.
async fn rewrite(remote: &HttpsClient) -> anyhow::Result<String> {
    let begun = ask(remote, Method::POST, ENCRYPTION_REWRITE, None).await?;
    let mut now: EncryptionStatus = serde_json::from_value(begun).context("the server's answer")?;
    while now.rewrite.running {
        tokio::time::sleep(PERIOD).await;
        now = status(remote).await?;
    }
    if let Some(error) = &now.rewrite.error {
        bail!("not all values were encrypted again, run it again: {error}");
    }
    let left: u64 = now.stored.iter().filter(|stored| !stored.current).map(|stored| stored.count).sum();
    if left > 0 {
        bail!("{left} values are still under other keys, run it again");
    }
    let (seen, written) = (now.rewrite.seen, now.rewrite.written);
    Ok(format!("{written} of {seen} values were encrypted again, and none is left under another key"))
}

/// Removes keys that no stored value needs.
async fn prune(remote: &HttpsClient, path: &Path) -> anyhow::Result<Vec<String>> {
    let stored = status(remote).await?.stored;
    let used: BTreeSet<String> = stored.into_iter().map(|stored| stored.provider).collect();
    let mut removed = Vec::new();
    change(remote, path, |file| {
        removed = file.prune(&used);
        Ok(())
    })
    .await?;
    Ok(removed)
}
