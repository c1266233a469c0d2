use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use coracle_engine::image::{Error, ImageStore, manifest::digest_of};
use coracle_tests::lab::in_lab;
use tar::EntryType;

use crate::build::{Image, Layer, gzip};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn import(dir: &Path, image: &Image) -> Result<ImageStore, Error> {
    let store = ImageStore::open(&dir.join("store")).unwrap();
    let archive = dir.join("image.tar");
    image.save(&archive, "docker.io/library/test:latest");
    block_on(store.import(&archive, None))?;
    Ok(store)
}

/// Everything in a directory, with what `find -printf` would say of it.
fn visible(store: &ImageStore) -> (usize, usize) {
    (store.list().unwrap().len(), fs::read_dir(store.ingest_dir()).unwrap().count())
}

#[test]
fn layers_stack_as_overlayfs_wants_them() {
    in_lab(|lab| {
        let bottom = Layer::default()
            .dir("etc/")
            .file("etc/kept", "bottom")
            .file("etc/replaced", "bottom")
            .file("etc/removed", "bottom")
            .dir("opaque/")
            .file("opaque/hidden", "bottom")
            .dir("gone/")
            .file("gone/file", "bottom")
            .symlink("absolute", "/etc/kept")
            .entry("null", EntryType::Char, 0o666, "", b"")
            .entry("pipe", EntryType::Fifo, 0o600, "", b"")
            .entry("suid", EntryType::Regular, 0o4755, "", b"x")
            .hard_link("etc/linked", "etc/kept")
            .xattr("user.flavour", "sweet")
            .file("marked", "x")
            .xattr("trusted.overlay.redirect", "/etc")
            .file("unmarked", "x")
            .symlink("lib", "usr/lib")
            .file("usr/lib/a", "made without its parents")
            .file("lib/b", "through a link inside");
        let top = Layer::default()
            .file("etc/replaced", "top")
            .file("etc/.wh.removed", "")
            .file("opaque/.wh..wh..opq", "")
            .file("opaque/new", "top")
            .file(".wh.gone", "");
        let store = import(&lab.dir, &Image::of_tars(&[bottom.bytes(), top.bytes()])).unwrap();

        let (upper, work, merged) = (lab.path("upper"), lab.path("work"), lab.path("merged"));
        for dir in [&upper, &work, &merged] {
            fs::create_dir(dir).unwrap();
        }
        let options = store.overlay_options("test", &upper, &work).unwrap();
        let flags = nix::mount::MsFlags::empty();
        nix::mount::mount(Some("overlay"), &merged, Some("overlay"), flags, Some(options.as_str())).unwrap();
        let read = |path: &str| fs::read_to_string(merged.join(path)).ok();
        assert_eq!(read("etc/kept").as_deref(), Some("bottom"));
        assert_eq!(read("etc/replaced").as_deref(), Some("top"));
        assert_eq!(read("opaque/new").as_deref(), Some("top"));
        assert_eq!(read("usr/lib/b").as_deref(), Some("through a link inside"));
        for gone in ["etc/removed", "opaque/hidden", "gone/file"] {
            assert_eq!(read(gone), None, "{gone}");
        }
        let stat = |path: &str| fs::symlink_metadata(merged.join(path)).unwrap();
        assert_eq!(fs::read_link(merged.join("absolute")).unwrap(), Path::new("/etc/kept"));
        assert!(stat("null").file_type().is_char_device() && stat("null").rdev() == 0x103);
        assert!(stat("pipe").file_type().is_fifo());
        assert_eq!(stat("suid").mode() & 0o7777, 0o4755);
        assert_eq!(
            (stat("etc/kept").uid(), stat("etc/kept").mtime(), stat("etc").mtime()),
            (1000, 86_400, 86_400)
        );
        assert_eq!(stat("etc/linked").ino(), stat("etc/kept").ino());
        assert_eq!(
            xattr::get(merged.join("marked"), "user.flavour").unwrap().as_deref(),
            Some(&b"sweet"[..])
        );
        let bottom = &store.rootfs_layers("test").unwrap()[1];
        assert_eq!(xattr::get(bottom.join("unmarked"), "trusted.overlay.redirect").unwrap(), None);
        nix::mount::umount(&merged).unwrap();
    });
}

