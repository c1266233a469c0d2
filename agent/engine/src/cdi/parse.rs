//! Reading of spec files.

use super::error::SpecError;
use super::spec::Spec;
use super::version;

impl Spec {
    /// Reads a spec file: JSON if its name says so, otherwise YAML.
    pub fn parse(text: &str, is_json: bool) -> Result<Self, SpecError> {
        let spec: Self = if is_json {
            serde_json::from_str(text).map_err(|error| SpecError::Syntax(error.to_string()))?
        } else {
            coracle_cli::yaml::from_str(text).map_err(|error| SpecError::Syntax(error.to_string()))?
        };
        version::check(&spec)?;
        spec.check()?;
        Ok(spec)
    }
}
