//! Which versions of servers can be in one cluster: a server that joins is as new as the cluster, or newer by one minor version.

/// Why a server cannot join because of its version.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// No version.
    #[error("{0:?} is not a version")]
    Unreadable(String),
    /// The joining server is older.
    #[error(
        "the server that joins has version {joining}, the cluster has {cluster}: install version {cluster} there first"
    )]
    Older {
        /// Version of the server that joins.
        joining: String,
        /// Version of the cluster.
        cluster: String,
    },
    /// The joining server is too new.
    #[error(
        "the server that joins has version {joining}, the cluster has {cluster}: upgrade the cluster first, one minor version at a time"
    )]
    Newer {
        /// Version of the server that joins.
        joining: String,
        /// Version of the cluster.
        cluster: String,
    },
    /// The joining server does not read the store.
    #[error(
        "the server that joins ({joining}) reads formats of the store up to {reads}, that of the cluster needs {needed}: install a newer version there first"
    )]
    Format {
        /// Version of the server that joins.
        joining: String,
        /// The newest format that it reads.
        reads: u32,
        /// The format that it would have to read.
        needed: u32,
    },
}

/// The version of this server.
pub(super) const OWN: &str = env!("CARGO_PKG_VERSION");

fn parse(text: &str) -> Result<(u32, u32), VersionError> {
    let unreadable = || VersionError::Unreadable(text.chars().take(64).collect());
    let mut parts = text.split('.').map(|part| part.parse().map_err(|_| unreadable()));
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) => Ok((major?, minor?)),
        _ => Err(unreadable()),
    }
}

/// Fails if a server of one version cannot join a cluster of another.
pub(super) fn check(joining: &str, cluster: &str) -> Result<(), VersionError> {
    let (own, theirs) = (parse(joining)?, parse(cluster)?);
    let (joining, cluster) = (joining.to_owned(), cluster.to_owned());
    if own < theirs {
        return Err(VersionError::Older { joining, cluster });
    }
    if own.0 != theirs.0 || own.1 - theirs.1 > 1 {
        return Err(VersionError::Newer { joining, cluster });
    }
    Ok(())
}

/// Fails if a server that reads formats up to `reads` cannot use a store that needs `needed`.
pub(super) fn check_format(joining: &str, reads: u32, needed: u32) -> Result<(), VersionError> {
    match reads < needed {
        true => Err(VersionError::Format { joining: joining.to_owned(), reads, needed }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn servers_are_as_new_as_the_cluster_or_one_minor_version_newer() {
        check(OWN, OWN).unwrap();
        for (joining, cluster) in
            [("0.1.0", "0.1.5"), ("0.2.0", "0.1.9"), ("1.4.2", "1.3.0"), ("1.3.0-rc1", "1.3.0")]
        {
            assert_eq!(check(joining, cluster), Ok(()), "{joining} {cluster}");
        }
        for (joining, cluster) in [("0.1.9", "0.2.0"), ("0.9.0", "1.0.0"), ("1.2.0", "1.4.0")] {
            let error = check(joining, cluster).unwrap_err();
            assert!(matches!(error, VersionError::Older { .. }), "{joining} {cluster}");
            assert!(error.to_string().contains(joining) && error.to_string().contains(cluster));
        }
        for (joining, cluster) in [("0.3.0", "0.1.0"), ("1.0.0", "0.9.0")] {
            assert!(
                matches!(check(joining, cluster), Err(VersionError::Newer { .. })),
                "{joining} {cluster}"
            );
        }
        for bad in ["", "1", "x.y", "1.", &"1".repeat(100)] {
            assert!(matches!(check(bad, "1.0.0"), Err(VersionError::Unreadable(_))), "{bad}");
        }
    }

    #[test]
    fn a_server_that_cannot_read_the_store_is_refused() {
        check_format("0.1.0", 1, 1).unwrap();
        check_format("0.1.0", 2, 1).unwrap();
        assert!(matches!(check_format("0.1.0", 1, 2), Err(VersionError::Format { reads: 1, needed: 2, .. })));
    }
}
