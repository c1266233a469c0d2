//! Layers in the store, by chain id.
//!
//! Directories that a layer does not describe get their owner and mode from the layers below it. An unpacked layer is
//! therefore shared only by images with the same layers below it, which is what a chain id says. Earlier versions kept
//! layers by diff id, in `layers/`: images that they recorded keep those, which no other image is given, until they are
//! pulled or imported again.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use super::{
    Error, Result, Unsupported,
    files::{names_in, remove_file},
    manifest::{digest_of, hex_of},
    record::LayerRef,
    trash::Trash,
};

/// Layers of the current form.
const CHAINS: &str = "chains";
/// Layers of earlier versions.
const BY_DIFF_ID: &str = "layers";
/// Maximum number of lower directories of overlayfs.
const MAX_LAYERS: usize = 500;

/// Chain ids as the OCI image specification defines them, for layers from the lowest up.
fn chain_ids(diff_ids: &[String]) -> Vec<String> {
    let mut chains: Vec<String> = Vec::with_capacity(diff_ids.len());
    for diff_id in diff_ids {
        chains.push(match chains.last() {
            Some(below) => digest_of(format!("{below} {diff_id}").as_bytes()),
            None => diff_id.clone(),
        });
    }
    chains
}

/// Layers of an image that is about to be fetched, lowest first. Their sizes are known once they are unpacked.
pub(super) fn layers_of(diff_ids: &[String]) -> Vec<LayerRef> {
    let chains = chain_ids(diff_ids);
    let layer = |(diff_id, chain_id): (&String, String)| LayerRef {
        diff_id: diff_id.clone(),
        chain_id: Some(chain_id),
        size: 0,
    };
    diff_ids.iter().zip(chains).map(layer).collect()
}

/// Rejects an image whose config and manifest disagree about its layers, or with more layers than can be mounted.
pub(super) fn check_layers(image: &str, diff_ids: usize, described: usize) -> Result<()> {
    if diff_ids != described {
        return Err(Error::unsupported(image, Unsupported::LayersDiffer));
    }
    if diff_ids > MAX_LAYERS {
        let reason = Unsupported::TooManyLayers { layers: diff_ids, most: MAX_LAYERS };
        return Err(Error::unsupported(image, reason));
    }
    Ok(())
}

impl LayerRef {
    /// Subdirectory of the store, and the layer's name in it.
    fn place(&self) -> Result<(&'static str, &str)> {
        Ok(match &self.chain_id {
            Some(chain_id) => (CHAINS, hex_of(chain_id)?),
            None => (BY_DIFF_ID, hex_of(&self.diff_id)?),
        })
    }
}

/// Target of a short link to a layer.
fn link_target(kind: &str, hex: &str) -> PathBuf {
    Path::new("..").join(kind).join(hex).join("fs")
}

/// Unpacked layers in a store: `chains/`, `layers/` and the short links in `l/`.
#[derive(Debug, Clone)]
pub(super) struct Layers {
    root: PathBuf,
}

impl Layers {
    /// In the directory of a store.
    pub(super) fn new(root: &Path) -> Self {
        Layers { root: root.to_owned() }
    }

    pub(super) fn dir(&self, layer: &LayerRef) -> Result<PathBuf> {
        let (kind, hex) = layer.place()?;
        Ok(self.root.join(kind).join(hex))
    }

    pub(super) fn has(&self, layer: &LayerRef) -> bool {
        self.dir(layer).is_ok_and(|dir| dir.join("fs").is_dir())
    }

    pub(super) fn size(&self, layer: &LayerRef) -> u64 {
        let Ok(dir) = self.dir(layer) else { return 0 };
        fs::read_to_string(dir.join("size")).unwrap_or_default().trim().parse().unwrap_or(0)
    }

    fn link_path(&self, short: &str) -> PathBuf {
        self.root.join("l").join(short)
    }

