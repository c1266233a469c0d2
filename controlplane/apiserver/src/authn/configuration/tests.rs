#![allow(clippy::unwrap_used)]
use super::reload::TOTAL;
use super::*;
use coracle_client::diagnostics::MetricsSource as _;
use coracle_proto::exposition::{Form, Page};
use serde_json::Value;

const OWN: &str = "https://kubernetes.default.svc.cluster.local";

fn parsed(file: &Value) -> Result<Configuration, ConfigurationError> {
    Configuration::parse(Path::new("f"), file.to_string(), &[OWN.to_owned()])
}

/// What is wrong, each as `field: message`.
fn problems(file: &Value) -> Vec<String> {
    match parsed(file) {
        Ok(_) => Vec::new(),
        Err(ConfigurationError::Invalid { problems, .. }) => {
            problems.iter().map(ToString::to_string).collect()
        }
        Err(other) => panic!("{other:?}"),
    }
}

fn authenticator() -> Value {
    json!({"issuer": {"url": "https://id.example.com", "audiences": ["cluster"]},
        "claimMappings": {"username": {"claim": "sub", "prefix": ""}}})
}

fn file(authenticators: &[Value]) -> Value {
    json!({"apiVersion": VERSIONS[0], "kind": KIND, "jwt": authenticators})
}

/// The file with one value of its authenticator replaced.
fn with(place: &str, value: Value) -> Value {
    let mut one = authenticator();
    let (parent, key) = place.rsplit_once('/').unwrap();
    one.pointer_mut(parent).unwrap()[key] = value;
    file(&[one])
}

#[test]
fn valid_files_are_read() {
    for version in VERSIONS {
        let mut valid = file(&[authenticator()]);
        valid["apiVersion"] = json!(version);
        assert_eq!(problems(&valid), [""; 0], "{version}");
    }
    let empty = parsed(&file(&[])).unwrap();
    assert!(empty.issuers.is_empty() && empty.anonymous.is_none());
    let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous:\n  enabled: true\n  \
                conditions:\n  - path: /livez\n";
    let read = Configuration::parse(Path::new("f"), text.into(), &[]).unwrap();
    assert_eq!(read.anonymous, Some(Anonymous::Paths(["/livez".to_owned()].into())));
}

#[test]
fn unknown_fields_and_types_are_errors() {
    for (text, why) in [
        ("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwts: []\n", "jwts"),
        ("jwt: [{issuer: {uri: https://a}}]\n", "uri"),
        ("jwt: [{issuer: {url: [1]}}]\n", "line 1"),
        ("jwt: [\n", "line"),
        ("kind: a\nkind: b\n", "line 2"),
    ] {
        let Err(ConfigurationError::Parse(_, error)) = Configuration::parse(Path::new("f"), text.into(), &[])
        else {
            panic!("{text}")
        };
        assert!(error.to_string().contains(why), "{text}: {error}");
    }
}

