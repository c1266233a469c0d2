//! The version that this server reports.

use coracle_proto::version::{BUILD, MINOR, OLDEST_MINOR};
use serde_json::{Value, json};

/// The commit and the time of a packaged build, which `scripts/package` sets. Other builds have none, so that a new commit
/// does not compile the server anew.
const COMMIT: Option<&str> = option_env!("CORACLE_COMMIT");
const BUILD_DATE: Option<&str> = option_env!("CORACLE_BUILD_DATE");

/// What `kubectl version` shows.
pub fn version() -> Value {
    json!({
        "major": "1", "minor": MINOR, "emulationMajor": "1", "emulationMinor": MINOR,
        "minCompatibilityMajor": "1", "minCompatibilityMinor": OLDEST_MINOR,
        "gitVersion": BUILD, "gitCommit": COMMIT.unwrap_or_default(), "gitTreeState": "clean",
        "buildDate": BUILD_DATE.unwrap_or("1970-01-01T00:00:00Z"),
        "goVersion": "none", "compiler": "rustc",
        "platform": format!("linux/{}", if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }),
    })
}
