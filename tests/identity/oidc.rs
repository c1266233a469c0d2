//! Tokens of an OpenID Connect provider, which is configured by options.

use crate::caller::Caller;
use crate::provider::{Key, now, provider};
use coracle_tests::https::Https;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::time::Duration;

fn start(https: &Https, authority: &str) -> (Server, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("oidc.crt");
    std::fs::write(&ca, authority).unwrap();
    let server = Server::with(&[
        "--api-only",
        "--oidc-issuer-url",
        &https.url("/tenant"),
        "--oidc-client-id",
        "coracle",
        "--oidc-ca-file",
        &ca.display().to_string(),
        "--oidc-signing-algs",
        "RS256,ES256",
        "--oidc-username-claim",
        "email",
        "--oidc-username-prefix",
        "oidc:",
        "--oidc-groups-claim",
        "roles",
        "--oidc-groups-prefix",
        "team:",
        "--oidc-required-claim",
        "hd=example.com",
    ]);
    (server, dir)
}

#[test]
fn tokens_of_a_provider_are_verified_and_their_claims_are_users() {
    let (rsa, ec, later) = (Key::rsa("rsa"), Key::ec("ec"), Key::rsa("later"));
    let (https, keys) = provider(vec![rsa.published(), ec.published()]);
    let (server, _dir) = start(&https, https.authority());
    let claims = |change: Value| {
        let mut claims = json!({"iss": https.url("/tenant"), "aud": "coracle", "sub": "7", "exp": now() + 600,
            "iat": now(), "email": "ann@example.com", "email_verified": true, "hd": "example.com",
            "roles": ["dev", "ops"]});
        for (key, value) in change.as_object().unwrap() {
            claims[key] = value.clone();
        }
        claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        claims
    };
    let who = |token: &str| Caller::bearer(&server, token).whoami();
    let ann = |groups: &[&str]| {
        let groups = groups.iter().chain(&["system:authenticated"]).map(|g| (*g).to_owned()).collect();
        Ok(("oidc:ann@example.com".to_owned(), groups))
    };
    for key in [&rsa, &ec] {
        assert_eq!(who(&key.sign(&claims(json!({})))), ann(&["team:dev", "team:ops"]), "{}", key.id);
    }
    let accepted = [
        ("several audiences", json!({"aud": ["other", "coracle"]}), ann(&["team:dev", "team:ops"])),
        ("one group", json!({"roles": "dev"}), ann(&["team:dev"])),
        ("no group", json!({"roles": null}), ann(&[])),
    ];
    for (what, change, expected) in accepted {
        assert_eq!(who(&rsa.sign(&claims(change))), expected, "{what}");
    }
    let refused = [
        ("another audience", json!({"aud": "vault"})),
        ("no audience", json!({"aud": null})),
        ("expired", json!({"exp": now() - 60})),
        ("no end", json!({"exp": null})),
        ("not valid yet", json!({"nbf": now() + 600})),
        ("another issuer", json!({"iss": "https://elsewhere.example.com"})),
        ("the issuer without its path", json!({"iss": https.url("")})),
        ("an unverified address", json!({"email_verified": false})),
        ("no name", json!({"email": null})),
        ("another domain", json!({"hd": "evil.example.com"})),
        ("no domain", json!({"hd": null})),
    ];
    for (what, change) in refused {
        assert_eq!(who(&rsa.sign(&claims(change))), Err(401), "{what}");
    }
    // Keys: one that only says it is the provider's, one that nobody published, none, and the public one as a password.
    let wrong = Key::rsa("rsa");
    assert_eq!(who(&wrong.sign(&claims(json!({})))), Err(401), "another key under a known name");
    assert_eq!(who(&later.sign(&claims(json!({})))), Err(401), "a key that is not published");
    for (what, token) in rsa.forged(&claims(json!({}))) {
        assert_eq!(who(&token), Err(401), "{what}");
    }
    assert!(server.log().contains("oidc: "), "the log says why");
    // The provider changes its keys: the new one counts as soon as somebody comes with it, the old one no longer.
    *keys.lock().unwrap() = vec![later.published()];
    let token = later.sign(&claims(json!({})));
    coracle_tests::eventually("the new key counts", Duration::from_secs(60), || who(&token).is_ok());
    assert_eq!(who(&rsa.sign(&claims(json!({})))), Err(401), "the old key");
}

#[test]
fn a_provider_whose_certificate_is_not_known_is_not_believed() {
    let key = Key::ec("ec");
    let (https, _) = provider(vec![key.published()]);
    let other = Https::start(|_| (404, Value::Null));
    let (server, _dir) = start(&https, other.authority());
    let claims = json!({"iss": https.url("/tenant"), "aud": "coracle", "exp": now() + 600, "email": "ann@example.com",
        "hd": "example.com"});
    assert_eq!(Caller::bearer(&server, &key.sign(&claims)).whoami(), Err(401));
    assert!(server.log().contains("invalid peer certificate"), "{}", server.log());
}
