//! Paths and modes of files in volumes.

use crate::field_ref::Field;
use coracle_fields::{Int32, Text};

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// The mode of a file.
pub(super) fn mode(mode: &Field<'_, Int32>) {
    if mode.int().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        mode.invalid(FILE_MODE);
    }
}

/// A relative path that does not climb.
pub(super) fn descending(path: &Field<'_, Text>) {
    if path.text().starts_with('/') {
        path.invalid("must be a relative path");
    }
    if !no_backsteps(path.text()) {
        path.invalid("must not contain '..'");
    }
}

pub(crate) fn no_backsteps(path: &str) -> bool {
    path.split('/').all(|part| part != "..")
}
