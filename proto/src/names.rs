//! Validation of names, labels and other short strings. Every check returns upstream's messages; none if the value is
//! valid.

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const SUBDOMAIN_UNDERSCORE: &str = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// `must be no more than N characters`.
pub fn max_len_error(length: usize) -> String {
    format!("must be no more than {length} characters")
}

/// `must be between LO and HI, inclusive`.
pub fn range_error(lo: i64, hi: i64) -> String {
    format!("must be between {lo} and {hi}, inclusive")
}

/// A sentence, its examples and the pattern that the value failed.
pub fn regex_error(message: &str, pattern: &str, examples: &[&str]) -> String {
    let shown: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    let shown = if shown.is_empty() { String::new() } else { format!("e.g. {}", shown.join(" or ")) };
    format!("{message} ({shown}regex used for validation is '{pattern}')")
}

fn alnum(b: u8) -> bool {
    b.is_ascii_alphanumeric()
}

fn lower(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// Whether the value is not empty, begins and ends with `edge` and has only `inner` between.
fn shaped(value: &str, first: fn(u8) -> bool, inner: fn(u8) -> bool, last: fn(u8) -> bool) -> bool {
    let bytes = value.as_bytes();
    match bytes {
        [] => false,
        [only] => first(*only) && last(*only),
        [head, middle @ .., tail] => first(*head) && last(*tail) && middle.iter().all(|b| inner(*b)),
    }
}

fn is_label(value: &str) -> bool {
    shaped(value, lower, |b| lower(b) || b == b'-', lower)
}

fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_label)
}

fn too_long(value: &str, max: usize) -> Vec<String> {
    if value.len() > max { vec![max_len_error(max)] } else { Vec::new() }
}

/// A DNS label as RFC 1123 has it: at most 63 of `a-z`, `0-9` and `-`.
pub fn dns1123_label(value: &str) -> Vec<String> {
    let mut errors = too_long(value, 63);
    if !is_label(value) {
        if is_subdomain(value) {
            errors.push("must not contain dots".into());
        } else {
            errors.push(regex_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
                 and must start and end with an alphanumeric character",
                LABEL,
                &["my-name", "123-abc"],
            ));
        }
    }
    errors
}

/// A DNS name as RFC 1123 has it: labels joined by dots, at most 253 long.
pub fn dns1123_subdomain(value: &str) -> Vec<String> {
    let mut errors = too_long(value, 253);
    if !is_subdomain(value) {
        errors.push(subdomain_error());
    }
    errors
}

fn subdomain_error() -> String {
    regex_error(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
         and must start and end with an alphanumeric character",
        SUBDOMAIN,
        &["example.com"],
    )
}

/// A DNS name whose labels may hold underscores.
pub fn dns1123_subdomain_with_underscore(value: &str) -> Vec<String> {
    let mut errors = too_long(value, 253);
    let good = value.split('.').all(|part| {
        let part = part.strip_prefix('_').unwrap_or(part);
        shaped(part, lower, |b| lower(b) || b == b'-' || b == b'_', lower)
    });
    if !good {
        errors.push(regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', \
             and must start and end with an alphanumeric character",
            SUBDOMAIN_UNDERSCORE,
            &["example.com"],
        ));
    }
    errors
}