    /// `l/<16 hex digits>`, unless another layer has it.
    pub(super) fn link(&self, layer: &LayerRef) -> Result<PathBuf> {
        let (kind, hex) = layer.place()?;
        let (target, link) = (link_target(kind, hex), self.link_path(&hex[..16]));
        match symlink(&target, &link) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(Error::io("linking", &link)(e)),
            _ => {}
        }
        match fs::read_link(&link) {
            Ok(found) if found == target => Ok(link),
            _ => Ok(self.dir(layer)?.join("fs")),
        }
    }

    /// Moves all but these to the trash. The store's lock is held.
    pub(super) fn retain(&self, needed: &[LayerRef], trash: &Trash) -> Result<()> {
        let places = needed.iter().map(LayerRef::place).collect::<Result<BTreeSet<_>>>()?;
        for kind in [CHAINS, BY_DIFF_ID] {
            for hex in names_in(&self.root.join(kind))? {
                if !places.contains(&(kind, hex.as_str())) {
                    trash.add(&self.root.join(kind).join(&hex))?;
                    self.unlink(kind, &hex)?;
                }
            }
        }
        Ok(())
    }

    /// Removes the short link of a layer, if it is its own.
    fn unlink(&self, kind: &str, hex: &str) -> Result<()> {
        let Some(short) = hex.get(..16) else { return Ok(()) };
        let link = self.link_path(short);
        match fs::read_link(&link) {
            Ok(found) if found == link_target(kind, hex) => remove_file(&link),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{
        ImageStore,
        commit::NewImage,
        layer::{self, Limits},
        pull::record_of,
    };
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use tar::{Builder, EntryType, Header};

    fn entry(tar: &mut Builder<Vec<u8>>, kind: EntryType, path: &str, mode: u32) {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(nix::unistd::getuid().as_raw().into());
        header.set_gid(nix::unistd::getgid().as_raw().into());
        header.set_size(0);
        tar.append_data(&mut header, path, io::empty()).unwrap();
    }

    /// A layer that describes the directory `d`.
    fn base(mode: u32) -> Vec<u8> {
        let mut tar = Builder::new(Vec::new());
        entry(&mut tar, EntryType::Directory, "d", mode);
        tar.into_inner().unwrap()
    }

    /// A layer with a file in `d`, which it does not describe.
    fn upper() -> Vec<u8> {
        let mut tar = Builder::new(Vec::new());
        entry(&mut tar, EntryType::Regular, "d/file", 0o644);
        tar.into_inner().unwrap()
    }

    /// Commits an image of these layers; its id, and how many layers were unpacked for it.
    fn commit(store: &ImageStore, tars: &[Vec<u8>]) -> (String, usize) {
        let diff_ids: Vec<String> = tars.iter().map(|tar| digest_of(tar)).collect();
        let config = serde_json::json!({ "rootfs": { "diff_ids": diff_ids } }).to_string();
        let record = record_of(&digest_of(config.as_bytes()), "", &serde_json::from_str(&config).unwrap());
        let staged: Vec<_> = record
            .layers
            .iter()
            .zip(tars)
            .filter(|(layer, _)| !store.layers.has(layer))
            .map(|(l, tar)| {
                layer::stage(store, l.clone(), tar.as_slice(), Limits::for_compressed(1)).unwrap()
            })
            .collect();
        let (id, unpacked) = (record.id.clone(), staged.len());
        let mut new = NewImage { record, names: Vec::new(), config: config.into_bytes(), staged };
        assert!(store.commit(&mut new).unwrap().is_empty());
        (id, unpacked)
    }

    fn mode_of_d(store: &ImageStore, id: &str) -> u32 {
        let top = &store.rootfs_layers(id).unwrap()[0];
        fs::metadata(top.join("d")).unwrap().permissions().mode() & 0o7777
    }

    /// Puts the layers of an image where earlier versions had them.
    fn make_legacy(store: &ImageStore, id: &str) {
        let mut record = store.get(id).unwrap();
        for layer in &mut record.layers {
            let from = store.layers.dir(layer).unwrap();
            layer.chain_id = None;
            fs::rename(from, store.layers.dir(layer).unwrap()).unwrap();
        }
        store.records.write(&record).unwrap();
    }

    #[test]
    fn a_chain_id_is_that_of_the_specification() {
        let id = |byte: &str| format!("sha256:{}", byte.repeat(32));
        let two = digest_of(format!("{} {}", id("11"), id("22")).as_bytes());
        let three = digest_of(format!("{two} {}", id("11")).as_bytes());
        assert_eq!(chain_ids(&[id("11"), id("22"), id("11")]), [id("11"), two, three]);
        assert!(chain_ids(&[]).is_empty());
    }

    #[test]
    fn more_layers_than_can_be_mounted_are_refused() {
        assert!(check_layers("app", 500, 500).is_ok());
        assert!(check_layers("app", 501, 501).is_err());
        assert!(check_layers("app", 2, 3).is_err());
    }

    #[test]
    fn a_layer_is_shared_only_above_the_same_layers() {
        let temp = tempfile::tempdir().unwrap();
        let store = ImageStore::open(temp.path()).unwrap();
        let (open, unpacked) = commit(&store, &[base(0o777), upper()]);
        assert_eq!((unpacked, mode_of_d(&store, &open)), (2, 0o777));
        let (closed, unpacked) = commit(&store, &[base(0o700), upper()]);
        assert_eq!((unpacked, mode_of_d(&store, &closed)), (2, 0o700));
        // The same layers below: nothing is unpacked again.
        let (above, unpacked) = commit(&store, &[base(0o700), upper(), base(0o750)]);
        assert_eq!((unpacked, mode_of_d(&store, &above)), (1, 0o750));
        // The same contents twice in one image are two layers.
        assert_eq!(commit(&store, &[upper(), upper()]).1, 2);

        store.remove(&closed).unwrap();
        assert_eq!(mode_of_d(&store, &above), 0o750, "its layers are still needed");
        store.remove(&above).unwrap();
        store.remove(&open).unwrap();
        assert_eq!(names_in(&store.root.join(CHAINS)).unwrap().len(), 2, "those of the last image");
    }

    #[test]
    fn images_of_earlier_versions_run_and_share_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let store = ImageStore::open(temp.path()).unwrap();
        let (old, _) = commit(&store, &[base(0o777), upper()]);
        make_legacy(&store, &old);
        let store = ImageStore::open(temp.path()).unwrap();
        assert_eq!(mode_of_d(&store, &old), 0o777);
        // The upper layer as the lowest of another image has the name there that it had before.
        let (other, unpacked) = commit(&store, &[upper()]);
        assert_eq!(unpacked, 1);
        assert_ne!(mode_of_d(&store, &other), 0o777);
        store.remove(&old).unwrap();
        assert!(names_in(&store.root.join(BY_DIFF_ID)).unwrap().is_empty());
        assert_ne!(mode_of_d(&store, &other), 0o777);
    }

    #[test]
    fn layers_of_earlier_versions_stay_as_long_as_containers_have_them_mounted() {
        let temp = tempfile::tempdir().unwrap();
        let store = ImageStore::open(temp.path()).unwrap();
        let (id, _) = commit(&store, &[base(0o777), upper()]);
        make_legacy(&store, &id);
        store.hold(&id, "container").unwrap();
        // Pulled again, twice: new containers get layers of the current form.
        for unpacked in [2, 0] {
            assert_eq!(commit(&store, &[base(0o777), upper()]).1, unpacked);
            let store = ImageStore::open(temp.path()).unwrap();
            assert!(store.get(&id).unwrap().layers.iter().all(|layer| layer.chain_id.is_some()));
            assert_eq!(names_in(&store.root.join(BY_DIFF_ID)).unwrap().len(), 2);
        }
        store.release(&id, "container").unwrap();
        let store = ImageStore::open(temp.path()).unwrap();
        assert!(names_in(&store.root.join(BY_DIFF_ID)).unwrap().is_empty());
        assert_eq!(mode_of_d(&store, &id), 0o777);
    }
}
