use std::{io::Write, path::Path};

use coracle_engine::image::manifest::digest_of;
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

/// A layer's tar, entry by entry. Paths and targets are written as given, however evil.
#[derive(Default)]
pub struct Layer {
    builder: Option<Builder<Vec<u8>>>,
}

impl Layer {
    fn tar(&mut self) -> &mut Builder<Vec<u8>> {
        self.builder.get_or_insert_with(|| Builder::new(Vec::new()))
    }

    pub fn entry(mut self, path: &str, kind: EntryType, mode: u32, target: &str, data: &[u8]) -> Self {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(1000);
        header.set_gid(1000);
        header.set_mtime(86_400);
        header.set_size(data.len() as u64);
        if kind == EntryType::Char {
            header.set_device_major(1).unwrap();
            header.set_device_minor(3).unwrap();
        }
        header.set_cksum();
        self.tar().append(&header, data).unwrap();
        self
    }

    pub fn file(self, path: &str, data: &str) -> Self {
        self.entry(path, EntryType::Regular, 0o644, "", data.as_bytes())
    }

    pub fn dir(self, path: &str) -> Self {
        self.entry(path, EntryType::Directory, 0o755, "", b"")
    }

    pub fn symlink(self, path: &str, target: &str) -> Self {
        self.entry(path, EntryType::Symlink, 0o777, target, b"")
    }

    pub fn hard_link(self, path: &str, target: &str) -> Self {
        self.entry(path, EntryType::Link, 0o644, target, b"")
    }

    pub fn xattr(self, name: &str, value: &str) -> Self {
        self.pax(&format!("SCHILY.xattr.{name}"), value)
    }

    /// An extended header of the next entry.
    pub fn pax(mut self, key: &str, value: &str) -> Self {
        self.tar().append_pax_extensions([(key, value.as_bytes())]).unwrap();
        self
    }

    pub fn bytes(mut self) -> Vec<u8> {
        self.tar();
        self.builder.unwrap().into_inner().unwrap()
    }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Blobs of an image and its manifest.
pub struct Image {
    pub blobs: Vec<Vec<u8>>,
    pub manifest: Vec<u8>,
}

impl Image {
    /// Of compressed layers with their diff ids.
    pub fn of(layers: &[(String, Vec<u8>)]) -> Self {
        let config = json!({
            "architecture": "amd64", "os": "linux", "created": "2020-01-01T00:00:00Z",
            "config": { "Cmd": ["sh"], "Env": ["A=b"], "User": "1000", "Volumes": { "/data": {} } },
            "rootfs": { "type": "layers", "diff_ids": layers.iter().map(|(id, _)| id).collect::<Vec<_>>() },
        })
        .to_string()
        .into_bytes();
        let describe = |bytes: &[u8]| json!({ "digest": digest_of(bytes), "size": bytes.len() });
        let manifest = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": describe(&config),
            "layers": layers.iter().map(|(_, bytes)| describe(bytes)).collect::<Vec<_>>(),
        })
        .to_string()
        .into_bytes();
        let mut blobs: Vec<Vec<u8>> = layers.iter().map(|(_, bytes)| bytes.clone()).collect();
        blobs.push(config);
        Image { blobs, manifest }
    }

    /// Of plain tars, gzipped.
    pub fn of_tars(tars: &[Vec<u8>]) -> Self {
        let layers: Vec<_> = tars.iter().map(|tar| (digest_of(tar), gzip(tar))).collect();
        Image::of(&layers)
    }

    /// An OCI archive with one name.
    pub fn save(&self, path: &Path, name: &str) {
        let entry = json!({
            "digest": digest_of(&self.manifest), "size": self.manifest.len(),
            "annotations": { "io.containerd.image.name": name },
        });
        let index = json!({ "schemaVersion": 2, "manifests": [entry] });
        let mut members: Vec<(String, Vec<u8>)> = vec![("index.json".into(), index.to_string().into_bytes())];
        for blob in self.blobs.iter().chain([&self.manifest]) {
            members.push((format!("blobs/{}", digest_of(blob).replace(':', "/")), blob.clone()));
        }
        write_tar(path, &members);
    }

    /// What `docker save` writes.
    pub fn save_docker(&self, path: &Path, name: &str, tars: &[Vec<u8>]) {
        let config = self.blobs.last().unwrap();
        let config_name = format!("{}.json", &digest_of(config)[7..]);
        let layers: Vec<String> = (0..tars.len()).map(|n| format!("{n}/layer.tar")).collect();
        let manifest: Value = json!([{ "Config": config_name, "RepoTags": [name], "Layers": layers }]);
        let mut members = vec![
            ("manifest.json".to_owned(), manifest.to_string().into_bytes()),
            (config_name, config.clone()),
        ];
        members.extend(layers.into_iter().zip(tars.iter().cloned()));
        write_tar(path, &members);
    }
}

fn write_tar(path: &Path, members: &[(String, Vec<u8>)]) {
    let mut tar = Builder::new(std::fs::File::create(path).unwrap());
    for (name, data) in members {
        let mut header = Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, data.as_slice()).unwrap();
    }
    tar.finish().unwrap();
}
