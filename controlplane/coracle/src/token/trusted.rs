//! Which tokens can be used, as far as the cluster knows. A token names the CA of the cluster, so that who joins with it is not
//! deceived. When that CA was replaced, nobody can join with the token.

use serde::Serialize;

/// Whether a token can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TokenStatus {
    /// It can be used.
    Valid,
    /// Its time is over.
    Expired,
    /// It names a CA that is not trusted any more.
    OldCa,
}

impl TokenStatus {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Expired => "expired",
            Self::OldCa => "old-ca",
        }
    }
}

/// The hashes of the CAs that the cluster trusts; none if they are not known.
#[derive(Debug, Default)]
pub(super) struct Trusted(Vec<String>);

impl Trusted {
    /// Those with these hashes.
    pub(super) fn of(hashes: Vec<String>) -> Self {
        Self(hashes)
    }

    /// The status of a token that names a CA. One that names none is not affected by a rotation.
    pub(super) fn status(&self, ca_hash: &str, is_expired: bool) -> TokenStatus {
        let is_known = !ca_hash.is_empty() && !self.0.is_empty();
        if is_known && !self.0.iter().any(|trusted| trusted == ca_hash) {
            TokenStatus::OldCa
        } else if is_expired {
            TokenStatus::Expired
        } else {
            TokenStatus::Valid
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_ends_with_the_ca_that_it_names() {
        let during = Trusted::of(vec!["sha256:new".to_owned(), "sha256:old".to_owned()]);
        let after = Trusted::of(vec!["sha256:new".to_owned()]);
        let unknown = Trusted::default();
        for (trusted, named, is_expired, want) in [
            (&during, "sha256:old", false, TokenStatus::Valid),
            (&during, "sha256:new", true, TokenStatus::Expired),
            (&after, "sha256:old", false, TokenStatus::OldCa),
            (&after, "sha256:old", true, TokenStatus::OldCa),
            (&after, "sha256:new", false, TokenStatus::Valid),
            // Without a CA, as kubeadm has them, or of a server that did not note it.
            (&after, "", false, TokenStatus::Valid),
            (&unknown, "sha256:old", false, TokenStatus::Valid),
        ] {
            assert_eq!(trusted.status(named, is_expired), want, "{trusted:?} {named}");
        }
    }
}