/// A DNS label as RFC 1035 has it: like RFC 1123, but it begins with a letter.
pub fn dns1035_label(value: &str) -> Vec<String> {
    let mut errors = too_long(value, 63);
    if !shaped(value, |b| b.is_ascii_lowercase(), |b| lower(b) || b == b'-', lower) {
        errors.push(regex_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// `*.` and a DNS name.
pub fn wildcard_dns1123_subdomain(value: &str) -> Vec<String> {
    let mut errors = too_long(value, 253);
    if !value.strip_prefix("*.").is_some_and(is_subdomain) {
        errors.push(regex_error(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must \
             consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!(r"\*\.{SUBDOMAIN}"),
            &["*.example.com"],
        ));
    }
    errors
}

fn is_qualified_part(name: &str) -> bool {
    shaped(name, alnum, |b| alnum(b) || matches!(b, b'-' | b'_' | b'.'), alnum)
}

/// A label or annotation key, a resource or a condition name: `[prefix/]name`.
pub fn qualified_name(value: &str) -> Vec<String> {
    let pattern = || {
        regex_error(
            "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
             alphanumeric character",
            QUALIFIED,
            &["MyName", "my.name", "123-abc"],
        )
    };
    let mut errors = Vec::new();
    let parts: Vec<&str> = value.split('/').collect();
    let name = match parts[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".into());
            } else {
                if prefix.len() > 253 {
                    errors.push("prefix part must be no more than 253 bytes".into());
                }
                if !is_subdomain(prefix) {
                    errors.push(format!("prefix part {}", subdomain_error()));
                }
            }
            name
        }
        _ => {
            let tail = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {} {tail}", pattern())];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".into());
    } else if name.len() > 63 {
        errors.push("name part must be no more than 63 bytes".into());
    }
    if !is_qualified_part(name) {
        errors.push(format!("name part {}", pattern()));
    }
    errors
}

/// A label value: empty, or at most 63 of letters, digits, `-`, `_` and `.`.
pub fn label_value(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 63 {
        errors.push("must be no more than 63 bytes".into());
    }
    if !value.is_empty() && !is_qualified_part(value) {
        errors.push(regex_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
             and must start and end with an alphanumeric character",
            &format!("({QUALIFIED})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

/// An identifier of C.
pub fn c_identifier(value: &str) -> Vec<String> {
    let inner = |b: u8| alnum(b) || b == b'_';
    if shaped(value, |b| b.is_ascii_alphabetic() || b == b'_', inner, inner) {
        return Vec::new();
    }
    vec![regex_error(
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric \
         characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )]
}

/// A port number, 1 to 65535.
pub fn port_number(port: i64) -> Vec<String> {
    in_range(port, 1, 65535)
}

/// A number between two others, both included.
pub fn in_range(value: i64, lo: i64, hi: i64) -> Vec<String> {
    if (lo..=hi).contains(&value) { Vec::new() } else { vec![range_error(lo, hi)] }
}

/// A user or group id.
pub fn user_id(id: i64) -> Vec<String> {
    in_range(id, 0, i64::from(i32::MAX))
}

/// An address as old fields take it: the octets of IPv4 may have leading zeros.
pub fn sloppy_address(text: &str) -> Option<std::net::IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let octet = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => Some(0),
        rest if rest.bytes().all(|byte| byte.is_ascii_digit()) => rest.parse::<u8>().ok(),
        _ => None,
    };
    let octets: Vec<u8> = text.split('.').map(octet).collect::<Option<_>>()?;
    <[u8; 4]>::try_from(octets).ok().map(std::net::IpAddr::from)
}

/// An IANA service name: at most 15 of `a-z`, `0-9` and `-`, with a letter.
pub fn port_name(port: &str) -> Vec<String> {
    let mut errors = too_long(port, 15);
    let mut must = |good: bool, message: &str| {
        if !good {
            errors.push(message.into());
        }
    };
    must(
        !port.is_empty() && port.bytes().all(|b| lower(b) || b == b'-'),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    must(port.bytes().any(|b| b.is_ascii_lowercase()), "must contain at least one letter (a-z)");
    must(!port.contains("--"), "must not contain consecutive hyphens");
    must(!port.starts_with('-') && !port.ends_with('-'), "must not begin or end with a hyphen");
    errors
}

/// A percentage such as `25%`.
pub fn percent(value: &str) -> Vec<String> {
    let digits = value.strip_suffix('%').unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return Vec::new();
    }
    vec![regex_error(
        "a valid percent string must be a numeric string followed by an ending '%'",
        "[0-9]+%",
        &["1%", "93%"],
    )]
}

/// The name of an HTTP header.
pub fn http_header_name(value: &str) -> Vec<String> {
    if !value.is_empty() && value.bytes().all(|b| alnum(b) || b == b'-') {
        return Vec::new();
    }
    vec![regex_error(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )]
}

/// The name of an environment variable: printable ASCII without `=`.
pub fn env_var_name(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.is_empty() {
        errors.push("environment variable name must be non-empty".into());
    }
    if value.bytes().any(|b| !(b' '..=b'~').contains(&b) || b == b'=') {
        errors.push(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
                .into(),
        );
    }
    errors
}

/// A key of a ConfigMap or Secret: a file name.
pub fn config_map_key(value: &str) -> Vec<String> {
    let mut errors = too_long(value, 253);
    if value.is_empty() || !value.bytes().all(|b| alnum(b) || matches!(b, b'-' | b'_' | b'.')) {
        errors.push(regex_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    errors.extend(not_a_parent(value));
    errors
}

fn not_a_parent(value: &str) -> Option<String> {
    match value {
        "." => Some("must not be '.'".into()),
        ".." => Some("must not be '..'".into()),
        _ if value.starts_with("..") => Some("must not start with '..'".into()),
        _ => None,
    }
}

/// A name that is safe as a segment of a URL path.
pub fn path_segment(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    path_segment_prefix(name)
}

/// The beginning of such a name, as `generateName` gives it.
pub fn path_segment_prefix(name: &str) -> Vec<String> {
    ["/", "%"]
        .iter()
        .filter(|bad| name.contains(**bad))
        .map(|bad| format!("may not contain '{bad}'"))
        .collect()
}

/// What a `generateName` must be checked as: a trailing dash is followed by random characters.
pub fn mask_trailing_dash(prefix: &str) -> String {
    match prefix.len() > 1 && prefix.ends_with('-') {
        true => format!("{}a", prefix.get(..prefix.len() - 2).unwrap_or_default()),
        false => prefix.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn labels_and_subdomains() {
        for good in ["a", "0", "a-b", "123-abc", &"a".repeat(63)] {
            assert!(dns1123_label(good).is_empty(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "ä", "a b"] {
            assert_eq!(dns1123_label(bad).len(), 1, "{bad}");
        }
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
        assert_eq!(dns1123_label(&"a".repeat(64)), ["must be no more than 63 characters"]);
        assert!(dns1123_subdomain("a.b-c.d").is_empty());
        assert_eq!(
            dns1123_subdomain("Foo."),
            [
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
              start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
              '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
        assert!(dns1035_label("a-1").is_empty() && !dns1035_label("1-a").is_empty());
        assert!(
            wildcard_dns1123_subdomain("*.a.b").is_empty() && !wildcard_dns1123_subdomain("*a.b").is_empty()
        );
        assert!(dns1123_subdomain_with_underscore("_a.b_c").is_empty());
    }

    #[test]
    fn qualified_names_say_which_part_is_wrong() {
        for good in ["a", "A.b_c", "example.com/x", "kubernetes.io/os"] {
            assert!(qualified_name(good).is_empty(), "{good}");
        }
        let name = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
                    an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                    validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
        assert_eq!(qualified_name("-a"), [name]);
        assert_eq!(qualified_name(""), ["name part must be non-empty", name]);
        assert_eq!(qualified_name("/a"), ["prefix part must be non-empty"]);
        assert!(qualified_name("a/b/c")[0].starts_with("a valid label key must consist of"));
        assert!(qualified_name("A/b")[0].starts_with("prefix part a lowercase RFC 1123 subdomain"));
        assert!(label_value("").is_empty() && !label_value("a b").is_empty());
    }

    #[test]
    fn old_addresses() {
        let read = |text: &str| sloppy_address(text).map(|address| address.to_string());
        assert_eq!(read("001.02.3.000").as_deref(), Some("1.2.3.0"));
        assert_eq!(read("2001:DB8::1").as_deref(), Some("2001:db8::1"));
        for bad in ["", "1.2.3", "1.2.3.4.5", "0256.1.1.1", "1.2.3.+4", "1.2.3.", "a.b.c.d"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn ports_keys_and_segments() {
        assert!(port_name("http-2").is_empty());
        assert_eq!(port_name("123"), ["must contain at least one letter (a-z)"]);
        assert_eq!(port_name("a--b-").len(), 2);
        assert_eq!(port_number(0), ["must be between 1 and 65535, inclusive"]);
        assert!(config_map_key("a.txt").is_empty());
        assert_eq!(config_map_key(".."), ["must not be '..'"]);
        assert_eq!(path_segment("a/%"), ["may not contain '/'", "may not contain '%'"]);
        assert!(percent("25%").is_empty() && !percent("%").is_empty());
        assert_eq!(mask_trailing_dash("web-"), "wea");
        assert!(env_var_name("a b").is_empty() && !env_var_name("a=b").is_empty());
    }

    proptest! {
        #[test]
        fn checks_agree_with_their_patterns(value in "[-a-zA-Z0-9_./ä]{0,12}") {
            let whole = |pattern: &str| regex::Regex::new(&format!("^(?:{pattern})$")).unwrap().is_match(&value);
            prop_assert_eq!(is_label(&value), whole(LABEL));
            prop_assert_eq!(is_subdomain(&value), whole(SUBDOMAIN));
            prop_assert_eq!(is_qualified_part(&value), whole(QUALIFIED));
            prop_assert_eq!(dns1123_subdomain_with_underscore(&value).is_empty(), whole(SUBDOMAIN_UNDERSCORE));
        }
    }
}
