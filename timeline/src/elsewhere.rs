//! Records of a search that other servers have. Each server has the spans that it recorded and those that nodes delivered to it; a
//! search asks the others for what has the keys that it looks for at the moment.

use std::collections::{HashMap, HashSet};

use coracle_trace::{SpanId, Stage, Uid};
use xxhash_rust::xxh3::xxh3_64;

use crate::block::{Block, BlockError, HEADER, StoredRecord};
use crate::decoder::{RecordRef, decode_each};
use crate::filter::{Key, Keys, add_keys};
use crate::keep::Keep;
use crate::keep_error::KeepError;
use crate::pieces::{Pieces, Window};

/// What begins a [`Wanted`] as bytes. It changes with what keys are made of.
const VERSION: u64 = u64::from_le_bytes(*b"CSWANT1\0");
/// Keys of one question to another server.
const MOST_KEYS: usize = 16_384;
/// Records of other servers that one search keeps.
const MOST: usize = 50_000;
/// Entries that these may have in the index.
const MOST_ENTRIES: usize = 500_000;
/// The longest name of a node.
const NODE: usize = 253;

/// What a search asks another server for: records that have one of the keys and are of these times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    keys: Vec<u64>,
    since: u64,
    until: u64,
}

impl Wanted {
    /// The most bytes that it has.
    pub const MOST_BYTES: usize = (MOST_KEYS + 3) * 8;

    /// As it is sent.
    pub fn bytes(&self) -> Vec<u8> {
        let head = [VERSION, self.since, self.until];
        head.iter().chain(&self.keys).flat_map(|number| number.to_le_bytes()).collect()
    }

    /// What was sent; `None` if it is malformed, or of another version.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (numbers, rest) = bytes.as_chunks();
        let mut numbers = numbers.iter().map(|number| u64::from_le_bytes(*number));
        let (version, since, until) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let keys: Vec<u64> = numbers.collect();
        let is_right = version == VERSION && rest.is_empty() && keys.len() <= MOST_KEYS;
        is_right.then_some(Self { keys, since, until })
    }
}

/// Other servers, as long as a search goes on. Those that do not answer are left out.
pub trait Elsewhere: Send {
    /// Their spans that have not ended. What ended before can be found afterwards. Blocks.
    fn open(&mut self) -> Vec<StoredRecord>;

    /// Their records that are wanted; others do no harm. Blocks.
    fn find(&mut self, wanted: &Wanted) -> Vec<StoredRecord>;

    /// Notes about those that did not answer everything.
    fn missing(&self) -> Vec<String>;
}

/// What another server wants of the records on this disk, up to `most` of them, and whether there are more.
pub(crate) fn find_wanted(
    keep: &Keep,
    wanted: &Wanted,
    most: usize,
) -> Result<(Vec<StoredRecord>, bool), KeepError> {
    let keys: Vec<Key> = wanted.keys.iter().map(|key| Key(*key)).collect();
    let is_wanted: HashSet<u64> = wanted.keys.iter().copied().collect();
    let window = Window { since: wanted.since, until: wanted.until };
    let (mut found, mut is_more, mut own) = (Vec::new(), false, Keys::default());
    if keys.is_empty() {
        return Ok((found, is_more));
    }
    Pieces::open(keep)?.each(&keys, window, &mut |record| {
        if record.end() < window.since || record.start > window.until {
            return;
        }
        own.clear();
        add_keys(record, &mut own);
        if !own.numbers().iter().any(|key| is_wanted.contains(key)) {
            return;
        }
        is_more |= found.len() >= most;
        if found.len() < most {
            found.push(record.to_stored());
        }
    })?;
    Ok((found, is_more))
}

/// Decodes blocks that another server made, if they have at most so many records. Texts and names are cut to what they can have: many
/// records of a block can have the same long text, and would take many times its size.
pub fn records_of_server(mut bytes: &[u8], most: usize) -> Result<Vec<StoredRecord>, BlockError> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let (header, block, rest) = Block::first(bytes)?;
        if header.records as usize > most - records.len() {
            return Err(BlockError::TooMany);
        }
        decode_each(&header, &block[HEADER..], &mut |found| {
            let node = &found.node[..found.node.floor_char_boundary(NODE)];
            records.push(RecordRef { node, ..*found }.to_short());
        })?;
        bytes = rest;
    }
    Ok(records)
}

/// What tells records apart. A record that came twice is the same.
type Identity = (SpanId, Stage, Uid, u64, u64, u64, u64);

