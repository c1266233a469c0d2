#![allow(clippy::unwrap_used)]
use super::*;
use crate::{Durability, embedded::Embedded};

const OLD: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const NEW: &str = "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=";

fn config(providers: &str) -> Config {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets, '*.apps']\n  providers: {providers}\n"
    );
    Config::parse(&text).unwrap()
}

fn write(key: &str, expect: Revision, value: &'static str) -> Write {
    Write {
        key: key.into(),
        expect,
        value: Some(Bytes::from_static(value.as_bytes())),
        durability: Durability::Sync,
        fence: None,
    }
}

#[tokio::test]
async fn values_are_encrypted_on_disk_and_plain_to_readers() {
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Store> = Arc::new(Embedded::open(dir.path()).unwrap());
    let secret = "/registry/secrets/default/a";
    let before = disk.write(write(secret, 0, "plain")).await.unwrap();
    // The second turn finds what the first wrote with the older key, too.
    for (cipher, key, stale) in [("aesgcm", OLD, 1), ("secretbox", NEW, 2)] {
        let providers = format!(
            "[{{{cipher}: {{keys: [{{name: k, secret: {key}}}]}}}}, {{aesgcm: {{keys: [{{name: k, secret: {OLD}}}]}}}}, {{identity: {{}}}}]"
        );
        let encrypted = EncryptedStore::new(disk.clone(), config(&providers));
        assert_eq!(encrypted.get(secret).await.unwrap().unwrap().value, "plain", "{cipher} before");
        assert_eq!(encrypted.reencrypt().await.unwrap(), stale, "{cipher}");
        assert_eq!(encrypted.reencrypt().await.unwrap(), 0, "{cipher}: once is enough");
        let raw = disk.get(secret).await.unwrap().unwrap();
        assert!(raw.value.starts_with(format!("k8s:enc:{cipher}:v1:k:").as_bytes()));
        assert!(!raw.value.windows(5).any(|w| w == b"plain"));
        assert_eq!(encrypted.get(secret).await.unwrap().unwrap().value, "plain", "{cipher} after");
        let other = format!("/registry/apps/deployments/default/{cipher}");
        encrypted.write(write(&other, 0, "deployed")).await.unwrap();
        assert!(disk.get(&other).await.unwrap().unwrap().value.starts_with(b"k8s:enc:"));
        let map = format!("/registry/configmaps/default/{cipher}");
        encrypted.write(write(&map, 0, "open")).await.unwrap();
        assert_eq!(disk.get(&map).await.unwrap().unwrap().value, "open", "not configured");
        let (all, _) = encrypted.range("/registry/", None).await.unwrap();
        assert!(all.iter().all(|item| !item.value.starts_with(b"k8s:enc:")));
    }
    // Only the newest key is left: what history holds of the others is passed over, and its newest form is shown.
    let encrypted = EncryptedStore::new(
        disk.clone(),
        config(&format!("[{{secretbox: {{keys: [{{name: k, secret: {NEW}}}]}}}}]")),
    );
    let mut seen = encrypted.watch(secret, before - 1).await.unwrap();
    let change = loop {
        if let WatchItem::Change(change) = seen.next().await.unwrap().unwrap() {
            break change;
        }
    };
    assert_eq!(change.value.unwrap(), "plain", "watchers see plain values");
    let (past, _) = encrypted.range(secret, Some(before)).await.unwrap();
    assert_eq!((past[0].modified, past[0].value.as_ref()), (before, &b"plain"[..]));
}

