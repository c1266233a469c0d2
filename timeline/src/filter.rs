//! Bloom filters: which pieces of a segment may have a record that a question is about.

use std::hash::Hasher;

use coracle_trace::{Record, SpanId, Stage, TraceId, Uid};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::decoder::RecordRef;
use crate::single_stage::single_stage;
use crate::tree::ObjectKey;

/// One wrong yes in about 2,000: a question asks a thousand filters for many keys.
const BITS_PER_KEY: usize = 16;
const PROBES: u32 = 11;
/// Names are compared up to here: the text of a record may be cut after it.
const NAME: usize = 100;

/// What a record can be found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key(pub(crate) u64);

impl Key {
    pub(crate) fn uid(uid: Uid) -> Self {
        Self(xxh3_64_with_seed(&uid.0.to_le_bytes(), 1))
    }

    pub(crate) fn trace(trace: TraceId) -> Self {
        Self(xxh3_64_with_seed(&trace.0.to_le_bytes(), 2))
    }

    /// The id of a span, or of the parent of one.
    pub(crate) fn span(span: SpanId) -> Self {
        Self(xxh3_64_with_seed(&span.0.to_le_bytes(), 3))
    }

    pub(crate) fn object(object: &ObjectKey) -> Self {
        Self::object_parts([&object.resource, &object.namespace, &object.name])
    }

    /// Of resource, namespace and name, as one text.
    fn object_parts([resource, namespace, name]: [&str; 3]) -> Self {
        let (mut text, mut length) = ([0; NAME], 0);
        for part in [resource, "/", namespace, "/", name] {
            let more = &part.as_bytes()[..part.len().min(NAME - length)];
            text[length..length + more.len()].copy_from_slice(more);
            length += more.len();
        }
        Self(xxh3_64_with_seed(&text[..length], 4))
    }

    /// Batches of the store are found by groups of 64 revisions.
    pub(crate) fn revision(revision: u64) -> Self {
        Self(xxh3_64_with_seed(&(revision >> 6).to_le_bytes(), 5))
    }

    /// Rare stages, all of them.
    pub(crate) fn stage(stage: Stage) -> Self {
        Self(xxh3_64_with_seed(&[stage as u8], 6))
    }
}

/// Keys of records, in any order, some of them more than once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys(Vec<u64>);

impl Keys {
    fn add(&mut self, key: Key) {
        self.0.push(key.0);
    }

    pub(crate) fn extend(&mut self, others: &Self) {
        self.0.extend_from_slice(&others.0);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn numbers(&self) -> &[u64] {
        &self.0
    }
}

/// Takes a number as its own hash.
#[derive(Default)]
pub(crate) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    // Uids are random, and their sum is checked nowhere: two of them with one hash only make a table slower.
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// Adds the keys of a record.
pub(crate) fn add_keys(stored: &RecordRef<'_>, keys: &mut Keys) {
    let record = &stored.record;
    let mut add = |key: Key| keys.add(key);
    if record.stage == Stage::StoreBatch {
        let (first, last) = batch_revisions(record);
        (first >> 6..=last >> 6).take(1024).for_each(|group| add(Key::revision(group << 6)));
        return;
    }
    // The subject of a request is its audit id, which nobody asks for.
    if record.stage != Stage::Request && !record.subject.is_none() {
        add(Key::uid(record.subject));
    }
    if let Some(details) = stored.details.filter(|details| !details.owner.is_none()) {
        add(Key::uid(details.owner));
    }
    if !record.trace.is_none() {
        add(Key::trace(record.trace));
    }
    if !is_parent_by_subject(stored) {
        add(Key::span(record.parent));
    }
    if may_be_parent(record.stage) {
        add(Key::span(record.span));
    }
    if record.stage == Stage::Write
        && let Some((_, object)) = ObjectKey::parts_of_write(stored.text)
    {
        add(Key::object_parts(object));
    }
    if matches!(record.stage, Stage::Restarted | Stage::Lost | Stage::Usual) {
        add(Key::stage(record.stage));
    }
}

/// The revisions of a batch of the store, the last included.
pub(crate) fn batch_revisions(batch: &Record) -> (u64, u64) {
    (batch.revision.saturating_sub(u64::from(batch.code)), batch.revision)
}

/// Whether the parent can be found by the uid of the subject.
fn is_parent_by_subject(stored: &RecordRef<'_>) -> bool {
    let record = &stored.record;
    record.parent.is_none()
        || !record.subject.is_none()
            && record.stage != Stage::Request
            && (SpanId::of_write(record.subject, record.revision) == record.parent
                || single_stage(record).is_some())
}

/// Whether spans that are recorded elsewhere, or much later, hang below this stage by the id of its span.
pub(crate) fn may_be_parent(stage: Stage) -> bool {
    matches!(
        stage,
        Stage::Request
            | Stage::Write
            | Stage::Reconcile
            | Stage::Attempt
            | Stage::Preempt
            | Stage::Bind
            | Stage::Exit
            | Stage::Evicted
            | Stage::Restart
            | Stage::StatusReport
            | Stage::ObjectDelete
    )
}

/// A set of keys that may say yes for a key that is not in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filter {
    words: Vec<u64>,
}

