//! The client configuration files that kubectl and agents read.

use super::{PkiError, authority::Signed, write_private};
use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_cli::kubeconfig::{Part, of_node, text};
use coracle_proto::decode::{from_yaml, plain};
use serde_json::Value;
use std::path::Path;

/// Writes a kubeconfig with one cluster, one user by certificate and one context. A file that says the same stays, and of
/// one that people changed (another namespace, more contexts) only what is no longer true.
pub fn write(path: &Path, server: &str, ca: &str, user: &str, signed: &Signed) -> Result<(), PkiError> {
    let encoded = [ca, &signed.certificate, &signed.key].map(|pem| STANDARD.encode(pem));
    let [authority, certificate, key] = encoded.each_ref().map(|data| Part::Data(data));
    let whole = text(server, authority, user, certificate, key);
    let there = std::fs::read_to_string(path).unwrap_or_default();
    let new = corrected(&there, &whole).unwrap_or(whole);
    if new == there {
        return Ok(());
    }
    write_private(path, new.as_bytes())
}

/// The text with what ours says of our cluster and our user; `None` when they are not in it.
fn corrected(there: &str, ours: &str) -> Option<String> {
    let wanted = facts(ours)?;
    let mut new = there.to_owned();
    for (is, must) in facts(there)?.iter().zip(&wanted) {
        // A value stands at the end of its line, quoted or not.
        new = new.replace(&format!(": {is}\n"), &format!(": {must}\n"));
        new = new.replace(&format!("\"{is}\""), &format!("\"{must}\""));
    }
    (facts(&new)? == wanted).then_some(new)
}

/// Where the cluster is, who certifies it, and the user's certificate and key, by the names that our context uses.
fn facts(text: &str) -> Option<[String; 4]> {
    let config = plain(from_yaml(text.as_bytes()).ok()?.tree);
    let named =
        |list: &str, name: &str| config[list].as_array()?.iter().find(|entry| entry["name"] == name).cloned();
    let context = named("contexts", "coracle")?;
    let cluster = named("clusters", context["context"]["cluster"].as_str()?)?;
    let user = named("users", context["context"]["user"].as_str()?)?;
    let field =
        |entry: &Value, field: &str| entry[field].as_str().filter(|t| !t.is_empty()).map(str::to_owned);
    Some([
        field(&cluster["cluster"], "server")?,
        field(&cluster["cluster"], "certificate-authority-data")?,
        field(&user["user"], "client-certificate-data")?,
        field(&user["user"], "client-key-data")?,
    ])
}

/// Writes the kubeconfig of a node, whose certificate and key stay in files of their own, because they change.
pub fn write_node(path: &Path, server: &str, pki: &Path, node: &str) -> Result<(), PkiError> {
    write_private(path, of_node(server, pki, node).as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_people_added_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.kubeconfig");
        let signed = |n: u8| Signed { certificate: format!("certificate {n}"), key: format!("key {n}") };
        let read = || std::fs::read_to_string(&path).unwrap();
        write(&path, "https://127.0.0.1:1", "ca", "admin", &signed(1)).unwrap();
        let first = read();
        let edited = first.replace("    user: admin\n", "    user: admin\n    namespace: mine\n");
        std::fs::write(&path, &edited).unwrap();
        write(&path, "https://127.0.0.1:1", "ca", "admin", &signed(1)).unwrap();
        assert_eq!(read(), edited, "nothing is untrue");
        write(&path, "https://127.0.0.1:2", "ca", "admin", &signed(2)).unwrap();
        assert!(read().contains("    namespace: mine\n") && read().contains("server: https://127.0.0.1:2\n"));
        assert_eq!(facts(&read()).unwrap()[3], STANDARD.encode("key 2"));
        for broken in ["", "no: kubeconfig", "{", "contexts: 3"] {
            std::fs::write(&path, broken).unwrap();
            write(&path, "https://127.0.0.1:1", "ca", "admin", &signed(1)).unwrap();
            assert_eq!(read(), first, "{broken}");
        }
    }
}