#[tokio::test]
async fn a_value_that_was_moved_or_changed_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Store> = Arc::new(Embedded::open(dir.path()).unwrap());
    let encrypted = EncryptedStore::new(
        disk.clone(),
        config(&format!("[{{aesgcm: {{keys: [{{name: k, secret: {OLD}}}]}}}}]")),
    );
    encrypted.write(write("/registry/secrets/x/a", 0, "secret")).await.unwrap();
    let raw = disk.get("/registry/secrets/x/a").await.unwrap().unwrap().value;
    let put = |key: &str, value: Bytes| {
        disk.write(Write {
            key: key.into(),
            expect: 0,
            value: Some(value),
            durability: Durability::Sync,
            fence: None,
        })
    };
    put("/registry/secrets/x/moved", raw.clone()).await.unwrap();
    let mut bent = raw.to_vec();
    *bent.last_mut().unwrap() ^= 1;
    put("/registry/secrets/x/bent", bent.into()).await.unwrap();
    put("/registry/secrets/x/plain", Bytes::from_static(b"plain")).await.unwrap();
    for name in ["moved", "bent", "plain"] {
        assert!(encrypted.get(&format!("/registry/secrets/x/{name}")).await.is_err(), "{name}");
    }
    let rotated = EncryptedStore::new(
        disk.clone(),
        config(&format!("[{{aesgcm: {{keys: [{{name: n, secret: {NEW}}}]}}}}]")),
    );
    assert!(rotated.get("/registry/secrets/x/a").await.is_err(), "the old key is gone");
}

#[tokio::test]
async fn a_server_without_its_keys_does_not_take_objects_for_gone() {
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Store> = Arc::new(Embedded::open(dir.path()).unwrap());
    let key = |name: &str| format!("/registry/secrets/x/{name}");
    let with = |providers: &str| EncryptedStore::new(disk.clone(), config(providers));
    let aes = format!("{{aesgcm: {{keys: [{{name: k, secret: {OLD}}}]}}}}");
    disk.write(write("/registry/configmaps/x/open", 0, "open")).await.unwrap();
    let keyed = with(&format!("[{aes}]"));
    let first = keyed.write(write(&key("a"), 0, "one")).await.unwrap();
    let second = keyed.write(write(&key("b"), 0, "two")).await.unwrap();
    let check = async |store: &dyn Store, at: Option<Revision>| {
        let read = store.range("/registry/", at).await.unwrap().0.into_iter();
        let keys = read.filter(|item| provider::is_encrypted(&item.value)).map(|item| item.key).collect();
        reject_undecryptable(store, keys).await.map_err(|error| error.to_string())
    };
    assert_eq!(check(&keyed, None).await, Ok(()));
    let why = check(disk.as_ref(), None).await.unwrap_err();
    assert!(why.contains("/registry/secrets/x/a is encrypted"), "{why}");
    assert!(why.contains("--encryption-provider-config"), "{why}");
    let elsewhere = Config::parse(
        "kind: EncryptionConfiguration\nresources: [{resources: [configmaps], providers: [{identity: {}}]}]",
    );
    let elsewhere = EncryptedStore::new(disk.clone(), elsewhere.unwrap());
    assert!(check(&elsewhere, None).await.is_err(), "a configuration that does not name the resource");
    // A start that is refused has changed nothing.
    for resources in ["configmaps, secrets", "configmaps"] {
        let wrong = format!(
            "kind: EncryptionConfiguration\nresources: [{{resources: [{resources}], providers: [{{aesgcm: {{keys: [{{name: w, secret: {NEW}}}]}}}}]}}]"
        );
        let wrong = EncryptedStore::new(disk.clone(), Config::parse(&wrong).unwrap());
        assert!(wrong.reencrypt().await.is_err(), "{resources}");
        let open = disk.get("/registry/configmaps/x/open").await.unwrap().unwrap();
        assert_eq!(&open.value[..], b"open", "{resources}");
    }
    // Opened for good, or gone: what history holds of it is nobody's loss.
    assert_eq!(with(&format!("[{{identity: {{}}}}, {aes}]")).reencrypt().await.unwrap(), 2);
    assert_eq!(check(disk.as_ref(), None).await, Ok(()));
    assert_eq!(
        (check(disk.as_ref(), Some(first)).await, check(disk.as_ref(), Some(second)).await),
        (Ok(()), Ok(()))
    );
}

