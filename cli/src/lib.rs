//! What the command lines of `coracle` and `coracle-agent` share.

// Options from a YAML file, and a file that documents every option.
pub mod file;
// Man pages, completions and the documented files.
pub mod manual;
