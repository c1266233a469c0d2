use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use coracle_engine::image::{Credentials, Error, ImageRecord, ImageStore, ProgressEvent, RegistryConfig};
use coracle_tests::{
    lab::{Lab, in_lab, run},
    program,
    registry::Registry,
};

fn script() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    root.join("scripts/images").to_str().unwrap().to_owned()
}

fn pull(
    store: &ImageStore,
    name: &str,
    credentials: &Credentials,
    hosts: &RegistryConfig,
) -> Result<ImageRecord, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(store.pull(name, credentials, hosts, None))
}

fn store(lab: &Lab) -> ImageStore {
    ImageStore::open(&lab.path("store")).unwrap()
}

/// The file of the registry's biggest blob.
fn biggest_blob(registry: &Registry) -> PathBuf {
    let found = run("find", &[registry.storage.to_str().unwrap(), "-name", "data", "-size", "+100k"]);
    let mut paths: Vec<PathBuf> = found.lines().map(PathBuf::from).collect();
    paths.sort_by_key(|path| fs::metadata(path).unwrap().len());
    paths.pop().unwrap()
}

#[test]
fn plain_by_tag_by_digest_and_by_mirror() {
    in_lab(|lab| {
        let registry = Registry::start(&lab.dir, false);
        run(&script(), &["push", &registry.address]);
        let store = store(lab);
        let name = format!("{}/library/nginx:latest", registry.address);
        let pulled = pull(&store, &name, &Credentials::Anonymous, &RegistryConfig::default()).unwrap();
        assert_eq!(pulled.repo_tags, std::slice::from_ref(&name));
        assert_eq!((pulled.config.cmd[0].as_str(), pulled.config.stop_signal.as_str()), ("nginx", "SIGQUIT"));
        assert_eq!(store.rootfs_layers(&name).unwrap().len(), 2);

        let by_digest = pulled.repo_digests[0].clone();
        assert_eq!(
            pull(&store, &by_digest, &Credentials::Anonymous, &RegistryConfig::default()).unwrap().id,
            pulled.id
        );

        let yaml = lab.path("registries.yaml");
        fs::write(
            &yaml,
            format!(
                "mirrors:\n  docker.io:\n    endpoint: [\"http://{0}\"]\n  example.test:\n    endpoint: [\"http://{0}/v2/library\"]\n",
                registry.address
            ),
        )
        .unwrap();
        let hosts = RegistryConfig::load(&yaml).unwrap();
        // A mirror that keeps everything below a name of its own.
        let below = pull(&store, "example.test/nginx:latest", &Credentials::Anonymous, &hosts).unwrap();
        assert_eq!(below.id, pulled.id);
        let error = pull(&store, "example.test/none:1", &Credentials::Anonymous, &hosts).unwrap_err();
        let mirror = format!("its mirrors: {}: ", registry.address);
        assert!(error.to_string().contains(&mirror) && error.to_string().contains("not found"), "{error}");
        let mirrored = pull(&store, "nginx", &Credentials::Anonymous, &hosts).unwrap();
        assert_eq!(mirrored.id, pulled.id);
        assert!(mirrored.repo_tags.contains(&"docker.io/library/nginx:latest".to_owned()));

        for (name, missing) in [("library/nginx:none", "tag"), ("no/such:latest", "repository")] {
            let name = format!("{}/{name}", registry.address);
            let error = pull(&store, &name, &Credentials::Anonymous, &RegistryConfig::default()).unwrap_err();
            assert!(matches!(error, Error::Unknown { .. }), "{missing}: {error}");
        }
        drop(registry);
        let error = pull(&store, &name, &Credentials::Anonymous, &RegistryConfig::default()).unwrap_err();
        assert!(matches!(&error, Error::Registry { .. }) && error.is_temporary(), "{error}");
    });
}

