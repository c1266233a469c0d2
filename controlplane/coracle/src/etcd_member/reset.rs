//! A new cluster from the data of one member, when the majority of the old one is lost.

use super::certificates::Certificates;
use super::lock::Lock;
use super::private::Private;
use super::state::{Origin, State, has_data};
use super::{MemberConfig, MemberError};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// What a reset has done.
#[derive(Debug)]
pub struct Reset {
    /// The member that is left.
    pub name: String,
    /// The newest revision in its data.
    pub revision: i64,
    /// The data as it was before.
    pub copy: PathBuf,
}

/// Makes this server's member the only one of its cluster, with all its data. Other members keep theirs, but are not in this
/// cluster any more. Refused while a server runs on the data directory. The data is copied first.
pub async fn reset(data_dir: &Path, pki_dir: &Path) -> Result<Reset, MemberError> {
    let _lock = Lock::take(data_dir)?;
    let dir = data_dir.join("etcd");
    let state = State::load(data_dir)?.filter(|_| has_data(data_dir));
    let mut state = state.ok_or_else(|| MemberError::NoData(dir.clone()))?;
    let host = host_of(&state.client_url).to_owned();
    let config = MemberConfig { pki_dir: pki_dir.to_owned(), ..MemberConfig::new(data_dir, &host) };
    let certificates = Certificates::ensure(&config)?;
    let copy = copy_of(&dir)?;
    let member = Private::start(&dir, &state, &certificates, &["--force-new-cluster"]).await?;
    let (id, members, revision) = (member.id, member.own.list().await?, member.own.revision().await?);
    member.stop().await;
    if members.len() != 1 {
        return Err(MemberError::NotReset(members.len()));
    }
    (state.id, state.origin, state.others) = (Some(id), Origin::New, Vec::new());
    state.initial_cluster = vec![format!("{}={}", state.name, state.peer_url)];
    state.save(data_dir)?;
    Ok(Reset { name: state.name, revision, copy })
}

fn host_of(url: &str) -> &str {
    let host = url.split("://").last().and_then(|rest| rest.rsplit_once(':')).map_or("", |(host, _)| host);
    host.trim_matches(['[', ']'])
}

/// Copies a directory beside itself.
fn copy_of(dir: &Path) -> Result<PathBuf, MemberError> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let copy = dir.with_file_name(format!("etcd-before-reset-{seconds}"));
    coracle_cli::private_files::directory(&copy).map_err(MemberError::file(&copy))?;
    copy_all(dir, &copy)?;
    Ok(copy)
}

fn copy_all(from: &Path, to: &Path) -> Result<(), MemberError> {
    for entry in std::fs::read_dir(from).map_err(MemberError::file(from))? {
        let entry = entry.map_err(MemberError::file(from))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(MemberError::file(&path))?;
        if kind.is_dir() {
            std::fs::create_dir(&target).map_err(MemberError::file(&target))?;
            copy_all(&path, &target)?;
        } else if kind.is_file() {
            std::fs::copy(&path, &target).map_err(MemberError::file(&target))?;
        }
    }
    Ok(())
}
