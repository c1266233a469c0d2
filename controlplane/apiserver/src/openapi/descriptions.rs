//! Descriptions of types and fields, extracted from the `k8s-openapi` crate at build time and decompressed when a
//! document is rendered.

use std::collections::HashMap;
use std::io::Read;

static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.z"));

/// Descriptions by type and field; the type's own has no field.
pub struct Descriptions {
    text: String,
    /// Where the lines of a type begin and end.
    types: HashMap<String, (usize, usize)>,
}

impl Descriptions {
    /// Unpacks them; without any if they were not found at build time.
    pub fn load() -> Self {
        let mut text = String::new();
        if flate2::read::ZlibDecoder::new(PACKED).read_to_string(&mut text).is_err() {
            text.clear();
        }
        let mut types = HashMap::new();
        let mut at = 0;
        for part in text.split_inclusive("\n=") {
            let end = at + part.len();
            let body = part.trim_start_matches('=').trim_end_matches('=');
            if let Some((name, _)) = body.split_once('\n') {
                types.insert(name.to_owned(), (at, end));
            }
            at = end;
        }
        Self { text, types }
    }

    /// The description of a field, or of the type when `field` is empty.
    pub fn get(&self, name: &str, field: &str) -> Option<String> {
        let (from, to) = *self.types.get(name)?;
        let lines = self.text.get(from..to)?.lines();
        let line = lines.filter_map(|line| line.split_once('\t')).find(|(key, _)| *key == field)?;
        Some(unescape(line.1))
    }
}

/// Undoes the escapes of a string literal.
fn unescape(text: &str) -> String {
    let (mut out, mut chars) = (String::with_capacity(text.len()), text.chars());
    while let Some(c) = chars.next() {
        match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some('n')) => out.push('\n'),
            ('\\', Some('t')) => out.push('\t'),
            ('\\', Some('r')) => out.push('\r'),
            ('\\', Some('u')) => {
                let code: String = chars.by_ref().skip(1).take_while(|c| *c != '}').collect();
                out.extend(u32::from_str_radix(&code, 16).ok().and_then(char::from_u32));
            }
            ('\\', Some(other)) => out.push(other),
            (c, _) => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn fields_are_described() {
        let all = Descriptions::load();
        assert!(all.get("io.k8s.api.core.v1.Pod", "").unwrap().starts_with("Pod is"));
        assert!(all.get("io.k8s.api.core.v1.PodSpec", "containers").unwrap().len() > 20);
        assert!(all.get("io.k8s.api.core.v1.PodSpec", "affinity").is_some());
        assert_eq!(all.get("io.k8s.api.core.v1.PodSpec", "nope"), None);
        assert_eq!(unescape(r#"a \"b\"\n\\c\u{e9}"#), "a \"b\"\n\\cé");
    }
}
