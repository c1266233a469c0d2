//! A certificate with its key in one file, so that both change at once, readable by its owner only.

use super::IdentityError;
use std::path::Path;

/// Writes a file that only its owner can read, by rename: it is whole or absent.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), IdentityError> {
    coracle_cli::private_files::write(path, bytes)
        .map_err(|source| IdentityError::File { path: path.into(), source })
}

/// Since when and until when the first certificate of a PEM text holds, in seconds since 1970, and its common name.
pub fn validity(pem: &[u8]) -> Option<(i64, i64, String)> {
    let (_, block) = x509_parser::pem::parse_x509_pem(pem).ok()?;
    let certificate = block.parse_x509().ok()?;
    let (from, until) = (certificate.validity().not_before, certificate.validity().not_after);
    let name = certificate.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
    Some((from.timestamp(), until.timestamp(), name))
}

/// When to renew a certificate: at seven to nine tenths of its life, so that nodes that joined together do not all come
/// back together.
pub fn renewal((from, until): (i64, i64), dice: f64) -> i64 {
    let life = (until - from).max(0) as f64;
    from + (life * (0.7 + 0.2 * dice)).round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewal_is_before_the_end() {
        assert_eq!(renewal((1000, 2000), 0.0), 1700);
        assert_eq!(renewal((1000, 2000), 1.0), 1900);
        assert_eq!(renewal((2000, 1000), 0.5), 2000);
    }
}
