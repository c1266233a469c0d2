#![allow(clippy::unwrap_used)]
use super::*;
use crate::format::Cluster;
use crate::make::{Source, begin};
use crate::s3::S3Options;
use crate::save::{Options, SaveError, Saved, save};
use crate::target::Place;
use coracle_store::{Durability, Store, Write, open as open_store};
use futures::TryStreamExt;
use std::sync::Arc;

struct Cluster1 {
    dir: tempfile::TempDir,
    store: Arc<dyn Store>,
}

async fn put(store: &dyn Store, key: &str, expect: Revision, value: &str) -> Revision {
    let value = Some(value.to_owned().into());
    let (key, durability) = (key.to_owned(), Durability::Lazy);
    store.write(Write { key, expect, value, durability, fence: None }).await.unwrap()
}

async fn cluster() -> Cluster1 {
    let dir = tempfile::tempdir().unwrap();
    let store = open_store(&Datastore::Embedded, dir.path()).await.unwrap();
    for n in 0..300 {
        put(&*store, &format!("/registry/configmaps/default/{n:04}"), 0, &"x".repeat(n * 40)).await;
    }
    put(&*store, "/registry/secrets/kube-system/bootstrap-token-abcdef", 0, "{}").await;
    put(&*store, "/registry/secrets/kube-system/bootstrap-token-uvwxyz", 0, "k8s:enc:aesgcm:v1:k:x").await;
    let revoked = r#"{"data":{"n1":"2026-01-01T00:00:00Z"}}"#;
    put(&*store, "/registry/configmaps/kube-system/coracle-revoked-nodes", 0, revoked).await;
    put(&*store, "/coracle/fences/x", 0, "1").await;
    let pki = dir.path().join("pki");
    std::fs::create_dir(&pki).unwrap();
    for name in crate::files::REQUIRED {
        std::fs::write(pki.join(name), format!("the {name}")).unwrap();
    }
    std::fs::write(pki.join(crate::files::ENCRYPTION), "kind: EncryptionConfiguration").unwrap();
    Cluster1 { dir, store }
}

impl Cluster1 {
    fn source(&self) -> Source {
        Source {
            store: self.store.clone(),
            files: crate::files::collect(&self.dir.path().join("pki"), None).unwrap(),
            cluster: Cluster { ca_hash: format!("sha256:{}", "0f".repeat(32)), uid: "u".to_owned() },
        }
    }

    async fn saved(&self, to: &Path, identity: Option<&Identity>) -> Result<Saved, SaveError> {
        let (_, pieces) = begin(self.source()).await.unwrap();
        let place = Place::Path(to.into());
        let recipients = identity.map(Identity::recipient).into_iter().collect();
        save(pieces, &Options { place, s3: S3Options::default(), recipients }).await
    }
}

async fn all(store: &dyn Store) -> Vec<KeyValue> {
    let keys: Vec<_> = store.export("/").await.unwrap().keys.try_collect().await.unwrap();
    keys.into_iter().filter(|one| !one.key.starts_with("/coracle/")).collect()
}

