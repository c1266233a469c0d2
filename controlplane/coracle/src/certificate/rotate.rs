//! `coracle certificate rotate`: new leaf certificates, which a running server uses without a restart.

use super::{RotateArgs, served};
use crate::output::table;
use anyhow::{Context as _, bail};
use coracle_pki::inspect::CertificateInfo;
use coracle_pki::rotate::Leaf;
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a running server may take to use a new certificate.
const PICKED_UP: Duration = Duration::from_secs(30);

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Rotated {
    name: &'static str,
    expires: String,
    /// Whether the running server uses it; `None` if none runs, or if it is read when it is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_use: Option<bool>,
    #[serde(flatten)]
    info: CertificateInfo,
}

/// Renews; false if a running server does not use a new certificate.
pub(super) async fn run(args: &RotateArgs) -> anyhow::Result<bool> {
    let mut leaves = Vec::new();
    for name in &args.names {
        let known = Leaf::ALL.map(Leaf::file).join(", ");
        let leaf = Leaf::named(name).with_context(|| format!("{name:?} cannot be renewed: want {known}"))?;
        if leaves.contains(&leaf) {
            bail!("{name} is named twice");
        }
        leaves.push(leaf);
    }
    if leaves.is_empty() {
        leaves.extend(Leaf::ALL);
    }
    let pki = args.data_dir.join("pki");
    let running = served::read(&args.data_dir).await.is_ok();
    let mut rotated = Vec::new();
    for leaf in leaves {
        let info = leaf.rotate(&pki)?;
        let in_use = match running {
            true => used(leaf, &args.data_dir, &info).await,
            false => None,
        };
        let expires = jiff::Timestamp::from_second(info.not_after).map(|until| until.to_string());
        rotated.push(Rotated { name: leaf.file(), expires: expires.unwrap_or_default(), in_use, info });
    }
    args.output.print(&rotated, || text(&rotated, running))?;
    Ok(rotated.iter().all(|one| one.in_use != Some(false)))
}

/// Waits until the server uses a certificate. `None` if that cannot be seen from outside.
async fn used(leaf: Leaf, data_dir: &Path, info: &CertificateInfo) -> Option<bool> {
    let begun = Instant::now();
    loop {
        let found = match leaf {
            Leaf::Serving => served::read(data_dir).await.is_ok_and(|(_, shown)| shown.serial == info.serial),
            Leaf::Admin => in_kubeconfig(data_dir),
            // It is read for each connection.
            Leaf::FrontProxyClient => return None,
        };
        if found || begun.elapsed() > PICKED_UP {
            return Some(found);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Whether the administrator's kubeconfig has the certificate of the directory.
fn in_kubeconfig(data_dir: &Path) -> bool {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let certificate = std::fs::read(data_dir.join("pki/admin.crt"));
    let kubeconfig = std::fs::read_to_string(data_dir.join("admin.kubeconfig"));
    certificate.is_ok_and(|pem| kubeconfig.is_ok_and(|text| text.contains(&STANDARD.encode(pem))))
}

fn text(rotated: &[Rotated], running: bool) -> String {
    let mut rows = vec![["NAME", "SUBJECT", "EXPIRES", "STATE"].map(str::to_owned).to_vec()];
    for one in rotated {
        let state = match (running, one.in_use) {
            (false, _) => "renewed; no server runs, the next start uses it",
            (true, Some(true)) => "renewed and in use",
            (true, Some(false)) => "renewed, but not used by the running server: see its log",
            (true, None) => "renewed; used for the next connection",
        };
        rows.push(vec![one.name.to_owned(), one.info.subject.clone(), one.expires.clone(), state.to_owned()]);
    }
    table(&rows)
}
