//! Spec files of the node: which file describes a device.

use coracle_cli::causes;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::CdiError;
use super::error::SpecError;
use super::spec::{Edits, Spec};

/// Largest spec file.
const MAX_FILE: u64 = 1 << 20;
/// Most spec files of a directory; more are reported.
const MAX_FILES: usize = 512;
/// Most problems that an error lists.
const MAX_PROBLEMS: usize = 5;

/// Where a device is described.
#[derive(Clone, Copy)]
struct Place {
    /// Of the file.
    spec: usize,
    /// In the file.
    device: usize,
    directory: usize,
}

/// All spec files that can be used, and what is wrong with the others.
#[derive(Default)]
pub(super) struct Registry {
    specs: Vec<(PathBuf, Spec)>,
    devices: BTreeMap<String, Place>,
    /// Devices that two files of a directory describe.
    conflicts: BTreeMap<String, Vec<PathBuf>>,
    problems: Vec<String>,
}

/// Reads the spec files of these directories; a device in several is that of the last one.
pub(super) fn read(dirs: &[PathBuf]) -> Registry {
    let mut registry = Registry::default();
    for (directory, dir) in dirs.iter().enumerate() {
        match files(dir) {
            Ok((files, is_complete)) => {
                if !is_complete {
                    registry.problems.push(format!("{}: more than {MAX_FILES} spec files", dir.display()));
                }
                files.into_iter().for_each(|file| registry.add(directory, file));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => registry.problems.push(format!("{}: {error}", dir.display())),
        }
    }
    registry
}

/// The spec files of a directory, sorted; whether these are all.
fn files(dir: &Path) -> io::Result<(Vec<PathBuf>, bool)> {
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| ["json", "yaml", "yml"].iter().any(|known| end == *known)) {
            files.insert(path);
        }
    }
    let is_complete = files.len() <= MAX_FILES;
    Ok((files.into_iter().take(MAX_FILES).collect(), is_complete))
}

fn load(path: &Path) -> Result<Spec, SpecError> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file").into());
    }
    let mut text = String::new();
    fs::File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge).into());
    }
    Spec::parse(&text, path.extension().is_some_and(|end| end == "json"))
}

impl Registry {
    fn add(&mut self, directory: usize, path: PathBuf) {
        let spec = match load(&path) {
            Ok(spec) => spec,
            Err(error) => {
                return self.problems.push(format!("{}: {}", path.display(), causes::chain(&error)));
            }
        };
        let number = self.specs.len();
        for (device, of) in spec.devices.iter().enumerate() {
            let name = format!("{}={}", spec.kind, of.name);
            let place = Place { spec: number, device, directory };
            match self.devices.get(&name).copied() {
                // Neither of them counts.
                Some(other) if other.directory == directory => {
                    let first = self.specs[other.spec].0.clone();
                    let files = self.conflicts.entry(name).or_insert_with(|| vec![first]);
                    files.push(path.clone());
                }
                _ => {
                    // One of a later directory replaces those of an earlier one, and their conflict.
                    self.conflicts.remove(&name);
                    self.devices.insert(name, place);
                }
            }
        }
        self.specs.push((path, spec));
    }

    /// The changes for these devices, in order: those of a file once, before those of its first device.
    pub(super) fn resolve(&self, names: &[String]) -> Result<Vec<(&Path, String, &Edits)>, CdiError> {
        let place = |name: &String| self.devices.get(name).filter(|_| !self.conflicts.contains_key(name));
        let missing: Vec<String> = names.iter().filter(|name| place(name).is_none()).cloned().collect();
        if !missing.is_empty() {
            let conflicts = missing.iter().filter_map(|name| {
                let files: Vec<String> =
                    self.conflicts.get(name)?.iter().map(|file| file.display().to_string()).collect();
                Some(format!("conflicting specs of {name}: {}", files.join(", ")))
            });
            let problems = conflicts.chain(self.problems.iter().cloned()).take(MAX_PROBLEMS).collect();
            return Err(CdiError::Unresolved { names: missing, problems });
        }
        let (mut edits, mut seen) = (Vec::new(), BTreeSet::new());
        for (name, place) in names.iter().filter_map(|name| Some((name, place(name)?))) {
            let (file, spec) = &self.specs[place.spec];
            if seen.insert(place.spec) {
                edits.push((file.as_path(), name.clone(), &spec.container_edits));
            }
            edits.push((file.as_path(), name.clone(), &spec.devices[place.device].container_edits));
        }
        Ok(edits)
    }
}
