//! Why a connection to etcd fails, in words. What an operator has to know, such as that a certificate has expired, is in the
//! sources of an error, which its text does not show.

use etcd_client::Error;
use rustls::{AlertDescription, CertificateError, Error as TlsError};
use std::{error::Error as StdError, io, iter::successors};

/// The reason of an error of the client, or its own text.
pub(super) fn of_client(error: &Error) -> String {
    let source: Option<&(dyn StdError + 'static)> = match error {
        Error::GRpcStatus(status) => status.source(),
        Error::TransportError(error) => Some(error),
        Error::IoError(error) => Some(error),
        _ => None,
    };
    let found = successors(source, |&cause| cause.source()).find_map(of_source);
    found.unwrap_or_else(|| error.to_string())
}

fn of_source(error: &(dyn StdError + 'static)) -> Option<String> {
    if let Some(tls) = error.downcast_ref::<TlsError>() {
        return Some(of_tls(tls));
    }
    let error = error.downcast_ref::<io::Error>()?;
    match error.get_ref() {
        // It is not among the sources.
        Some(inner) => of_source(inner),
        None => Some(error.to_string()),
    }
}

fn of_tls(error: &TlsError) -> String {
    match error {
        TlsError::InvalidCertificate(why) => match why {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet (is the clock of this machine right?)".to_owned()
            }
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate is from a CA that is not trusted here".to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("its certificate is for another name ({why})")
            }
            other => format!("its certificate is not accepted ({other})"),
        },
        TlsError::AlertReceived(alert) => match alert {
            AlertDescription::CertificateExpired => {
                "it refuses the client certificate, which has expired".to_owned()
            }
            AlertDescription::UnknownCA => {
                "it refuses the client certificate, whose CA it does not trust".to_owned()
            }
            AlertDescription::CertificateRequired => "it requires a client certificate".to_owned(),
            AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRevoked
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::AccessDenied => format!("it refuses the client certificate ({error})"),
            _ => format!("TLS: {error}"),
        },
        _ => format!("TLS: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(error: TlsError) -> String {
        of_client(&Error::IoError(io::Error::new(io::ErrorKind::InvalidData, error)))
    }

    #[test]
    fn certificates_are_named() {
        for (error, text) in [
            (CertificateError::Expired, "its certificate has expired"),
            (CertificateError::UnknownIssuer, "its certificate is from a CA that is not trusted here"),
        ] {
            assert_eq!(of(TlsError::InvalidCertificate(error)), text);
        }
        let name = of(TlsError::InvalidCertificate(CertificateError::NotValidForName));
        assert!(name.starts_with("its certificate is for another name ("), "{name}");
        let refused = of(TlsError::AlertReceived(AlertDescription::BadCertificate));
        assert!(refused.starts_with("it refuses the client certificate ("), "{refused}");
        // Wrapped twice, as by a connector.
        let inner = io::Error::new(
            io::ErrorKind::InvalidData,
            TlsError::InvalidCertificate(CertificateError::Expired),
        );
        assert_eq!(of_client(&Error::IoError(io::Error::other(inner))), "its certificate has expired");
    }

    #[test]
    fn other_errors_keep_their_text() {
        let refused = io::Error::from_raw_os_error(111);
        assert_eq!(of_client(&Error::IoError(refused)), "Connection refused (os error 111)");
        assert_eq!(of_client(&Error::InvalidArgs("x".to_owned())), "invalid arguments: x");
        assert_eq!(of_client(&Error::IoError(io::Error::other("gone"))), "io error: gone");
    }
}