#[test]
fn every_rule_names_its_field() {
    let issuer = |url: &str| with("/issuer/url", json!(url));
    let username = |value: Value| with("/claimMappings/username", value);
    let expression = |text: &str| username(json!({"expression": text}));
    let rules = |value: Value| with("/claimValidationRules", value);
    let user_rules = |value: Value| with("/userValidationRules", value);
    let extra =
        |key: &str| with("/claimMappings/extra", json!([{"key": key, "valueExpression": "claims.sub"}]));
    let email = "jwt[0].claimMappings.username.expression: Invalid value: \"claims.email\": claims.email_verified must be used";
    for (file, expected) in [
        (json!({"kind": KIND}), "apiVersion: Unsupported value: \"\""),
        (json!({"apiVersion": VERSIONS[0], "kind": "Pod"}), "kind: Unsupported value: \"Pod\""),
        (issuer(""), "jwt[0].issuer.url: Required value"),
        (issuer("http://a"), "jwt[0].issuer.url: Invalid value: \"http://a\": URL scheme must be https"),
        (
            issuer("https://a?b=c"),
            "jwt[0].issuer.url: Invalid value: \"https://a?b=c\": URL must not contain a query",
        ),
        (issuer("https://a#b"), "URL must not contain a fragment"),
        (
            issuer("https://a:b@c"),
            "jwt[0].issuer.url: Invalid value: \"<omitted>\": URL must not contain a username",
        ),
        (issuer("nowhere"), "jwt[0].issuer.url: Invalid value: \"nowhere\""),
        (
            issuer(OWN),
            "jwt[0].issuer.url: Invalid value: \"https://kubernetes.default.svc.cluster.local\": URL must not overlap",
        ),
        (
            with("/issuer/discoveryURL", json!("https://id.example.com/")),
            "discoveryURL must be different from URL",
        ),
        (
            with("/issuer/discoveryURL", json!("http://b/c")),
            "jwt[0].issuer.discoveryURL: Invalid value: \"http://b/c\": URL scheme",
        ),
        (
            with("/issuer/audiences", json!([])),
            "jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences",
        ),
        (with("/issuer/audiences", json!([""])), "jwt[0].issuer.audiences[0]: Required value"),
        (
            with("/issuer/audienceMatchPolicy", json!("All")),
            "jwt[0].issuer.audienceMatchPolicy: Invalid value: \"All\": audienceMatchPolicy must be empty or",
        ),
        (
            with("/issuer/audiences", json!(["a", "b"])),
            "jwt[0].issuer.audienceMatchPolicy: Invalid value: \"\": audienceMatchPolicy must be MatchAny",
        ),
        (
            with("/issuer/certificateAuthority", json!("x")),
            "jwt[0].issuer.certificateAuthority: Invalid value: \"<omitted>\"",
        ),
        (with("/issuer/egressSelectorType", json!("cluster")), "jwt[0].issuer.egressSelectorType: Forbidden"),
        (
            username(json!({})),
            "jwt[0].claimMappings.username: Required value: claim or expression is required",
        ),
        (username(json!({"claim": "a"})), "jwt[0].claimMappings.username.prefix: Required value"),
        (
            username(json!({"claim": "a", "prefix": "", "expression": "claims.a"})),
            "jwt[0].claimMappings.username: Invalid value: \"\": claim and expression can't both be set",
        ),
        (
            username(json!({"prefix": "p", "expression": "claims.a"})),
            "jwt[0].claimMappings.username.prefix: Invalid value: \"p\": may not be specified",
        ),
        (
            expression("claims."),
            "jwt[0].claimMappings.username.expression: Invalid value: \"claims.\": compilation failed",
        ),
        (expression("user.username"), "undeclared reference to 'user'"),
        (expression("claims.email"), email),
        (
            with("/claimMappings/groups", json!({"claim": "g"})),
            "jwt[0].claimMappings.groups.prefix: Required value",
        ),
        (
            with("/claimMappings/groups", json!({"expression": "1 +"})),
            "jwt[0].claimMappings.groups.expression",
        ),
        (
            with("/claimMappings/uid", json!({"claim": "a", "expression": "claims.a"})),
            "jwt[0].claimMappings.uid: Invalid value",
        ),
        (
            with("/claimMappings/uid", json!({"expression": "nosuch(1)"})),
            "jwt[0].claimMappings.uid.expression",
        ),
        (extra(""), "jwt[0].claimMappings.extra[0].key: Required value"),
        (
            extra("role"),
            "jwt[0].claimMappings.extra[0].key: Invalid value: \"role\": must be a domain-prefixed path",
        ),
        (extra("example.com/Role"), "must be lowercase"),
        (extra("a_b.com/role"), "jwt[0].claimMappings.extra[0].key: Invalid value: \"a_b.com\""),
        (extra("example.com/a b"), "Invalid path"),
        (extra("kubernetes.io/role"), "reserved for Kubernetes use"),
        (extra("node.k8s.io/role"), "reserved for Kubernetes use"),
        (
            with("/claimMappings/extra", json!([{"key": "a.b/c"}])),
            "jwt[0].claimMappings.extra[0].valueExpression: Required value",
        ),
        (
            rules(json!([{}])),
            "jwt[0].claimValidationRules[0]: Required value: claim or expression is required",
        ),
        (
            rules(json!([{"claim": "a", "expression": "true"}])),
            "jwt[0].claimValidationRules[0]: Invalid value: \"a\": claim and",
        ),
        (
            rules(json!([{"claim": "a", "message": "m"}])),
            "jwt[0].claimValidationRules[0].message: Invalid value: \"m\"",
        ),
        (
            rules(json!([{"expression": "true", "requiredValue": "v"}])),
            "jwt[0].claimValidationRules[0].requiredValue",
        ),
        (
            rules(json!([{"expression": "claims.a"}])),
            "jwt[0].claimValidationRules[0].expression: Invalid value: \"claims.a\": must evaluate to bool",
        ),
        (
            rules(json!([{"claim": "a"}, {"claim": "a"}])),
            "jwt[0].claimValidationRules[1].claim: Duplicate value: \"a\"",
        ),
        (
            rules(json!([{"expression": "true"}, {"expression": "true"}])),
            "jwt[0].claimValidationRules[1].expression: Duplicate value",
        ),
        (user_rules(json!([{"message": "m"}])), "jwt[0].userValidationRules[0].expression: Required value"),
        (user_rules(json!([{"expression": "user.name == 'a'"}])), "undefined field 'name'"),
        (user_rules(json!([{"expression": "claims.a == 'a'"}])), "undeclared reference to 'claims'"),
    ] {
        let found = problems(&file);
        assert!(found.len() == 1 && found[0].contains(expected), "{expected}: {found:?}");
    }
    let twice = problems(&file(&[authenticator(), authenticator()]));
    assert_eq!(twice, ["jwt[1].issuer.url: Duplicate value: \"https://id.example.com\""]);
    let mut others = [authenticator(), authenticator()];
    for (one, url) in others.iter_mut().zip(["https://a", "https://b"]) {
        one["issuer"]["url"] = json!(url);
        one["issuer"]["discoveryURL"] = json!("https://c/d");
    }
    assert_eq!(problems(&file(&others)), ["jwt[1].issuer.discoveryURL: Duplicate value: \"https://c/d\""]);
    let many = vec![authenticator(); MAX_ISSUERS + 1];
    assert_eq!(problems(&file(&many)), ["jwt: Too many: 65: must have at most 64 items"]);
    let mut anonymous = file(&[]);
    anonymous["anonymous"] = json!({"enabled": false, "conditions": [{"path": "/livez"}]});
    let why = "enabled should be set to true when conditions are defined";
    assert_eq!(problems(&anonymous), [format!("anonymous.conditions: Invalid value: [\"/livez\"]: {why}")]);
}

