//! `coracle secrets-encrypt rotate`: a new key. It decrypts on every server before one encrypts with it.

use super::file::File;
use super::{RotateArgs, Stage, servers, show, status};
use crate::admin::ask;
use crate::operations::encryption::{EncryptionStatus, Entry};
use crate::operations::{ENCRYPTION_RELOAD, ENCRYPTION_REWRITE};
use crate::output::Output;
use anyhow::{Context as _, bail};
use coracle_apiserver::https_client::HttpsClient;
use http::Method;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Digits of the time in the name of a key: to the millisecond.
const NAME_DIGITS: usize = 17;
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
            format!("key {name} was added, and decrypts only. When all servers have it: --stage use")
        }
        Some(Stage::Use) => {
            let name = promote(&remote, &path, &before).await?;
            format!("key {name} encrypts now. When it does on all servers: --stage rewrite")
        }
        Some(Stage::Rewrite) => {
            all_encrypt(&remote, &before).await?;
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

/// Fails unless every server encrypts with the keys of this one.
async fn all_encrypt(remote: &HttpsClient, own: &EncryptionStatus) -> anyhow::Result<()> {
    let first = first_providers(&own.entries);
    let same = |other: &EncryptionStatus| first_providers(&other.entries) == first;
    servers::eventually(remote, "does not encrypt with the key of this one", same).await
}

/// All steps. What an earlier rotation has left is finished, without another key.
async fn at_once(remote: &HttpsClient, path: &Path, before: &EncryptionStatus) -> anyhow::Result<String> {
    let unfinished = before.stored.iter().any(|stored| !stored.current);
    let resumed = unfinished || added(before).is_some();
    if !resumed {
        add(remote, path).await?;
    }
    if !resumed || added(before).is_some() {
        promote(remote, path, &status(remote).await?).await?;
    }
    all_encrypt(remote, &status(remote).await?).await?;
    let said = rewrite(remote).await?;
    Ok(match resumed {
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

/// A key that was added and that nothing is encrypted with yet. One that a rotation has replaced is older than the first.
fn added(status: &EncryptionStatus) -> Option<String> {
    let is_new = |entry: &Entry| {
        let [first, second, ..] = &entry.providers[..] else { return None };
        let unused = status.stored.iter().all(|stored| stored.provider != *second);
        let newer = first == "identity" || made_at(second) > made_at(first);
        (unused && newer && is_key(second)).then(|| second.clone())
    };
    status.entries.iter().find_map(is_new)
}

/// Whether a provider is a key of the file.
fn is_key(provider: &str) -> bool {
    ["aesgcm:", "secretbox:"].iter().any(|cipher| provider.starts_with(cipher))
}

/// The time in the name of a key that a rotation has made; nothing for others, which are older.
fn made_at(provider: &str) -> Option<&str> {
    let time = provider.split_once(":key")?.1;
    (time.len() == NAME_DIGITS && time.bytes().all(|byte| byte.is_ascii_digit())).then_some(time)
}

/// Uses the key that was added, when every server has it.
async fn promote(remote: &HttpsClient, path: &Path, before: &EncryptionStatus) -> anyhow::Result<String> {
    let added = added(before).context("no key was added that is not used yet: begin with --stage add")?;
    let knows = |other: &EncryptionStatus| other.entries.iter().any(|entry| entry.providers.contains(&added));
    servers::eventually(remote, &format!("does not have key {added}"), knows).await?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::encryption::StoredValues;

    #[test]
    fn keys_that_were_added_are_told_from_those_that_were_replaced() {
        let (old, new) = ("aesgcm:key20260101000000000", "aesgcm:key20270101000000000");
        for (providers, used, want) in [
            (vec!["aesgcm:first", "identity"], "aesgcm:first", None),
            (vec!["aesgcm:first", old], "aesgcm:first", Some(old)),
            (vec![old, new, "aesgcm:first"], old, Some(new)),
            // A rotation that has ended, with and without values of the old key.
            (vec![new, old], new, None),
            (vec![new, old], old, None),
            (vec![old, "aesgcm:first"], old, None),
            (vec![new, "aesgcm:key1"], new, None),
            // Encryption begins.
            (vec!["identity", "aesgcm:first"], "identity", Some("aesgcm:first")),
            (vec!["identity", "kms:vault"], "identity", None),
            (vec!["identity", "aesgcm:first"], "aesgcm:first", None),
        ] {
            let entry = Entry {
                resources: vec!["secrets".to_owned()],
                providers: providers.iter().map(|name| (*name).to_owned()).collect(),
            };
            let stored = StoredValues {
                resource: "secrets".to_owned(),
                provider: used.to_owned(),
                count: 1,
                current: providers[0] == used,
            };
            let status = EncryptionStatus {
                entries: vec![entry],
                stored: vec![stored],
                ..EncryptionStatus::disabled()
            };
            assert_eq!(added(&status).as_deref(), want, "{providers:?} {used}");
        }
        let made = format!("aesgcm:{}", new_name());
        assert_eq!(made_at(&made).map(str::len), Some(NAME_DIGITS), "{made}");
    }
}
