//! Throws broken bodies at the decoders for a bounded time (`CORACLE_FUZZ_SECONDS`, 3 by default): none may panic, and
//! what is accepted must survive being written and read again.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use coracle_proto::decode::{from_json, from_yaml, normalize, read};
use coracle_proto::{protobuf, schema};
use serde_json::Value;

/// xorshift; the seed is printed, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap_or(0)
    }
}

fn mutate(random: &mut Random, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(body.len());
        match random.below(7) {
            0 if !body.is_empty() => body[at] = random.next() as u8,
            1 if !body.is_empty() => body[at] ^= 1 << random.below(8),
            2 => body.insert(at, random.next() as u8),
            3 if !body.is_empty() => {
                body.remove(at);
            }
            4 => body.truncate(at),
            5 => {
                let part = body[at..(at + random.below(32)).min(body.len())].to_vec();
                let to = random.below(body.len());
                body.splice(to..to, part);
            }
            _ => {
                let tokens: [&[u8]; 12] =
                    [b"{", b"}", b"[", b"]", b"\"", b":", b",", b"null", b"&a ", b"*a", b"<<: ", b"\xff"];
                let token = tokens[random.below(tokens.len())];
                body.splice(at..at, token.iter().copied());
            }
        }
    }
    body
}

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"x":"y"},"creationTimestamp":null},
"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"100m","memory":"1Gi"}},
"ports":[{"containerPort":80}],"env":[{"name":"A","value":"b"}],"livenessProbe":{"httpGet":{"port":"http"}}}],
"volumes":[{"name":"v","secret":{"secretName":"s","defaultMode":420}}],"tolerations":[{"key":"k","operator":"Exists"}]}}"#;

const YAML: &str = "apiVersion: v1\nkind: Pod\nmetadata: &m\n  name: a\n  labels: {x: 'y', z: \"w\"}\nspec:\n  containers:\n  \
- name: c\n    image: i\n    args: [a, 1, yes, 0x1f, 1e3]\n    env:\n    - {name: A, value: \"b\"}\n  - <<: *m\n# end\n";

#[test]
fn decoders_do_not_panic() {
    let seconds = std::env::var("CORACLE_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(3);
    let seed = std::env::var("CORACLE_FUZZ_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        now.as_nanos() as u64 | 1
    });
    println!("CORACLE_FUZZ_SEED={seed}");
    let mut random = Random(seed);
    let pod = schema::type_of("io.k8s.api.core.v1.Pod").unwrap();
    let bodies: Vec<Vec<u8>> = std::fs::read_dir(format!("{}/tests/kubectl", env!("CARGO_MANIFEST_DIR")))
        .unwrap()
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut rounds, mut accepted) = (0u64, 0u64);
    while Instant::now() < end {
        rounds += 1;
        let object = match random.below(3) {
            0 => from_json(&mutate(&mut random, POD.as_bytes()))
                .ok()
                .and_then(|t| read(pod, t).ok())
                .map(|r| r.value),
            1 => from_yaml(&mutate(&mut random, YAML.as_bytes()))
                .ok()
                .and_then(|y| read(pod, y.tree).ok())
                .map(|r| r.value),
            _ => {
                let which = random.below(bodies.len());
                let body = mutate(&mut random, &bodies[which]);
                if let Ok(envelope) = protobuf::open(&body) {
                    let (group, version) = envelope.meta.group_version();
                    if let Some(kind) = schema::kind_type(group, version, &envelope.meta.kind) {
                        let _ = protobuf::read(kind, envelope.raw);
                    }
                    // The bytes of one kind read as another: every shape meets every wire type.
                    let other = &schema::types()[random.below(schema::types().len())];
                    let _ = protobuf::read(other, envelope.raw);
                }
                None
            }
        };
        if let Some(object) = object {
            accepted += 1;
            stable(pod, object);
        }
    }
    println!("{rounds} rounds, {accepted} accepted");
    assert!(accepted > 0);
}

/// Reading what was read changes nothing.
fn stable(kind: &schema::Type, object: Value) {
    let again = read(kind, from_json(object.to_string().as_bytes()).unwrap()).unwrap();
    assert!(again.strict.is_empty(), "{:?}", again.strict);
    assert_eq!(again.value, object);
    let mut normalized = object.clone();
    assert!(normalize(kind, &mut normalized), "{normalized}");
    assert_eq!(normalized, object);
}