fn identity(stored: &StoredRecord) -> Identity {
    let record = &stored.record;
    let node = xxh3_64(stored.node.as_bytes());
    (record.span, record.stage, record.subject, record.revision, stored.start, record.duration, node)
}

/// What other servers have answered to one search so far.
pub(crate) struct Others {
    source: Box<dyn Elsewhere>,
    /// For which times each key was asked.
    asked: HashMap<Key, Window>,
    records: Vec<StoredRecord>,
    known: HashSet<Identity>,
    by_key: HashMap<u64, Vec<usize>>,
    entries: usize,
    /// They had more.
    pub(crate) truncated: bool,
}

impl Others {
    pub(crate) fn new(source: Box<dyn Elsewhere>) -> Self {
        Self {
            source,
            asked: HashMap::new(),
            records: Vec::new(),
            known: HashSet::new(),
            by_key: HashMap::new(),
            entries: 0,
            truncated: false,
        }
    }

    pub(crate) fn open(&mut self) -> Vec<StoredRecord> {
        self.source.open()
    }

    pub(crate) fn missing(&self) -> Vec<String> {
        self.source.missing()
    }

    /// Shows the records that have one of the keys; asks for those that were not asked for before.
    pub(crate) fn each(&mut self, keys: &[Key], window: Window, show: &mut dyn FnMut(&RecordRef<'_>)) {
        self.ask(keys, window);
        let mut found: Vec<usize> =
            keys.iter().filter_map(|key| self.by_key.get(&key.0)).flatten().copied().collect();
        found.sort_unstable();
        found.dedup();
        for index in found {
            show(&RecordRef::of(&self.records[index]));
        }
    }

    fn ask(&mut self, keys: &[Key], window: Window) {
        let is_asked = |key: &Key| {
            let asked = self.asked.get(key);
            asked.is_some_and(|asked| asked.since <= window.since && asked.until >= window.until)
        };
        let new: Vec<Key> = keys.iter().filter(|key| !is_asked(key)).copied().collect();
        for some in new.chunks(MOST_KEYS) {
            let keys = some.iter().map(|key| key.0).collect();
            let found = self.source.find(&Wanted { keys, since: window.since, until: window.until });
            found.into_iter().for_each(|stored| self.add(stored));
        }
        self.asked.extend(new.into_iter().map(|key| (key, window)));
    }

    fn add(&mut self, stored: StoredRecord) {
        if self.records.len() >= MOST || self.entries >= MOST_ENTRIES {
            self.truncated = true;
            return;
        }
        if !self.known.insert(identity(&stored)) {
            return;
        }
        let mut keys = Keys::default();
        add_keys(&RecordRef::of(&stored), &mut keys);
        for key in keys.numbers() {
            self.by_key.entry(*key).or_default().push(self.records.len());
        }
        self.entries += keys.numbers().len();
        self.records.push(stored);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use coracle_trace::Text;

    use super::*;
    use crate::assemble::assemble;
    use crate::builder::encode;
    use crate::search::{Found, Question, find, find_everywhere};
    use crate::testing::{BEGIN, MS, limits, record, write_record};

    /// Another server in the same process.
    struct Beside(Arc<Keep>);

    impl Elsewhere for Beside {
        fn open(&mut self) -> Vec<StoredRecord> {
            Vec::new()
        }

        fn missing(&self) -> Vec<String> {
            vec!["spans of server b are missing".to_owned()]
        }

        fn find(&mut self, wanted: &Wanted) -> Vec<StoredRecord> {
            let wanted = Wanted::read(&wanted.bytes()).unwrap();
            let (records, is_more) = find_wanted(&self.0, &wanted, 1000).unwrap();
            assert!(!is_more);
            let blocks: Vec<u8> = encode(&records).into_iter().flat_map(|block| block.bytes).collect();
            records_of_server(&blocks, 1000).unwrap()
        }
    }

    /// A Deployment that was made through one server, whose controllers lead on another one, and a node that delivers to the first.
    fn records() -> [Vec<StoredRecord>; 2] {
        let below = |mut stored: StoredRecord, parent: SpanId| {
            stored.record.parent = parent;
            stored
        };
        let turn = |span, uid, revision| {
            let parent = SpanId::of_write(Uid(uid), revision);
            record(Stage::Reconcile, span, parent, revision + 1, 2).about(uid, revision).says("loop a/web")
        };
        let mut seen = record(Stage::Seen, 90, SpanId::of_write(Uid(9), 30), 31, 1).about(9, 30);
        seen.node = "n1".to_owned();
        let first = vec![
            record(Stage::Request, 100, SpanId::NONE, 9, 5).says("POST /deployments\nann\nkubectl"),
            below(write_record(7, 10, "create deployments.apps a/web"), SpanId(100)),
            seen.clone(),
        ];
        let second = vec![
            turn(200, 7, 10),
            below(write_record(8, 20, "create replicasets.apps a/web-1"), SpanId(200)),
            turn(201, 8, 20),
            below(write_record(9, 30, "create pods a/web-1-x"), SpanId(201)),
            // Delivered to both.
            seen,
        ];
        [first, second]
    }

    fn keep(dir: &tempfile::TempDir, records: &[StoredRecord]) -> Arc<Keep> {
        let keep = Keep::open(dir.path(), limits(1 << 20)).unwrap();
        keep.append_records(records).unwrap();
        Arc::new(keep)
    }

    fn spans(found: Found) -> Vec<Vec<(SpanId, Option<SpanId>)>> {
        let trees = assemble(found, BEGIN + 90 * MS);
        let spans = |tree: &crate::tree::Tree| {
            let parent = |span: &crate::tree::SpanNode| span.parent.map(|parent| tree.spans[parent].id);
            let mut spans: Vec<_> = tree.spans.iter().map(|span| (span.id, parent(span))).collect();
            spans.sort_unstable();
            spans
        };
        trees.iter().map(spans).collect()
    }

    #[test]
    fn all_servers_answer_with_the_tree_of_all_of_them() {
        let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let [first, second] = records();
        let all = [first.clone(), second.clone()].concat();
        let keeps = [keep(&dirs[0], &first), keep(&dirs[1], &second), keep(&dirs[2], &all)];
        for (uid, last) in [(7, 1), (8, 1), (9, 1), (7, 5), (9, 5)] {
            let question = Question { uid: Some(Uid(uid)), last, ..Question::default() };
            let whole = spans(find(&keeps[2], &[], &question).unwrap());
            assert_eq!(whole[0].len(), 7, "{whole:?}");
            for (own, other) in [(0, 1), (1, 0)] {
                let beside = Box::new(Beside(keeps[other].clone()));
                let found = find_everywhere(&keeps[own], &[], &question, Some(beside)).unwrap();
                assert!(found.several && found.missing == ["spans of server b are missing"]);
                assert_eq!(spans(found), whole, "uid {uid}, last {last}, server {own}");
            }
        }
    }

    #[test]
    fn what_was_asked_is_not_asked_again_and_counts_once() {
        struct Counts(Arc<AtomicUsize>);
        impl Elsewhere for Counts {
            fn open(&mut self) -> Vec<StoredRecord> {
                Vec::new()
            }

            fn missing(&self) -> Vec<String> {
                Vec::new()
            }

            fn find(&mut self, wanted: &Wanted) -> Vec<StoredRecord> {
                self.0.fetch_add(wanted.keys.len(), Relaxed);
                vec![write_record(7, 10, "create pods a/b"), write_record(7, 10, "create pods a/b")]
            }
        }
        let asked = Arc::default();
        let mut others = Others::new(Box::new(Counts(Arc::clone(&asked))));
        let key = Key::uid(Uid(7));
        for (since, expected) in [(5, 1), (5, 1), (9, 1), (0, 2), (3, 2)] {
            let mut shown = 0;
            others.each(&[key], Window::since(since), &mut |_| shown += 1);
            assert_eq!((shown, asked.load(Relaxed)), (1, expected));
        }
        others.each(&[Key::uid(Uid(8))], Window::since(0), &mut |found| panic!("{found:?}"));
    }

    #[test]
    fn blocks_with_too_many_records_are_refused() {
        let records: Vec<StoredRecord> = (1..9).map(|n| write_record(7, n, &"x".repeat(4000))).collect();
        let blocks: Vec<u8> = encode(&records).into_iter().flat_map(|block| block.bytes).collect();
        assert_eq!(records_of_server(&blocks, 7), Err(BlockError::TooMany));
        let read = records_of_server(&blocks, 8).unwrap();
        assert!(read.len() == 8 && read.iter().all(|stored| stored.text.len() <= Text::MOST));
        assert!(records_of_server(b"no block", 8).is_err());
        assert_eq!(Wanted::read(&[0; 24]), None);
        assert_eq!(Wanted::read(&vec![0; Wanted::MOST_BYTES + 8]), None);
    }
}