async fn restored(file: &Path, identities: &[Identity], to: &Path) -> Result<Restored, RestoreError> {
    let (file, datastore) = (File::open(file).unwrap(), &Datastore::Embedded);
    restore(Restore { file, identities: identities.to_vec(), data_dir: to, datastore, bump: 1000 }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_saved_is_restored_and_revisions_go_on() {
    let old = cluster().await;
    let identity = Identity::X25519([5; 32]);
    for identity in [None, Some(&identity)] {
        let dir = tempfile::tempdir().unwrap();
        let saved = old.saved(dir.path(), identity).await.unwrap();
        let now = old.store.revision().await.unwrap();
        assert_eq!((saved.header.revision, saved.header.datastore.as_str()), (now, "embedded"));
        let Place::Path(file) = saved.place else { panic!("{:?}", saved.place) };
        assert_eq!(std::fs::metadata(&file).unwrap().len(), saved.bytes);
        assert_eq!(
            std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions()) & 0o777,
            0o600
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing half-written stays");

        let new = dir.path().join("new");
        let found =
            restored(&file, identity.map(std::slice::from_ref).unwrap_or_default(), &new).await.unwrap();
        assert_eq!((found.store.revision, found.backup.encrypted), (now + 1000, identity.is_some()));
        let review = found.backup.review;
        assert_eq!(review.tokens.keys().collect::<Vec<_>>(), ["abcdef", "uvwxyz"]);
        assert_eq!(review.encrypted_tokens, 1);
        assert_eq!(review.revoked_nodes.unwrap()["n1"], "2026-01-01T00:00:00Z");
        let key = std::fs::read_to_string(new.join("pki/ca.key")).unwrap();
        assert_eq!(key, "the ca.key");
        let store = open_store(&Datastore::Embedded, &new).await.unwrap();
        assert_eq!(all(&*store).await, all(&*old.store).await);
        assert!(put(&*store, "/registry/new", 0, "1").await > now + 1000);
        assert!(store.get("/coracle/fences/x").await.unwrap().is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_changes_nothing() {
    let old = cluster().await;
    let identity = Identity::X25519([5; 32]);
    let dir = tempfile::tempdir().unwrap();
    let (plain, sealed) = (dir.path().join("plain"), dir.path().join("sealed"));
    old.saved(&plain, None).await.unwrap();
    old.saved(&sealed, Some(&identity)).await.unwrap();
    assert!(matches!(old.saved(&plain, None).await, Err(SaveError::Exists(_))));
    let spoil = |from: &Path, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = std::fs::read(from).unwrap();
        change(&mut bytes);
        let path = dir.path().join("spoilt");
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let new = dir.path().join("new");
    let mine = std::slice::from_ref(&identity);
    for (change, want) in [
        (&(|bytes: &mut Vec<u8>| bytes.truncate(bytes.len() - 1)) as &dyn Fn(&mut Vec<u8>), "truncated"),
        (&|bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2), "truncated"),
        (&|bytes: &mut Vec<u8>| bytes[600] ^= 1, "changed"),
    ] {
        for from in [&plain, &sealed] {
            let error = restored(&spoil(from, change), mine, &new).await.unwrap_err();
            let text = coracle_cli::causes::chain(&error);
            assert!(text.contains(want), "{from:?}: {text}");
            assert!(!new.exists());
        }
    }
    let error = restored(&sealed, &[], &new).await.unwrap_err().to_string();
    assert!(error.contains("--identity"), "{error}");
    let error = restored(&sealed, &[Identity::X25519([6; 32])], &new).await.unwrap_err().to_string();
    assert!(error.starts_with("wrong key"), "{error}");
    let error = restored(Path::new("/etc/hostname"), &[], &new).await.unwrap_err().to_string();
    assert!(error.contains("not a backup"), "{error}");
    assert!(!new.exists());

    let before = all(&*old.store).await;
    let error = restored(&plain, &[], old.dir.path()).await.unwrap_err();
    assert!(matches!(error, RestoreError::NotEmpty(_)), "{error}");
    assert_eq!(all(&*old.store).await, before);
    std::fs::create_dir_all(new.join("store")).unwrap();
    std::fs::write(new.join("store/x"), "").unwrap();
    assert!(matches!(restored(&plain, &[], &new).await, Err(RestoreError::NotEmpty(_))));
    assert_eq!(std::fs::read_dir(&new).unwrap().count(), 1);
}

#[tokio::test]
async fn a_source_that_breaks_leaves_nothing() {
    let old = cluster().await;
    let dir = tempfile::tempdir().unwrap();
    let (_, pieces) = begin(old.source()).await.unwrap();
    let options =
        Options { place: Place::Path(dir.path().into()), s3: S3Options::default(), recipients: Vec::new() };
    let error = save(pieces.take(2), &options).await.unwrap_err();
    assert!(matches!(error, SaveError::Format(FormatError::Truncated(_))), "{error}");
    let broken = stream::iter([Err(io::Error::other("the connection broke"))]);
    let error = save(broken, &options).await.unwrap_err();
    assert!(coracle_cli::causes::chain(&error).contains("the connection broke"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn encrypted_values_are_not_saved_without_their_keys() {
    let old = cluster().await;
    let dir = tempfile::tempdir().unwrap();
    std::fs::remove_file(old.dir.path().join("pki").join(crate::files::ENCRYPTION)).unwrap();
    let error = old.saved(dir.path(), None).await.unwrap_err();
    assert!(matches!(&error, SaveError::KeysMissing(key) if key.ends_with("uvwxyz")), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing half-written stays");
}
