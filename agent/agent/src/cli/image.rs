//! `coracle-agent image`: the node's images, with or without a running agent.

use std::{
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use coracle_cli::output::Output;
use serde::{Deserialize, Serialize};

use coracle_engine::image::{
    Credentials, DockerConfig, ImageRecord, ImageStore, ProgressEvent, RegistryConfig, gc, reference,
};

/// Options of the agent that runs as a service.
const AGENT_FILE: &str = "/etc/coracle/agent.yaml";

/// What `image` uses of it.
#[derive(Debug, Deserialize)]
struct AgentFile {
    registries: Option<PathBuf>,
}

/// Images of this node.
#[derive(Debug, Args)]
pub struct ImageArgs {
    /// Directory of the image store.
    #[arg(long, global = true, default_value = "/var/lib/coracle/engine/images", env = "CORACLE_IMAGE_DIR")]
    image_dir: PathBuf,
    /// Mirrors, plain-HTTP registries and their credentials; by default the file that agent.yaml names, or /etc/coracle/registries.yaml.
    #[arg(long, global = true)]
    registries: Option<PathBuf>,
    /// Format of the output.
    #[arg(short, long, global = true, value_enum, default_value_t)]
    output: Output,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Import OCI or docker archives.
    Import {
        /// Archives; `-` is stdin.
        #[arg(required = true)]
        archives: Vec<PathBuf>,
        /// Name of the image, instead of those in the archive.
        #[arg(long)]
        name: Option<String>,
    },
    /// Pull images from their registries.
    Pull {
        /// Image names.
        #[arg(required = true)]
        images: Vec<String>,
        /// `user:password`.
        #[arg(long)]
        creds: Option<String>,
        /// docker's config file with credentials.
        #[arg(long)]
        auth_file: Option<PathBuf>,
        /// Print only the id.
        #[arg(short, long)]
        quiet: bool,
    },
    /// List images.
    #[command(alias = "list")]
    Ls {
        /// The same as `--output json`.
        #[arg(long)]
        json: bool,
        /// Print only ids.
        #[arg(short, long)]
        quiet: bool,
    },
    /// Remove images that no container uses.
    #[command(alias = "remove")]
    Rm {
        /// Names or ids.
        #[arg(required = true)]
        images: Vec<String>,
    },
    /// Remove unused images until disk usage is below a threshold.
    Gc {
        /// Disk usage in percent above which images are removed.
        #[arg(long, default_value_t = 85)]
        high: u8,
        /// Disk usage in percent below which removal stops.
        #[arg(long, default_value_t = 80)]
        low: u8,
    },
}

/// An image that was imported or pulled.
#[derive(Debug, Serialize)]
struct Stored {
    image: String,
    id: String,
}

impl ImageArgs {
    /// Runs the subcommand.
    pub fn run(self) -> Result<()> {
        super::log::log_to_stderr();
        let store = ImageStore::open(&self.image_dir)?;
        let done = self.verb.run(&store, self.registries, self.output);
        store.purge();
        done
    }
}

impl Verb {
    fn run(self, store: &ImageStore, registries: Option<PathBuf>, output: Output) -> Result<()> {
        match self {
            Verb::Import { archives, name } => {
                let mut imported = Vec::new();
                let outcome = import(store, &archives, name.as_deref(), &mut imported);
                finish(outcome, output, &imported, |each| format!("{}\t{}\n", each.image, each.id))
            }
            Verb::Pull { images, creds, auth_file, quiet } => {
                let file = match registries {
                    Some(file) => file,
                    None => registries_of_node(Path::new(AGENT_FILE))?,
                };
                let hosts = RegistryConfig::load(&file)?;
                let mut pulled = Vec::new();
                let outcome: Result<()> = images.iter().try_for_each(|image| {
                    let credentials = credentials(image, creds.as_deref(), auth_file.as_deref())?;
                    let id = pull(store, image, &credentials, &hosts, quiet)?;
                    pulled.push(Stored { image: image.clone(), id });
                    Ok(())
                });
                finish(outcome, output, &pulled, |each| format!("{}\n", each.id))
            }
            Verb::Ls { json, quiet } => list(store, if json { Output::Json } else { output }, quiet),
            Verb::Rm { images } => {
                let mut removed = Vec::new();
                let outcome: Result<()> = images.iter().try_for_each(|image| {
                    let record = store.get(image)?;
                    store.remove(&record.id)?;
                    removed.push(record.id);
                    Ok(())
                });
                finish(outcome, output, &removed, |id| format!("{id}\n"))
            }
            Verb::Gc { high, low } => {
                let policy = gc::Policy { high_percent: high, low_percent: low, min_age: 0, max_age: 0 };
                let removed = store.collect_garbage(policy)?.removed;
                finish(Ok(()), output, &removed, |id| format!("{id}\n"))
            }
        }
    }
}

/// Prints what was done, also what was done before an error.
fn finish<T: Serialize>(
    outcome: Result<()>,
    output: Output,
    done: &[T],
    line: impl Fn(&T) -> String,
) -> Result<()> {
    if outcome.is_ok() || !done.is_empty() {
        output.print(&done, || done.iter().map(line).collect())?;
    }
    outcome
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

fn import(
    store: &ImageStore,
    archives: &[PathBuf],
    name: Option<&str>,
    imported: &mut Vec<Stored>,
) -> Result<()> {
    for archive in archives {
        // Members are read out of order, so stdin is copied to a file first.
        let spooled = (archive == Path::new("-")).then(|| spool(store)).transpose()?;
        let path = spooled.as_ref().map_or(archive.as_path(), |s| &s.0);
        for record in runtime()?.block_on(store.import(path, name))? {
            imported.push(Stored { image: gc::display_name(&record).to_owned(), id: record.id });
        }
    }
    Ok(())
}

struct Spooled(PathBuf);

impl Drop for Spooled {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn spool(store: &ImageStore) -> Result<Spooled> {
    let spooled = Spooled(store.ingest_dir().join(format!("stdin-{}", std::process::id())));
    let mut file = std::fs::File::create(&spooled.0)?;
    std::io::copy(&mut std::io::stdin().lock().by_ref(), &mut file).context("reading stdin")?;
    Ok(spooled)
}

/// The file that the agent of this node reads, according to its options.
fn registries_of_node(agent_file: &Path) -> Result<PathBuf> {
    let text = match std::fs::read_to_string(agent_file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(RegistryConfig::DEFAULT_FILE.into());
        }
        Err(error) => return Err(error).with_context(|| format!("reading {}", agent_file.display())),
    };
    // A file with nothing but comments is null.
    let options: Option<AgentFile> = coracle_cli::yaml::from_str(&text)
        .with_context(|| format!("{} is not a valid configuration", agent_file.display()))?;
    Ok(options.and_then(|options| options.registries).unwrap_or_else(|| RegistryConfig::DEFAULT_FILE.into()))
}

fn credentials(image: &str, creds: Option<&str>, auth_file: Option<&Path>) -> Result<Credentials> {
    if let Some(creds) = creds {
        let (username, password) = creds.split_once(':').context("--creds is user:password")?;
        return Ok(Credentials::Basic { username: username.into(), password: password.into() });
    }
    let Some(path) = auth_file else { return Ok(Credentials::Anonymous) };
    let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let config = DockerConfig::parse(&bytes).with_context(|| format!("reading {}", path.display()))?;
    Ok(config.lookup(&reference::parse(image)?).into_iter().next().unwrap_or_default())
}

fn pull(
    store: &ImageStore,
    image: &str,
    credentials: &Credentials,
    hosts: &RegistryConfig,
    quiet: bool,
) -> Result<String> {
    let progress = Arc::new(move |event: ProgressEvent| match event {
        ProgressEvent::Resolved { digest, layers, bytes } if !quiet => {
            eprintln!("{digest}: {layers} layers to fetch, {bytes} bytes");
        }
        ProgressEvent::Unpacked { digest } if !quiet => eprintln!("{digest}: unpacked"),
        _ => {}
    });
    Ok(runtime()?.block_on(store.pull(image, credentials, hosts, Some(progress)))?.id)
}

fn list(store: &ImageStore, output: Output, quiet: bool) -> Result<()> {
    let records = store.list()?;
    if quiet {
        let ids: Vec<&str> = records.iter().map(|record| record.id.as_str()).collect();
        return Ok(output.print(&ids, || ids.iter().map(|id| format!("{id}\n")).collect())?);
    }
    Ok(output.print(&records, || table(&records))?)
}

fn table(records: &[ImageRecord]) -> String {
    let mut listing = format!("{:<60} {:<14} {:>12}\n", "IMAGE", "ID", "SIZE");
    for record in records {
        let short = record.id.trim_start_matches("sha256:").get(..12).unwrap_or_default();
        let tags = if record.repo_tags.is_empty() {
            vec![gc::display_name(record).to_owned()]
        } else {
            record.repo_tags.clone()
        };
        for tag in tags {
            listing.push_str(&format!("{tag:<60} {short:<14} {:>12}\n", record.size));
        }
    }
    listing
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn pulls_read_the_file_that_the_agent_reads() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agent.yaml");
        let default = Path::new("/etc/coracle/registries.yaml");
        assert_eq!(registries_of_node(&file).unwrap(), default);
        for (text, wanted) in [
            ("#registries: /etc/coracle/registries.yaml\n", default),
            ("maxPods: 20\n", default),
            ("maxPods: 20\nregistries: /etc/mirrors.yaml\n", Path::new("/etc/mirrors.yaml")),
        ] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(registries_of_node(&file).unwrap(), wanted, "{text}");
        }
        std::fs::write(&file, "- registries\n").unwrap();
        registries_of_node(&file).unwrap_err();
    }
}