#[test]
fn the_image_of_a_release_is_pulled_and_imported() {
    in_lab(|lab| {
        let registry = Registry::start(&lab.dir, true);
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_str().unwrap();
        let out = lab.dir.to_str().unwrap();
        let release = format!("{out}/coracle-1.2.3-linux-{}", std::env::consts::ARCH);
        let make = r#"export TREE=$1; . "$1/tests/up/fake_release.sh"; fake_release "$2"
            CORACLE_COMMIT=5fc2e19 "$1/scripts/oci-image" "$2" "$3""#;
        run("bash", &["-euc", make, "make", tree, &release, out]);
        let (script, archive) = (format!("{tree}/scripts/oci-image"), format!("{release}.oci.tar"));
        let place = format!("{}/team/node", registry.address);
        let name = run(&script, &["push", &archive, &place, "tester:secret"]).trim().to_owned();
        assert_eq!(name, format!("{place}:1.2.3"));

        let store = store(lab);
        let tester = Credentials::Basic { username: "tester".into(), password: "secret".into() };
        let pulled = pull(&store, &name, &tester, &RegistryConfig::default()).unwrap();
        for (label, value) in [("version", "1.2.3"), ("revision", "5fc2e19")] {
            assert_eq!(pulled.config.labels[&format!("org.opencontainers.image.{label}")], value);
        }
        let layers = store.rootfs_layers(&name).unwrap();
        assert!(layers.iter().any(|layer| layer.join("usr/bin/coracle-agent").is_file()), "{layers:?}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let imported = runtime.block_on(store.import(Path::new(&archive), None)).unwrap();
        assert_eq!(imported[0].id, pulled.id);
        assert!(imported[0].repo_tags.contains(&"coracle.local/coracle:1.2.3".to_owned()), "{imported:?}");
    });
}

#[test]
fn basic_auth_right_wrong_and_none() {
    in_lab(|lab| {
        let registry = Registry::start(&lab.dir, true);
        run(&script(), &["push", &registry.address, "tester:secret"]);
        let store = store(lab);
        let name = format!("{}/library/busybox:latest", registry.address);
        let basic =
            |password: &str| Credentials::Basic { username: "tester".into(), password: password.into() };
        for credentials in [basic("wrong"), Credentials::Anonymous] {
            let error = pull(&store, &name, &credentials, &RegistryConfig::default()).unwrap_err();
            assert!(matches!(error, Error::Unauthorized { .. }), "{error}");
        }
        assert_eq!(store.list().unwrap().len(), 0);
        pull(&store, &name, &basic("secret"), &RegistryConfig::default()).unwrap();
        let auth = format!(
            "configs:\n  \"{}\":\n    auth: {{ username: tester, password: secret }}\n",
            registry.address
        );
        fs::write(lab.path("registries.yaml"), auth).unwrap();
        let hosts = RegistryConfig::load(&lab.path("registries.yaml")).unwrap();
        pull(&store, &name, &Credentials::Anonymous, &hosts).unwrap();
    });
}

#[test]
fn corrupted_blobs_are_noticed_and_not_kept() {
    in_lab(|lab| {
        let registry = Registry::start(&lab.dir, false);
        run(&script(), &["push", &registry.address]);
        let blob = biggest_blob(&registry);
        let good = fs::read(&blob).unwrap();
        let mut bad = good.clone();
        let middle = bad.len() / 2;
        bad[middle] ^= 1;
        fs::write(&blob, &bad).unwrap();
        let store = store(lab);
        let name = format!("{}/tools:latest", registry.address);
        let error = pull(&store, &name, &Credentials::Anonymous, &RegistryConfig::default()).unwrap_err();
        assert!(matches!(error, Error::Digest { .. }), "{error}");
        assert_eq!(store.list().unwrap().len(), 0);
        fs::write(&blob, &good).unwrap();
        pull(&store, &name, &Credentials::Anonymous, &RegistryConfig::default()).unwrap();
        assert_eq!(fs::read_dir(store.ingest_dir()).unwrap().count(), 0);
    });
}

#[test]
fn a_killed_pull_shows_nothing_and_is_resumed() {
    in_lab(|lab| {
        let registry = Registry::start(&lab.dir, false);
        run(&script(), &["push", &registry.address]);
        let name = format!("{}/tools:latest", registry.address);
        let dir = lab.path("store");
        let mut finished = 0;
        for round in 0..25_u64 {
            let mut child = Command::new(program("coracle-agent"))
                .args(["image", "pull", "-q", &name, "--image-dir", dir.to_str().unwrap()])
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(20 + round * 40));
            let _ = child.kill();
            child.wait().unwrap();
            let store = store(lab);
            for record in store.list().unwrap() {
                finished += 1;
                let layers = store.rootfs_layers(&record.id).unwrap();
                assert!(layers[0].join("usr/bin/curl").is_file(), "what is visible is whole");
                store.remove(&record.id).unwrap();
            }
        }
        assert!(finished < 25, "some were really killed");

        // Half a layer is there: only the rest is fetched.
        let store = store(lab);
        let blob = biggest_blob(&registry);
        let bytes = fs::read(&blob).unwrap();
        let digest = blob.parent().unwrap().file_name().unwrap();
        fs::write(store.ingest_dir().join(digest), &bytes[..bytes.len() / 2]).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let watcher = Arc::clone(&seen);
        let progress = Arc::new(move |event| {
            if let ProgressEvent::Downloading { have, size, .. } = event
                && size as usize == bytes.len()
            {
                watcher.lock().unwrap().push(have);
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime
            .block_on(store.pull(&name, &Credentials::Anonymous, &RegistryConfig::default(), Some(progress)))
            .unwrap();
        let first = seen.lock().unwrap().first().copied().unwrap();
        assert!(first as usize > fs::metadata(&blob).unwrap().len() as usize / 2, "resumed at {first}");
    });
}
