//! Content negotiation: full objects, Tables, or metadata only. Always JSON.

use coracle_proto::status::ApiError;

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The objects.
    Plain,
    /// A `meta.k8s.io` Table of this version.
    Table(&'static str),
    /// `PartialObjectMetadata` of this version, one or a list.
    Partial(&'static str),
}

/// One offer of an `Accept` header.
struct Offer<'a> {
    media: &'a str,
    transform: &'a str,
    version: &'static str,
}

/// The best form for an `Accept` header; `tables` says whether the resource can be shown as one. 406 when every offer asks
/// for what cannot be had.
pub fn form(accept: &str, tables: bool) -> Result<Form, ApiError> {
    if accept.trim().is_empty() {
        return Ok(Form::Plain);
    }
    let mut wanted = Vec::new();
    for offer in accept.split(',').map(parse) {
        let media_fits =
            matches!(offer.media, "application/json" | "*/*" | "application/*" | "application/yaml");
        // Clients that offer protobuf alone (client-go's typed ones) accept JSON answers too.
        let protobuf = offer.media == "application/vnd.kubernetes.protobuf";
        if !media_fits && !protobuf {
            continue;
        }
        match offer.transform {
            "" => return Ok(Form::Plain),
            "Table" if tables && !offer.version.is_empty() && media_fits => {
                return Ok(Form::Table(offer.version));
            }
            "PartialObjectMetadata" | "PartialObjectMetadataList" if !offer.version.is_empty() => {
                return Ok(Form::Partial(offer.version));
            }
            other => wanted.push(other),
        }
    }
    Err(ApiError::not_acceptable(
        "only the following media types are accepted: application/json, application/json;as=Table;g=meta.k8s.io;v=v1, \
         application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    ))
}

fn parse(offer: &str) -> Offer<'_> {
    let mut parts = offer.split(';').map(str::trim);
    let mut parsed = Offer { media: parts.next().unwrap_or(""), transform: "", version: "" };
    for part in parts {
        match part.split_once('=') {
            Some(("as", value)) => parsed.transform = value,
            Some(("v", "v1")) => parsed.version = "v1",
            Some(("v", "v1beta1")) => parsed.version = "v1beta1",
            _ => {}
        }
    }
    parsed
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn kubectl_gets_tables_and_others_get_objects() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(form(kubectl, true).unwrap(), Form::Table("v1"));
        assert_eq!(form(kubectl, false).unwrap(), Form::Plain);
        assert_eq!(form("application/vnd.kubernetes.protobuf,application/json", true).unwrap(), Form::Plain);
        assert_eq!(form("application/vnd.kubernetes.protobuf", true).unwrap(), Form::Plain);
        assert_eq!(form("", true).unwrap(), Form::Plain);
        let partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        assert_eq!(form(partial, true).unwrap(), Form::Partial("v1"));
        assert_eq!(form("application/json;as=Table;v=v1;g=meta.k8s.io", false).unwrap_err().code, 406);
        assert_eq!(form("text/html", true).unwrap_err().code, 406);
    }
}
