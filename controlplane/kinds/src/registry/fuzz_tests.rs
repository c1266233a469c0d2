//! Objects that their types allow, made at random, through everything a row does to them: nothing may panic. Bounded by
//! `CORACLE_FUZZ_SECONDS`, 3 by default.

#![allow(clippy::unwrap_used)]

use super::columns::Cell;
use super::index::Registry;
use super::kinds::Kind;
use coracle_proto::decode;
use coracle_proto::schema::{self, Scalar, Shape};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// xorshift; the seed is printed, so that a failure can be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }
}

const WORDS: &[&str] = &[
    "",
    "a",
    "A_b",
    "é",
    "80",
    "http",
    "10.0.0.1",
    "::1",
    "10.0.0.0/24",
    "fd00::/64",
    "a/b",
    "/",
    "..",
    "-1",
    "Always",
    "NodePort",
    "ExternalName",
    "None",
    "* * * * *",
    "@every 1h",
    "TCP",
    "RollingUpdate",
    "Guaranteed",
    "25%",
    "%",
    "a=b",
    "self.x > 1",
    "example.com/x",
    "In",
    "Exists",
    "2025-01-01T00:00:00Z",
    "ReadWriteOnce",
    "system:masters",
    "v1",
];

fn scalar(of: Scalar, dice: &mut Dice) -> Value {
    const NUMBERS: [i64; 9] = [0, 1, -1, 80, 65_536, 2_147_483_647, -2_147_483_648, 3, 255];
    match of {
        Scalar::Int32 | Scalar::Int64 => json!(NUMBERS[dice.roll(NUMBERS.len())]),
        Scalar::Bool => json!(dice.roll(2) == 0),
        Scalar::Float | Scalar::Double => json!(0.5),
        Scalar::Bytes => json!(dice.pick(&["", "YQ==", "AAECAw=="])),
        Scalar::Quantity => {
            json!(dice.pick(&["0", "1", "-1", "1Gi", "1m", "9223372036854775807", "1e3", "0.1"]))
        }
        Scalar::IntOrString if dice.roll(2) == 0 => json!(NUMBERS[dice.roll(NUMBERS.len())]),
        Scalar::Time => json!("2025-01-01T00:00:00Z"),
        Scalar::MicroTime => json!("2025-01-01T00:00:00.000001Z"),
        Scalar::Duration => json!("1m30s"),
        Scalar::String | Scalar::IntOrString => json!(dice.pick(WORDS)),
        _ => json!({}),
    }
}

fn any(shape: &Shape, dice: &mut Dice, depth: usize) -> Value {
    match shape {
        Shape::Scalar { of, .. } => scalar(*of, dice),
        Shape::List(list) => (0..dice.roll(3)).map(|_| any(&list.item, dice, depth)).collect(),
        Shape::Map(of) => {
            (0..dice.roll(3)).map(|_| (dice.pick(WORDS).to_owned(), any(of, dice, depth))).collect()
        }
        Shape::Object(inner) => object(inner.get(), dice, depth),
    }
}

fn object(of: &schema::Type, dice: &mut Dice, depth: usize) -> Value {
    let mut map = Map::new();
    // Deep down only little, so that objects end.
    let odds = 2 + depth;
    for field in of.fields.iter().filter(|field| field.name != "status" || depth == 0) {
        if depth < 12 && dice.roll(odds) < 2 {
            map.insert(field.name.to_string(), any(&field.shape, dice, depth + 1));
        }
    }
    Value::Object(map)
}

/// An object as it would come from a client; `None` when its type refuses it.
fn sent(kind: &Kind, of: &schema::Type, dice: &mut Dice) -> Option<Value> {
    let text = object(of, dice, 0).to_string();
    let mut object = decode::read(of, decode::from_json(text.as_bytes()).ok()?).ok()?.value;
    object["kind"] = json!(kind.kind);
    if !object["metadata"].is_object() {
        object["metadata"] = json!({"name": "a"});
    }
    Some(object)
}

fn through(kind: &Kind, mut new: Value, mut old: Value) {
    for object in [&mut new, &mut old] {
        (kind.strategy.defaults)(object);
        let again = object.clone();
        (kind.strategy.defaults)(object);
        assert_eq!(*object, again, "defaults of {} are defaults of themselves", kind.kind);
    }
    let mut made = new.clone();
    (kind.strategy.prepare_create)(&mut made);
    kind.check_create(&made);
    (kind.strategy.warnings)(&made, None);
    (kind.strategy.warnings)(&new, Some(&old));
    (kind.strategy.grace)(&old, Some(1));
    for subresource in ["", "status", "finalize", "approval", "resize", "ephemeralcontainers"] {
        let mut new = new.clone();
        kind.prepare_update(subresource, &mut new, &old);
        kind.check_update(subresource, &new, &old);
    }
    let mut stored = new;
    if let Some(as_other) = &kind.stored_as {
        (as_other.encode)(&mut stored);
    }
    for column in &kind.columns {
        if let Cell::With(draw) = &column.cell {
            draw((&stored).into());
        }
    }
    for field in &kind.fields {
        (field.get)(&stored);
    }
    if let Some(as_other) = &kind.stored_as {
        (as_other.decode)(&mut stored);
    }
}

#[test]
fn no_object_breaks_a_rule_of_its_kind() {
    let seconds = std::env::var("CORACLE_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(3);
    let seed = std::env::var("CORACLE_FUZZ_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        now.as_nanos() as u64 | 1
    });
    println!("CORACLE_FUZZ_SEED={seed}");
    let mut dice = Dice(seed);
    let kinds: Vec<_> = Registry::builtin()
        .all()
        .into_iter()
        .filter_map(|kind| Some((schema::type_of(&kind.schema)?, kind)))
        .collect();
    assert!(kinds.len() > 50, "{}", kinds.len());
    let (end, mut passed) = (Instant::now() + Duration::from_secs(seconds), 0u64);
    while Instant::now() < end {
        let (of, kind) = &kinds[dice.roll(kinds.len())];
        let (Some(new), Some(old)) = (sent(kind, of, &mut dice), sent(kind, of, &mut dice)) else { continue };
        let shown = format!("{} {new} {old}", kind.kind);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| through(kind, new, old)));
        assert!(result.is_ok(), "CORACLE_FUZZ_SEED={seed} {shown}");
        passed += 1;
    }
    println!("{passed} objects");
    assert!(passed > 20);
}