#[test]
fn bad_configurations_are_refused() {
    for text in [
        "kind: Other",
        "kind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers: []",
        "kind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers: [{aesgcm: {keys: [{name: a, secret: YQ==}]}}]",
        "kind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers: [{rot13: {}}]",
        "kind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers: [{kms: {apiVersion: v1, name: a, endpoint: 'unix:///s'}}]",
        "kind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers: [{kms: {apiVersion: v2, name: a, endpoint: 'tcp://s'}}]",
        "kind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers: [{kms: {apiVersion: v2, name: a, endpoint: 'unix:///s', timeout: soon}}]",
    ] {
        assert!(Config::parse(text).is_err(), "{text}");
    }
    let why = |providers: &str| {
        let entry =
            format!("resources: [{{resources: [secrets], providers: [{{identity: {{}}}}, {providers}]}}]");
        Config::parse(&format!("kind: EncryptionConfiguration\n{entry}")).err().unwrap().to_string()
    };
    let short = why("{aesgcm: {keys: [{name: a, secret: YQ==}]}}");
    assert_eq!(
        short,
        "resources[0].providers[1].aesgcm.keys[0].secret: an AES key has 16 or 32 bytes, not 1"
    );
    assert!(why("{kms: {apiVersion: v1, name: a}}").starts_with("resources[0].providers[1].kms: KMS \"a\""));
}

#[tokio::test]
async fn keys_are_rotated_while_the_store_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Store> = Arc::new(Embedded::open(dir.path()).unwrap());
    let keys = |keys: &str| config(&format!("[{{aesgcm: {{keys: [{keys}]}}}}]"));
    let (old, new) = (format!("{{name: old, secret: {OLD}}}"), format!("{{name: new, secret: {NEW}}}"));
    let encrypted = EncryptedStore::new(disk.clone(), keys(&old));
    for n in 0..100 {
        encrypted.write(write(&format!("/registry/secrets/default/{n:03}"), 0, "secret")).await.unwrap();
    }
    let used = || async {
        let all = usage::count(&*disk, &encrypted.config()).await.unwrap();
        all.into_iter()
            .map(|one| format!("{} {} {}", one.resource, one.provider, one.count))
            .collect::<Vec<_>>()
    };
    assert_eq!(used().await, ["secrets aesgcm:old 100"]);
    // Without the key of stored values, or with another one of its name, nothing changes.
    let other = format!("{{name: old, secret: {NEW}}}");
    for wrong in [&new, &other] {
        let refused = encrypted.replace(keys(wrong)).await.unwrap_err();
        assert!(matches!(refused, StoreError::NoDecryptionKey(_)), "{refused:?}");
        assert_eq!(encrypted.config().entries()[0].1, ["aesgcm:old"]);
    }
    let mut watch = encrypted.watch("/registry/", encrypted.revision().await.unwrap()).await.unwrap();
    encrypted.replace(keys(&format!("{new}, {old}"))).await.unwrap();
    encrypted.write(write("/registry/secrets/default/fresh", 0, "secret")).await.unwrap();
    assert_eq!(used().await, ["secrets aesgcm:new 1", "secrets aesgcm:old 100"]);
    let progress = rewrite::Progress::default();
    encrypted.rewrite(&progress).await.unwrap();
    let counts = |progress: &rewrite::Progress| {
        use std::sync::atomic::Ordering::Relaxed;
        (progress.seen.load(Relaxed), progress.written.load(Relaxed))
    };
    assert_eq!(counts(&progress), (101, 100));
    assert_eq!(used().await, ["secrets aesgcm:new 101"]);
    let again = rewrite::Progress::default();
    encrypted.rewrite(&again).await.unwrap();
    assert_eq!(counts(&again), (101, 0), "it can be repeated");
    encrypted.replace(keys(&new)).await.unwrap();
    assert_eq!(encrypted.get("/registry/secrets/default/007").await.unwrap().unwrap().value, "secret");
    // A watch that was open before sees plain values throughout.
    let mut seen = 0;
    while seen < 101 {
        if let WatchItem::Change(change) = watch.next().await.unwrap().unwrap() {
            assert_eq!(change.value.unwrap(), "secret");
            seen += 1;
        }
    }
}
