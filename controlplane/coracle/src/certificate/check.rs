//! `coracle certificate check`: every certificate of a server's directory and the one that it shows.

use super::files::{self, FileCertificate};
use super::{CheckArgs, served};
use crate::output::table;
use coracle_cli::causes;
use jiff::Timestamp;
use serde::Serialize;

/// What was found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Checked {
    certificates: Vec<Row>,
    /// Why it is not known which certificate the server shows; it may be stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_served: Option<String>,
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    #[serde(flatten)]
    certificate: FileCertificate,
    expires: String,
    days_left: i64,
}

/// Prints what was found; false if a certificate has expired, expires soon or cannot be read.
pub(super) async fn run(args: &CheckArgs) -> anyhow::Result<bool> {
    let listed = files::list(&args.data_dir.join("pki"))?;
    let mut all = listed.certificates;
    let mut not_served = None;
    match served::read(&args.data_dir).await {
        Ok((address, info)) => {
            let used_for = "API server: the one that it shows now".to_owned();
            all.push(FileCertificate { file: format!("served at {address}"), used_for, info });
        }
        Err(error) => not_served = Some(causes::chain(&error)),
    }
    let now = Timestamp::now();
    let mut problems: Vec<String> = listed.unreadable.iter().map(|error| causes::chain(error)).collect();
    problems.extend(all.iter().filter_map(|certificate| expiry(certificate, args.days, now)));
    let rows = all.into_iter().map(|certificate| Row {
        expires: Timestamp::from_second(certificate.info.not_after)
            .map(|until| until.to_string())
            .unwrap_or_default(),
        days_left: certificate.info.days_left(now.as_second()),
        certificate,
    });
    let checked = Checked { certificates: rows.collect(), not_served, problems };
    args.output.print(&checked, || text(&checked))?;
    Ok(checked.problems.is_empty())
}

/// Why a certificate has to be looked at, if it has.
fn expiry(certificate: &FileCertificate, days: i64, now: Timestamp) -> Option<String> {
    let left = certificate.info.days_left(now.as_second());
    match left {
        _ if left < 0 => Some(format!("{} has expired", certificate.file)),
        _ if left < days => Some(format!("{} expires in {left} days", certificate.file)),
        _ => None,
    }
}

fn text(checked: &Checked) -> String {
    let head = ["FILE", "SUBJECT", "ISSUER", "EXPIRES", "DAYS LEFT", "USED FOR"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for row in &checked.certificates {
        let FileCertificate { file, used_for, info } = &row.certificate;
        rows.push(vec![
            file.clone(),
            info.subject.clone(),
            info.issuer.clone(),
            row.expires.clone(),
            row.days_left.to_string(),
            used_for.clone(),
        ]);
    }
    let mut text = table(&rows);
    for row in checked.certificates.iter().filter(|row| !row.certificate.info.names.is_empty()) {
        let FileCertificate { file, info, .. } = &row.certificate;
        text.push_str(&format!("names of {file}: {}\n", info.names.join(", ")));
    }
    if let Some(why) = &checked.not_served {
        text.push_str(&format!("the certificate that the server shows is not known: {why}\n"));
    }
    for problem in &checked.problems {
        text.push_str(&format!("problem: {problem}\n"));
    }
    text
}
