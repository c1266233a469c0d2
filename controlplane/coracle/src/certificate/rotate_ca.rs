//! `coracle certificate rotate-ca`: the CA of the cluster is replaced while pods run and watches are open.

use super::{CaStep, RotateCaArgs};
use crate::admin::ask;
use crate::operations::ca::{CaStatus, StepRequest};
use crate::operations::{CA, CA_CANCEL, CA_FINISH, CA_PREPARE, CA_SWITCH};
use crate::other_servers;
use crate::output::{Output, table};
use crate::token;
use anyhow::{Context as _, bail};
use coracle_apiserver::https_client::HttpsClient;
use coracle_pki::cluster_keys::Stage;
use http::Method;
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long the other servers may take to follow.
const FOLLOWED: Duration = Duration::from_secs(30);
const PERIOD: Duration = Duration::from_millis(200);

/// Makes a step, and prints how far the rotation is; false if another server did not follow.
pub(super) async fn run(args: &RotateCaArgs) -> anyhow::Result<bool> {
    let remote = args.server.remote()?;
    let path = match args.step {
        CaStep::Status => {
            show(&status(&remote).await?, args.output)?;
            return Ok(true);
        }
        CaStep::Prepare => CA_PREPARE,
        CaStep::Switch => CA_SWITCH,
        CaStep::Finish => CA_FINISH,
        CaStep::Cancel => CA_CANCEL,
    };
    let others = other_servers::addresses(&remote).await?;
    let before = status(&remote).await?;
    for address in &others {
        let other = status(&remote.at(&format!("https://{address}"))).await;
        let other =
            other.with_context(|| format!("server {address} cannot be asked: nothing was changed"))?;
        if hashes(&other) != hashes(&before) || other.stage != before.stage {
            bail!("server {address} does not have the CAs of this one yet: see its log; nothing was changed");
        }
    }
    let body = serde_json::to_value(StepRequest { force: args.force })?;
    let answer = ask(&remote, Method::POST, path, Some(&body)).await?;
    let after: CaStatus = serde_json::from_value(answer).context("the answer cannot be read")?;
    let behind = wait(&args.server.remote()?, &others, &after).await;
    show(&after, args.output)?;
    for address in &behind {
        eprintln!("server {address} does not have the CAs of this one yet: see its log");
    }
    let revoked = match args.step {
        CaStep::Finish => revoke_old_tokens(&args.server.remote()?, &after).await,
        _ => Vec::new(),
    };
    if args.output == Output::Text {
        for id in revoked {
            println!("token {id} revoked: it names the old CA");
        }
        println!("{}", next(args.step, after.stage));
    }
    Ok(behind.is_empty())
}

/// Revokes tokens that nobody can join with any more. The CA is replaced by now: a failure is only told.
async fn revoke_old_tokens(remote: &HttpsClient, after: &CaStatus) -> Vec<String> {
    let trusted = after.authorities.iter().map(|ca| ca.hash.clone()).collect();
    let revoked = token::revoke_of_old_cas(remote, trusted).await;
    revoked.unwrap_or_else(|error| {
        eprintln!("tokens that name the old CA are not revoked: {error:#}; see `coracle token list`");
        Vec::new()
    })
}

/// The servers that do not follow in time.
async fn wait(remote: &HttpsClient, others: &[String], wanted: &CaStatus) -> Vec<String> {
    let begun = Instant::now();
    let mut behind = others.to_vec();
    loop {
        let mut still = Vec::new();
        for address in behind {
            let other = status(&remote.at(&format!("https://{address}"))).await;
            if other.map_or(true, |other| hashes(&other) != hashes(wanted) || other.stage != wanted.stage) {
                still.push(address);
            }
        }
        behind = still;
        if behind.is_empty() || begun.elapsed() > FOLLOWED {
            return behind;
        }
        tokio::time::sleep(PERIOD).await;
    }
}

async fn status(remote: &HttpsClient) -> anyhow::Result<CaStatus> {
    let answer = ask(remote, Method::GET, CA, None).await?;
    serde_json::from_value(answer).context("the answer cannot be read")
}

fn hashes(status: &CaStatus) -> BTreeSet<&str> {
    status.authorities.iter().map(|ca| ca.hash.as_str()).collect()
}

/// What to do next.
fn next(step: CaStep, stage: Stage) -> &'static str {
    match stage {
        Stage::Settled if step == CaStep::Cancel => {
            "The new CA is not trusted any more. Take it out of bundles that clients outside the cluster were given."
        }
        Stage::Settled => {
            "The rotation is finished. Create new tokens for nodes and servers that are to join."
        }
        Stage::Prepared => {
            "Give clients outside the cluster the new bundle (ca.crt, or a new kubeconfig), then: coracle certificate rotate-ca switch"
        }
        Stage::Switched => {
            "Nodes get new certificates by themselves. When `coracle certificate rotate-ca status` names none: coracle certificate rotate-ca finish"
        }
    }
}

fn show(status: &CaStatus, output: Output) -> anyhow::Result<()> {
    Ok(output.print(status, || text(status))?)
}

fn text(status: &CaStatus) -> String {
    let stage = match status.stage {
        Stage::Settled => "no rotation is under way",
        Stage::Prepared => "prepared: the new CA is trusted, the old one signs",
        Stage::Switched => "switched: the new CA signs, the old one is trusted",
    };
    let mut rows = vec![
        ["CA", "SUBJECT", "USE", "EXPIRES", "NODES THAT TRUST IT", "NODES THAT USE IT"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for ca in &status.authorities {
        let expires = Timestamp::from_second(ca.info.not_after).map(|until| until.to_string());
        let trusting = status.nodes.iter().filter(|node| node.trusted.contains(&ca.hash)).count();
        let using = status.nodes.iter().filter(|node| node.issuers.contains(&ca.hash)).count();
        rows.push(vec![
            ca.hash.clone(),
            ca.info.subject.clone(),
            if ca.signs { "signs" } else { "trusted" }.to_owned(),
            expires.unwrap_or_default(),
            format!("{trusting} of {}", status.nodes.len()),
            format!("{using} of {}", status.nodes.len()),
        ]);
    }
    let mut text = format!("{stage}\n\n{}", table(&rows));
    for line in &status.waiting_for {
        text.push_str(&format!("waiting: {line}\n"));
    }
    text
}
