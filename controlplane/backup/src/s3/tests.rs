#![allow(clippy::unwrap_used)]
use super::options::Credentials;
use super::sign::{Scope, Unsigned, sha256};
use super::*;

/// The examples of "Signature Calculations for the Authorization Header" in the documentation of S3.
#[test]
fn requests_are_signed_as_documented() {
    let credentials = Credentials {
        access_key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
        secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
        token: None,
    };
    let time = "2013-05-24T00:00:00Z".parse().unwrap();
    let scope = Scope { credentials: &credentials, region: "us-east-1", time };
    let nothing = sha256(b"");
    let text = sha256(b"Welcome to Amazon S3.");
    let date = ("date", "Fri, 24 May 2013 00:00:00 GMT");
    type Pairs<'a> = &'a [(&'a str, &'a str)];
    let cases: [(&str, &str, Pairs<'_>, Pairs<'_>, &str, &str); 4] = [
        (
            "GET",
            "/test.txt",
            &[],
            &[("range", "bytes=0-9")],
            &nothing,
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "PUT",
            "/test$file.text",
            &[],
            &[date, ("x-amz-storage-class", "REDUCED_REDUNDANCY")],
            &text,
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        (
            "GET",
            "/",
            &[("lifecycle", "")],
            &[],
            &nothing,
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            "GET",
            "/",
            &[("max-keys", "2"), ("prefix", "J")],
            &[],
            &nothing,
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ];
    for (method, path, query, headers, payload, want) in cases {
        let host = "examplebucket.s3.amazonaws.com";
        let signed = Unsigned { method, host, path, query, headers, payload }.sign(&scope);
        let (_, authorization) = signed.iter().find(|(name, _)| name == "authorization").unwrap();
        assert!(authorization.ends_with(&format!("Signature={want}")), "{method} {path}: {authorization}");
    }
}

#[test]
fn places_are_buckets_with_prefixes() {
    for (text, bucket, path) in
        [("s3://abc", "abc", ""), ("s3://my.bucket/", "my.bucket", ""), ("s3://b-1/a/b c", "b-1", "a/b c")]
    {
        let place: S3Location = text.parse().unwrap();
        assert_eq!((place.bucket.as_str(), place.path.as_str()), (bucket, path));
    }
    for text in ["", "abc", "s3://", "s3://ab", "s3://UPPER/x", "s3://a_b/x", "s3://abc/../x", "http://abc/x"]
    {
        assert!(text.parse::<S3Location>().is_err(), "{text}");
    }
}

#[test]
fn options_come_from_flags_and_environment() {
    let environment = |name: &str| {
        let found = match name {
            "AWS_ACCESS_KEY_ID" => "id",
            "AWS_SECRET_ACCESS_KEY" => "secret",
            "AWS_DEFAULT_REGION" => "eu-central-1",
            _ => return None,
        };
        Some(found.to_owned())
    };
    let found = S3Options::default().resolve(&environment).unwrap();
    assert_eq!(found.endpoint, "https://s3.eu-central-1.amazonaws.com");
    assert_eq!((found.addressing, found.region.as_str()), (Addressing::Virtual, "eu-central-1"));
    let own = S3Options { endpoint: Some("http://127.0.0.1:9000/".to_owned()), ..S3Options::default() };
    let found = own.resolve(&environment).unwrap();
    assert_eq!((found.endpoint.as_str(), found.addressing), ("http://127.0.0.1:9000", Addressing::Path));
    assert_eq!(found.credentials.access_key, "id");
    assert!(matches!(own.resolve(&|_| None), Err(S3Error::NoCredentials)));
    for endpoint in ["", "ftp://x", "https://", "https://me@host", "https://host/path"] {
        let options = S3Options { endpoint: Some(endpoint.to_owned()), ..S3Options::default() };
        assert!(matches!(options.resolve(&environment), Err(S3Error::Endpoint(_))), "{endpoint}");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("credentials");
    std::fs::write(&file, "[default]\naws_access_key_id = one\naws_secret_access_key=two\n").unwrap();
    let options = S3Options { credentials_file: Some(file.clone()), ..own.clone() };
    assert_eq!(options.resolve(&environment).unwrap().credentials.secret_key, "two");
    std::fs::write(&file, "[default]\n").unwrap();
    assert!(matches!(options.resolve(&environment), Err(S3Error::CredentialsFile(_))));
}

#[test]
fn answers_are_read_and_others_are_refused() {
    let list = r#"<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
        <IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;b</NextContinuationToken>
        <Contents><Key>x/y &lt;1&gt;</Key><Size>5</Size>
        <LastModified>2009-10-12T17:50:30.000Z</LastModified></Contents></ListBucketResult>"#;
    let page = xml::page(list).unwrap();
    let modified = "2009-10-12T17:50:30Z".parse().ok();
    assert_eq!(page.objects, [xml::Entry { key: "x/y <1>".to_owned(), size: 5, modified }]);
    assert_eq!(page.next.as_deref(), Some("a&b"));
    assert_eq!(xml::page(&list.replace("NextContinuationToken", "Other")), None, "truncated, but where?");
    assert_eq!(xml::page(&list.replace("<Size>5", "<Size>many")), None);
    let bomb =
        r#"<!DOCTYPE x [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><ListBucketResult>&b;</ListBucketResult>"#;
    for text in ["", "no xml", "<Error/>", bomb] {
        assert_eq!(xml::page(text), None, "{text}");
    }
    let error = "<Error><Code>AccessDenied</Code><Message>No.</Message></Error>";
    assert_eq!(xml::error(error), Some(("AccessDenied".to_owned(), "No.".to_owned())));
    assert_eq!(xml::error("<html/>"), None);
}
