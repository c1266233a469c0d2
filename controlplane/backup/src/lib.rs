//! Backups: everything in the store at one revision and the keys of the cluster, as one file.
//!
//! Depends on `coracle-store` and `coracle-pki`. It knows no kinds and no API.

#![forbid(unsafe_code)]

// The file: header, chunks, trailer.
pub mod format;
// Encryption of the file: age.
pub mod age;
// Files of the cluster's identity.
pub mod files;
// A backup of a store, as it is made.
pub mod make;
// Names of backups.
pub mod name;
// Which backups are kept.
pub mod retention;
// Places for backups: directories and buckets.
pub mod target;
// Backups at a place, also those with other names.
pub mod listing;
// A client of S3.
pub mod s3;
// Writes a backup to its place.
pub mod save;
// Opens and verifies a backup.
pub mod open;
// A new store and keys from a backup.
pub mod restore;
// The result of the last backup, as the cluster keeps it.
pub mod last;
