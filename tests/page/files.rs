//! The files as a server and `coracle ui` serve them.

use crate::ui::Ui;
use coracle_tests::caller::Caller;
use coracle_tests::server::Server;

const DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../controlplane/coracle/ui");

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
}

#[test]
fn files_come_with_their_policy_from_server_and_proxy() {
    let _turn = crate::turn();
    let server = Server::with(&["--api-only"]);
    let ui = Ui::start(&server.kubeconfig());
    let root = ui.root().to_owned();
    for entry in std::fs::read_dir(DIR).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let answer = ui.send("GET", &format!("{root}/ui/{name}"), &[]);
        assert_eq!(status(&answer), 200, "{name}: {answer}");
        let (head, _) = answer.split_once("\r\n\r\n").unwrap();
        let head = head.to_lowercase();
        for header in
            ["default-src 'none'", "nosniff", "require-trusted-types-for 'script'", "no-referrer", "etag: "]
        {
            assert!(head.contains(header), "{name}: {header}\n{head}");
        }
        assert!(!head.contains("set-cookie"), "{name}: {head}");
        let file = std::fs::read_to_string(entry.path()).unwrap();
        let (code, body) = Caller::admin(&server).get(&format!("/ui/{name}"));
        assert_eq!((code, body.as_str()), (200, Some(file.as_str())), "{name}");
    }
    let (code, _) = Caller::admin(&server).get("/ui/");
    assert_eq!(code, 200);
    // Not for those whom the server does not know.
    let (code, _) = Caller::nobody(&server).get("/ui/");
    assert!(matches!(code, 401 | 403), "{code}");
}

/// Whoever else reaches the port gets nothing.
#[test]
fn the_proxy_is_for_its_user_alone_and_changes_nothing() {
    let _turn = crate::turn();
    let server = Server::with(&["--api-only"]);
    let ui = Ui::start(&server.kubeconfig());
    let root = ui.root().to_owned();
    let own = |path: &str| format!("{root}{path}");
    let pods = own("/api/v1/pods");
    assert_eq!(status(&ui.send("GET", &pods, &[])), 200);
    assert_eq!(status(&ui.send("GET", &own("/coracle/v1/traces"), &[])), 200);
    assert_eq!(status(&ui.send("GET", &own("/coracle/v1/why"), &[])), 200);
    type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], u16);
    let cases: [Case<'_>; 9] = [
        ("GET", "/api/v1/pods", &[], 404),
        ("GET", "/0123456789abcdef0123456789abcdef/ui/", &[], 404),
        ("GET", &pods, &[("Host", "evil.example.com")], 403),
        ("GET", &pods, &[("Origin", "http://evil.example.com")], 403),
        ("DELETE", &own("/api/v1/namespaces/default"), &[], 405),
        ("POST", &own("/api/v1/namespaces"), &[], 405),
        ("GET", &own("/api/v1/namespaces/a/pods/b/exec?command=sh"), &[], 404),
        ("GET", &own("/api/v1/nodes/a/proxy/run"), &[], 404),
        ("GET", &own("/metrics"), &[], 404),
    ];
    for (method, path, headers, code) in cases {
        let answer = ui.send(method, path, headers);
        assert_eq!(status(&answer), code, "{method} {path} {headers:?}: {answer}");
    }
}
