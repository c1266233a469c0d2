//! Certificate authorities of the operator: users and proxies with their certificates, and what happens when files change.

use crate::caller::Caller;
use coracle_pki::authority::{Authority, Profile};
use coracle_tests::eventually;
use coracle_tests::server::Server;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);

/// Somebody with a certificate of an authority.
fn of(server: &Server, by: &Authority, name: &str, groups: &[&str]) -> Caller {
    let signed = by.sign(&Profile::client(name, groups)).unwrap();
    Caller::with_pem(server, name, &format!("{}{}", signed.certificate, signed.key))
}

/// Puts a file in the place of another, as configuration tools do.
fn replace(path: &Path, text: &str) {
    let next = path.with_extension("next");
    std::fs::write(&next, text).unwrap();
    std::fs::rename(next, path).unwrap();
}

#[test]
fn certificates_of_the_operators_ca_count_while_its_file_has_it() {
    let files = tempfile::tempdir().unwrap();
    let authority = |name: &str| Authority::ensure(files.path(), name, name).unwrap();
    let (first, second) = (authority("first"), authority("second"));
    let bundle = files.path().join("clients.pem");
    std::fs::write(&bundle, &first.certificate).unwrap();
    let server = Server::with(&["--api-only", "--client-ca-file", &bundle.display().to_string()]);
    let ann = of(&server, &first, "ann", &["system:masters"]);
    let bob = of(&server, &second, "bob", &[]);
    let groups = ["system:masters", "system:authenticated"].map(str::to_owned).to_vec();
    assert_eq!(ann.whoami(), Ok(("ann".to_owned(), groups)));
    assert_eq!(bob.whoami(), Err(401));
    assert!(Caller::admin(&server).whoami().is_ok(), "the cluster's own CA counts as before");
    assert_eq!(
        ann.header("X-Remote-User: eve").whoami().unwrap().0,
        "ann",
        "a CA of users does not vouch for proxies"
    );

    replace(&bundle, &format!("{}{}", first.certificate, second.certificate));
    eventually("the second CA counts", SOON, || bob.whoami().is_ok());
    let map = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let published = || Caller::admin(&server).get(map).1["data"]["client-ca-file"].to_string();
    eventually("aggregated API servers see three", SOON, || published().matches("BEGIN").count() == 3);

    let mut watch = ann.watch("/api/v1/namespaces?watch=1");
    replace(&bundle, "not a certificate");
    eventually("the log names the file", SOON, || server.log().contains("clients.pem contains no"));
    assert!(ann.whoami().is_ok() && !watch.over(), "a file that cannot be used changes nothing");
    replace(&bundle, &second.certificate);
    eventually("the first CA no longer counts", SOON, || ann.whoami() == Err(401));
    eventually("nor for connections that are open", SOON, || watch.over());
    assert!(bob.whoami().is_ok());
}

#[test]
fn proxies_of_the_operators_ca_name_users_in_the_headers_of_the_operator() {
    let files = tempfile::tempdir().unwrap();
    let proxies = Authority::ensure(files.path(), "proxies", "proxies").unwrap();
    let bundle = files.path().join("proxies.pem");
    std::fs::write(&bundle, &proxies.certificate).unwrap();
    let server = Server::with(&[
        "--api-only",
        "--requestheader-client-ca-file",
        &bundle.display().to_string(),
        "--requestheader-allowed-names",
        "gate",
        "--requestheader-username-headers",
        "X-Auth-User,X-Remote-User",
        "--requestheader-group-headers",
        "X-Auth-Team",
    ]);
    let gate = of(&server, &proxies, "gate", &["system:masters"]);
    let user = gate.header("X-Auth-User: eve").header("X-Auth-Team: dev");
    let groups = ["dev", "system:authenticated"].map(str::to_owned).to_vec();
    let eve = Ok(("eve".to_owned(), groups));
    assert_eq!(user.whoami(), eve);
    assert_eq!(user.header("X-Remote-Group: system:masters").whoami(), eve, "not a header of the operator");
    assert_eq!(gate.whoami(), Err(401), "a proxy is no user itself");
    let other = of(&server, &proxies, "other", &[]).header("X-Auth-User: eve");
    assert_eq!(other.whoami(), Err(401), "a proxy that is not named");
    // The cluster's own proxies keep the usual headers.
    let own = Caller::signed(&server, "front-proxy-ca", "gate", &[]);
    assert_eq!(own.header("X-Auth-User: eve").whoami(), Err(401));
    assert_eq!(own.header("X-Remote-User: ann").whoami().unwrap().0, "ann");
    let servers = Caller::signed(&server, "front-proxy-ca", "front-proxy-client", &[]);
    assert_eq!(servers.header("X-Remote-User: ann").whoami().unwrap().0, "ann");
    let map = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let data = Caller::admin(&server).get(map).1["data"].clone();
    assert_eq!(data["requestheader-username-headers"], json!(r#"["x-auth-user","x-remote-user"]"#));
    assert_eq!(data["requestheader-allowed-names"], json!(r#"["gate","front-proxy-client"]"#));
    assert_eq!(data["requestheader-client-ca-file"].to_string().matches("BEGIN").count(), 2);
}
