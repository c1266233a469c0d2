//! Makes fetched images visible.

use std::path::PathBuf;

use super::{
    Error, ImageRecord, ImageStore, Result, files::write_atomic, layer::StagedLayer, manifest::hex_of,
    record::LayerRef,
};

/// An image about to become visible.
pub(super) struct NewImage {
    pub record: ImageRecord,
    pub names: Vec<String>,
    pub config: Vec<u8>,
    pub staged: Vec<StagedLayer>,
}

impl ImageStore {
    /// Syncs layer contents before anything refers to them.
    pub(super) fn flush(&self, staged: &[StagedLayer]) -> Result<()> {
        if staged.is_empty() {
            return Ok(());
        }
        let root = std::fs::File::open(&self.root).map_err(Error::io("opening", &self.root))?;
        nix::unistd::syncfs(&root).map_err(|e| Error::io("flushing", &self.root)(e.into()))
    }

    /// Makes a fetched image visible in one step: layers, config, record, names.
    ///
    /// Returns the layers that were neither staged nor still in the store (removed since the pull looked): the caller
    /// fetches those and tries again.
    pub(super) fn commit(&self, image: &mut NewImage) -> Result<Vec<LayerRef>> {
        let _lock = self.exclusive()?;
        let staged = |layer: &LayerRef| image.staged.iter().find(|staged| staged.layer == *layer);
        let is_missing = |layer: &&LayerRef| staged(layer).is_none() && !self.layers.has(layer);
        let missing: Vec<LayerRef> = image.record.layers.iter().filter(is_missing).cloned().collect();
        if !missing.is_empty() {
            return Ok(missing);
        }
        let mut below: Vec<PathBuf> = Vec::new();
        for layer in &image.record.layers {
            let published = self.layers.dir(layer)?.join("fs");
            let staged = staged(layer);
            if let Some(staged) = staged {
                staged.inherit(&below)?;
            }
            below.insert(0, staged.map_or(published, StagedLayer::files));
        }
        for staged in image.staged.drain(..) {
            staged.publish(&self.layers)?;
        }
        for layer in &mut image.record.layers {
            layer.size = self.layers.size(layer);
        }
        image.record.size = image.record.layers.iter().map(|l| l.size).sum();
        image.record.former_layers = self.former_layers(&image.record)?;
        let hex = hex_of(&image.record.id)?;
        write_atomic(&self.records.config_path(hex), &image.config)?;
        self.records.write(&image.record)?;
        self.records.add_names(&image.record.id, &image.names)?;
        Ok(Vec::new())
    }
}