impl Filter {
    /// A filter for these keys, which are put in order meanwhile.
    pub(crate) fn of(keys: &mut Keys) -> Self {
        keys.0.sort_unstable();
        keys.0.dedup();
        let mut words = vec![0; (keys.0.len() * BITS_PER_KEY).div_ceil(64).max(1)];
        for key in &keys.0 {
            for bit in bits(*key, words.len()) {
                words[bit / 64] |= 1 << (bit % 64);
            }
        }
        Self { words }
    }

    pub(crate) fn from_words(words: Vec<u64>) -> Self {
        Self { words }
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    pub(crate) fn may_have(&self, key: Key) -> bool {
        !self.words.is_empty()
            && bits(key.0, self.words.len()).all(|bit| self.words[bit / 64] & (1 << (bit % 64)) != 0)
    }
}

/// Places in a filter that has so many words. Both halves of the key are hashes; a product instead of a division spreads their multiples.
fn bits(key: u64, words: usize) -> impl Iterator<Item = usize> {
    let (low, high) = (key as u32, (key >> 32) as u32 | 1);
    let count = words as u64 * 64;
    (0..PROBES).map(move |probe| {
        let hash = low.wrapping_add(probe.wrapping_mul(high));
        ((u64::from(hash) * count) >> 32) as usize
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_every_key_and_few_others() {
        let key = |number: u128| Key::uid(Uid(number));
        let mut keys = Keys::default();
        (1..2000).chain(1..100).for_each(|number| keys.add(key(number)));
        let filter = Filter::of(&mut keys);
        assert_eq!(filter.words().len(), 500, "keys count once");
        assert!((1..2000).all(|number| filter.may_have(key(number))));
        let wrong = (10_000..20_000).filter(|number| filter.may_have(key(*number))).count();
        assert!(wrong < 40, "{wrong} of 10000");
        assert!(!Filter::of(&mut Keys::default()).may_have(key(1)));
        assert!(!Filter::from_words(Vec::new()).may_have(key(1)));
    }

    #[test]
    fn names_that_were_cut_have_the_key_of_the_whole_name() {
        let name = |length| ObjectKey {
            resource: "pods".into(),
            namespace: "default".into(),
            name: "x".repeat(length),
        };
        assert_eq!(Key::object(&name(130)), Key::object(&name(253)));
        assert_ne!(Key::object(&name(13)), Key::object(&name(14)));
        let (_, parts) = ObjectKey::parts_of_write("create pods default/xxx").unwrap_or_default();
        assert_eq!(Key::object(&name(3)), Key::object_parts(parts));
    }
}