#[test]
fn evil_layers_are_refused_and_nothing_is_left() {
    in_lab(|lab| {
        let outside = lab.path("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("victim"), "untouched").unwrap();
        let out = outside.to_str().unwrap();
        let evil: [(&str, Layer, &str); 8] = [
            ("a path above the root", Layer::default().file("../../outside/new", "x"), "leaves the root"),
            ("a path above the root, hidden", Layer::default().file("a/../../x", "x"), "leaves the root"),
            (
                "a hard link above the root",
                Layer::default().hard_link("l", "../../outside/victim"),
                "leaves the root",
            ),
            (
                "a hard link to the host",
                Layer::default().hard_link("l", "/etc/hostname-of-host"),
                "not in the layer",
            ),
            ("a whiteout of the parent", Layer::default().file("a/.wh...", "x"), "whiteout"),
            (
                "more directories than files may be open",
                Layer::default().pax("path", &"d/".repeat(1500)).file("x", "x"),
                "directories inside each other",
            ),
            (
                "a path that no kernel takes",
                Layer::default().pax("path", &"long/".repeat(2000)).file("x", "x"),
                "a path of 10000 bytes",
            ),
            (
                "headers that do not end",
                Layer::default().pax("comment", &"x".repeat(2 << 20)).file("x", "x"),
                "headers of an entry are longer than",
            ),
        ];
        for (what, layer, reason) in evil {
            match import(&lab.dir, &Image::of_tars(&[layer.bytes()])) {
                Err(Error::RejectedLayer { reason: said, .. }) => {
                    assert!(said.to_string().contains(reason), "{what}: {said}")
                }
                other => panic!("{what}: {other:?}"),
            }
            let store = ImageStore::open(&lab.path("store")).unwrap();
            assert_eq!(visible(&store), (0, 0), "{what}");
        }
        // Links that point outside are followed inside: nothing leaves.
        let sneaky = Layer::default()
            .symlink("link", out)
            .file("link/victim", "overwritten")
            .symlink("up", "../../../../..")
            .file("up/tmp/escaped", "x")
            .file("/absolute", "x");
        let store = import(&lab.dir, &Image::of_tars(&[sneaky.bytes()])).unwrap();
        assert_eq!(fs::read_to_string(outside.join("victim")).unwrap(), "untouched");
        assert!(!Path::new("/tmp/escaped").exists() && !Path::new("/absolute").exists());
        let layer = &store.rootfs_layers("test").unwrap()[0];
        assert_eq!(fs::read_to_string(layer.join("tmp/escaped")).unwrap(), "x");
    });
}

#[test]
fn bombs_and_lies_are_refused() {
    in_lab(|lab| {
        // More zeros than any layer of its packed size may have.
        let zeros = vec![0; 513 << 20];
        let bomb = Layer::default().entry("zeros", EntryType::Regular, 0o644, "", &zeros).bytes();
        let packed = gzip(&bomb);
        assert!(packed.len() * 200 < bomb.len());
        let error = import(&lab.dir, &Image::of(&[(digest_of(&bomb), packed)])).err().unwrap();
        assert!(
            matches!(&error, Error::RejectedLayer { reason, .. } if reason.to_string().contains("more than")),
            "{error}"
        );

        let tar = Layer::default().file("a", "x").bytes();
        let lie = Image::of(&[(digest_of(b"something else"), gzip(&tar))]);
        assert!(matches!(import(&lab.dir, &lie).err().unwrap(), Error::Digest { .. }));
        let cut = Image::of(&[(digest_of(&tar), gzip(&tar)[..20].to_vec())]);
        assert!(import(&lab.dir, &cut).is_err());
        let noise = Image::of(&[(digest_of(&[7; 5000]), vec![7; 5000])]);
        assert!(import(&lab.dir, &noise).is_err());
        let store = ImageStore::open(&lab.path("store")).unwrap();
        assert_eq!(visible(&store), (0, 0));
    });
}

#[test]
fn zstd_plain_and_docker_archives() {
    in_lab(|lab| {
        let tar = Layer::default().file("a", "x").bytes();
        let zstd = zstd::encode_all(tar.as_slice(), 3).unwrap();
        for packed in [tar.clone(), gzip(&tar), zstd] {
            let store = import(&lab.dir, &Image::of(&[(digest_of(&tar), packed)])).unwrap();
            assert_eq!(fs::read_to_string(store.rootfs_layers("test").unwrap()[0].join("a")).unwrap(), "x");
            store.remove("test").unwrap();
            store.purge();
        }
        let archive = lab.path("docker.tar");
        let image = Image::of_tars(std::slice::from_ref(&tar));
        image.save_docker(&archive, "app:1", &[tar]);
        let store = ImageStore::open(&lab.path("store")).unwrap();
        let imported = block_on(store.import(&archive, None)).unwrap();
        assert_eq!(imported[0].repo_tags, ["docker.io/library/app:1"]);
        assert_eq!(
            (imported[0].config.user.as_str(), imported[0].config.volumes[0].as_str()),
            ("1000", "/data")
        );
        // As they are handed around: compressed as a whole, by either.
        let whole = fs::read(&archive).unwrap();
        for (number, packed) in
            [gzip(&whole), zstd::encode_all(whole.as_slice(), 3).unwrap()].into_iter().enumerate()
        {
            let path = lab.path(&format!("packed-{number}"));
            fs::write(&path, packed).unwrap();
            let store = ImageStore::open(&lab.path(&format!("store-{number}"))).unwrap();
            let again = block_on(store.import(&path, Some("other:2"))).unwrap();
            assert_eq!(again[0].id, imported[0].id);
            assert_eq!(again[0].repo_tags, ["docker.io/library/other:2"]);
            assert_eq!(fs::read_dir(store.ingest_dir()).unwrap().count(), 0);
        }
        let garbage = lab.path("garbage");
        fs::write(&garbage, [0xa5; 4096]).unwrap();
        let error = block_on(store.import(&garbage, None)).unwrap_err().to_string();
        assert!(error.ends_with("neither an OCI nor a docker archive, or damaged"), "{error}");
    });
}