#[test]
fn each_problem_has_lines_of_its_own() {
    let mut one = authenticator();
    one["issuer"]["audiences"] = json!([]);
    let said = |file: &Value| parsed(file).err().map(|error| error.to_string()).unwrap_or_default();
    let first = file(std::slice::from_ref(&one));
    assert_eq!(said(&first), format!("f: {}", problems(&first)[0]));
    one["claimMappings"]["uid"] = json!({"expression": "nosuch(1)"});
    let said = said(&file(&[one]));
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() > 3 && lines[0] == "f:", "{said}");
    assert!(lines[1].starts_with("  jwt[0].issuer.audiences: "), "{said}");
    assert!(lines[2].starts_with("  jwt[0].claimMappings.uid.expression: "), "{said}");
    assert!(lines[3..].iter().all(|line| line.starts_with("    ")), "marks: {said}");
}

#[test]
fn addresses_name_users_only_if_the_provider_checked_them() {
    let of = |mappings: Value, rules: Value| {
        let mut one = authenticator();
        (one["claimMappings"], one["claimValidationRules"]) = (mappings, rules);
        problems(&file(&[one])).len()
    };
    let by_email = |text: &str| json!({"username": {"expression": text}});
    let (email, none) = ("claims.email", json!([]));
    assert_eq!(of(by_email(email), none.clone()), 1);
    assert_eq!(of(by_email("claims.?email.orValue('')"), none.clone()), 1);
    assert_eq!(of(by_email("claims.email_verified ? claims.email : claims.sub"), none.clone()), 0);
    assert_eq!(
        of(by_email(email), json!([{"expression": "claims.?email_verified.orValue(true) == true"}])),
        0
    );
    assert_eq!(of(by_email(email), json!([{"claim": "email_verified", "requiredValue": "true"}])), 1);
    let mut mappings = by_email(email);
    mappings["extra"] =
        json!([{"key": "example.com/verified", "valueExpression": "string(claims.email_verified)"}]);
    assert_eq!(of(mappings, none), 0);
}

#[test]
fn a_changed_file_is_used_if_it_is_valid() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("authentication.yaml");
    let write = |file: &Value| std::fs::write(&path, file.to_string()).unwrap();
    write(&file(&[authenticator()]));
    let own = vec![OWN.to_owned()];
    let first = Configuration::read(&path, &own).unwrap();
    let reloader = Reloader::new(path.clone(), first, own, "apiserver-1");
    assert!(!reloader.reload().unwrap(), "nothing changed");
    write(&file(&[]));
    assert!(reloader.reload().unwrap());
    write(&with("/issuer/url", json!("http://a")));
    assert!(reloader.reload().unwrap_err().to_string().contains("jwt[0].issuer.url"));
    assert!(!reloader.reload().unwrap(), "the same mistake is told once");
    let mut anonymous = file(&[]);
    anonymous["anonymous"] = json!({"enabled": true});
    write(&anonymous);
    let why = reloader.reload().unwrap_err().to_string();
    assert!(why.ends_with("anonymous: Forbidden: changed from initial configuration file"), "{why}");
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(reloader.reload(), Err(ConfigurationError::Read(..))));
    let mut page = Page::new(Form::default());
    reloader.render(&mut page);
    let page = page.finish();
    for (status, count) in [("success", 1), ("failure", 3)] {
        let line = page.lines().find(|line| line.starts_with(TOTAL) && line.contains(status)).unwrap();
        assert!(line.ends_with(&format!(" {count}")), "{line}");
    }
    std::fs::write(&path, " ".repeat(MAX_FILE as usize + 1)).unwrap();
    assert!(matches!(reloader.reload(), Err(ConfigurationError::TooLarge(_))));
}
