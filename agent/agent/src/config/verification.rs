//! Which images on the node need credentials that have pulled them before. Pure.

use std::str::FromStr;

use coracle_engine::image::{self, reference};

/// What the kubelet's `imagePullCredentialsVerificationPolicy` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum VerificationPolicy {
    /// Every pod may use every image on the node.
    NeverVerify,
    /// Images that pods did not pull, such as imported ones, are for every pod.
    #[default]
    NeverVerifyPreloadedImages,
    /// Images on the allowlist are for every pod.
    NeverVerifyAllowlistedImages,
    /// Every image needs credentials that have pulled it, or that it was pulled without any.
    AlwaysVerify,
}

/// Why a setting is refused.
#[derive(Debug, thiserror::Error)]
pub enum VerificationError {
    /// Not a repository.
    #[error("{pattern:?} names no images: give a repository, or a registry or path that ends in /*")]
    Pattern {
        /// The pattern as given.
        pattern: String,
        /// What is wrong with it.
        #[source]
        source: image::Error,
    },
    /// A single image of a repository.
    #[error("{pattern:?} has a tag or a digest: give a repository without them")]
    Tagged {
        /// The pattern as given.
        pattern: String,
    },
    /// The policy does not use the allowlist.
    #[error("the policy {policy:?} takes no allowlist, only NeverVerifyAllowlistedImages does")]
    UnusedAllowlist {
        /// The policy in force.
        policy: VerificationPolicy,
    },
}

/// An entry of the allowlist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One repository.
    Repository(String),
    /// All repositories whose names begin like this, with a `/` at its end.
    Below(String),
}

impl FromStr for Pattern {
    type Err = VerificationError;

    /// `registry.example/team/app` or `registry.example/team/*`.
    fn from_str(pattern: &str) -> Result<Self, VerificationError> {
        let parse = |name: &str| -> Result<String, VerificationError> {
            let refused = |source| VerificationError::Pattern { pattern: pattern.to_owned(), source };
            Ok(reference::repository(&reference::parse(name).map_err(refused)?))
        };
        match pattern.strip_suffix('*').filter(|prefix| prefix.ends_with('/')) {
            // Parsed with a repository in the place of the star, so that it is normalised as names of images are.
            Some(prefix) => {
                Ok(Pattern::Below(parse(&format!("{prefix}x"))?.trim_end_matches('x').to_owned()))
            }
            None => {
                let last = pattern.rsplit('/').next().unwrap_or(pattern);
                if last.contains([':', '@']) {
                    return Err(VerificationError::Tagged { pattern: pattern.to_owned() });
                }
                Ok(Pattern::Repository(parse(pattern)?))
            }
        }
    }
}

impl Pattern {
    fn has(&self, repository: &str) -> bool {
        match self {
            Pattern::Repository(name) => name == repository,
            Pattern::Below(prefix) => repository.starts_with(prefix.as_str()),
        }
    }
}

/// The policy with its allowlist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    policy: VerificationPolicy,
    allowlist: Vec<Pattern>,
}

impl Verification {
    /// A list that the policy does not read is an error.
    pub fn new(policy: VerificationPolicy, allowlist: Vec<Pattern>) -> Result<Self, VerificationError> {
        if !allowlist.is_empty() && policy != VerificationPolicy::NeverVerifyAllowlistedImages {
            return Err(VerificationError::UnusedAllowlist { policy });
        }
        Ok(Verification { policy, allowlist })
    }

    /// Whether a pod needs credentials for an image on the node. `is_preloaded` is asked only if it matters.
    pub fn is_needed(&self, image: &str, is_preloaded: impl FnOnce() -> bool) -> bool {
        match self.policy {
            VerificationPolicy::NeverVerify => false,
            VerificationPolicy::NeverVerifyPreloadedImages => !is_preloaded(),
            VerificationPolicy::NeverVerifyAllowlistedImages => {
                let repository = repository_of(image);
                !self.allowlist.iter().any(|pattern| pattern.has(&repository))
            }
            VerificationPolicy::AlwaysVerify => true,
        }
    }
}

/// `registry/repository` of an image; the name as it is if it is none.
pub fn repository_of(image: &str) -> String {
    reference::parse(image).map_or_else(|_| image.to_owned(), |image| reference::repository(&image))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn who_needs_credentials() {
        use VerificationPolicy::*;
        let list = |patterns: &[&str]| patterns.iter().map(|p| p.parse().unwrap()).collect::<Vec<Pattern>>();
        let allowed = ["reg.example/team/*", "nginx", "reg.example:5000/one", "library/*"];
        for (policy, allowlist, image, preloaded, needed) in [
            (NeverVerify, list(&[]), "app:1", false, false),
            (NeverVerifyPreloadedImages, list(&[]), "app:1", true, false),
            (NeverVerifyPreloadedImages, list(&[]), "app:1", false, true),
            (AlwaysVerify, list(&[]), "app:1", true, true),
            (NeverVerifyAllowlistedImages, list(&allowed), "reg.example/team/app:1", true, false),
            (NeverVerifyAllowlistedImages, list(&allowed), "reg.example/team/a/b", true, false),
            (NeverVerifyAllowlistedImages, list(&allowed), "reg.example/team2/app", true, true),
            (NeverVerifyAllowlistedImages, list(&allowed), "docker.io/library/nginx:1", true, false),
            (NeverVerifyAllowlistedImages, list(&allowed), "busybox", true, false),
            (NeverVerifyAllowlistedImages, list(&allowed), "reg.example:5000/one:2", true, false),
            (NeverVerifyAllowlistedImages, list(&allowed), "reg.example:5000/one/two", true, true),
        ] {
            let verification = Verification::new(policy, allowlist).unwrap();
            assert_eq!(verification.is_needed(image, || preloaded), needed, "{policy:?} {image} {preloaded}");
        }
    }

    #[test]
    fn lists_that_mean_nothing_are_refused() {
        for pattern in ["", "*", "/*", " nginx", "reg.example/*/app", "reg.example/a*", "UPPER"] {
            let error = pattern.parse::<Pattern>().unwrap_err();
            assert!(matches!(error, VerificationError::Pattern { .. }), "{pattern}: {error}");
        }
        for pattern in ["nginx:1", "nginx@sha256:00"] {
            let error = pattern.parse::<Pattern>().unwrap_err();
            assert!(matches!(error, VerificationError::Tagged { .. }), "{pattern}: {error}");
        }
        let list = vec!["nginx".parse().unwrap()];
        assert!(Verification::new(VerificationPolicy::AlwaysVerify, list).is_err());
    }
}
