//! Backups in a bucket of S3.

use crate::{MAPS, answer, coracle, map};
use coracle_tests::client::Target;
use coracle_tests::s3::S3Server;
use coracle_tests::server::Server;
use coracle_tests::{eventually, skipped};
use std::time::Duration;

const PLACE: &str = "s3://backups/one cluster";

#[test]
fn backups_are_saved_listed_restored_and_pruned_in_a_bucket() {
    let s3 = S3Server::start("backups");
    let environment = s3.environment();
    let mut server = Server::with(&["--api-only"]);
    let data_dir = server.data_dir().display().to_string();
    // What cannot be compressed, so that the backup goes in parts.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let target = Target::new(server.data_dir(), &server.url()).unwrap();
        let mut connection = target.connect().await.unwrap();
        let mut state = 88_172_645_463_325_252_u64;
        for number in 0..40 {
            let mut text = String::new();
            while text.len() < 500_000 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                text += &format!("{state:016x}");
            }
            connection.call("POST", MAPS, map(&format!("large-{number}"), &text).into()).await.unwrap();
        }
    });
    let saved = answer(&["backup", "save", PLACE, "--data-dir", &data_dir], &environment);
    assert!(saved["bytes"].as_u64().unwrap() > 9 << 20, "more than one part: {saved}");
    let again = answer(&["backup", "save", PLACE, "--data-dir", &data_dir], &environment);
    let listed = answer(&["backup", "ls", PLACE], &environment);
    assert!(listed.as_array().unwrap().iter().any(|one| one["bytes"] == saved["bytes"]), "{listed}");
    // Somebody copies one there under another name.
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("before-upgrade");
    let file = file.to_str().unwrap();
    let by_hand = answer(&["backup", "save", file, "--data-dir", &data_dir], &[]);
    let in_directory = answer(&["backup", "ls", files.path().to_str().unwrap()], &[]);
    s3.curl(&["-T", file], "backups/one%20cluster/before-upgrade");
    let listed = answer(&["backup", "ls", PLACE], &environment);
    assert_eq!(listed.as_array().unwrap().len(), 3, "{listed}");
    let in_bucket = listed.as_array().unwrap().iter().find(|one| one["named"] == true).unwrap();
    for one in [&in_directory[0], in_bucket] {
        for key in ["revision", "bytes"] {
            assert_eq!(one[key], by_hand[key], "{one}");
        }
        assert_eq!((&one["encrypted"], &one["cluster"]), (&false.into(), &listed[0]["cluster"]), "{one}");
    }
    let location = again["location"].as_str().unwrap();
    let checked = answer(&["backup", "check", location], &environment);
    assert_eq!(checked["header"]["revision"], again["revision"]);
    let new = tempfile::tempdir().unwrap();
    let path = new.path().to_str().unwrap();
    let restored = answer(&["restore", location, "--data-dir", path], &environment);
    assert_eq!(restored["backup"]["revision"], again["revision"]);

    let (ok, _, err) =
        coracle(&["backup", "save", "s3://other-bucket/x", "--data-dir", &data_dir], &environment);
    assert!(!ok && err.contains("NoSuchBucket"), "{err}");
    let (ok, _, err) = coracle(&["backup", "ls", PLACE], &[("AWS_ACCESS_KEY_ID", "")]);
    assert!(!ok && err.contains("no credentials"), "{err}");
    server.stop();

    let pruned = answer(&["backup", "prune", PLACE, "--keep", "1"], &environment);
    let left = answer(&["backup", "ls", PLACE], &environment);
    assert_eq!(left.as_array().unwrap().len(), 2, "one, and the one that was named: {pruned}");
    let flags = ["--backup-schedule", "@every 1s", "--backup-to", PLACE, "--backup-keep", "2"];
    let server = Server::with_environment(&flags, &environment);
    eventually("old backups are removed", Duration::from_secs(90), || {
        server.log().contains("old backup removed")
    });
}

/// What is signed wrongly is refused, so that the test above has shown that signatures are right, of names with blanks and of
/// uploads in parts, too.
#[test]
fn a_wrong_secret_is_refused() {
    let Some(s3) = S3Server::verifying("backups") else {
        skipped(
            "backup::a_wrong_secret_is_refused",
            "Go 1.21 or newer is not installed, and moto verifies no signatures",
        );
        return;
    };
    assert_eq!(answer(&["backup", "ls", PLACE], &s3.environment()), serde_json::json!([]));
    let wrong = s3.environment().map(|(name, value)| match name {
        "AWS_SECRET_ACCESS_KEY" => (name, "another-secret"),
        _ => (name, value),
    });
    let (ok, _, err) = coracle(&["backup", "ls", PLACE], &wrong);
    assert!(!ok && err.contains("SignatureDoesNotMatch"), "{err}");
}
