//! Finds the records of a question: from the writes of an object up to what caused them, and down to all that followed.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use coracle_trace::{Flags, OpenSpan, SpanId, Stage, TraceId, Uid};

use crate::block::StoredRecord;
use crate::decoder::RecordRef;
use crate::elsewhere::{Elsewhere, Others};
use crate::filter::{Key, batch_revisions};
use crate::keep::{Keep, now};
use crate::keep_error::KeepError;
use crate::known::Known;
use crate::parents::{ids, is_remote};
use crate::pieces::{Pieces, Window};
use crate::recover::stored;
use crate::tree::ObjectKey;

/// Spans of an answer.
const MOST: usize = 10_000;
/// From a pod's status up to the request that made its Deployment are about 15. In a rolling update each pod follows from the one
/// before it: so many for each of them.
pub(crate) const LEVELS: usize = 2048;
/// Writes of an object that are followed up; the first is always among them.
const WRITES: usize = 256;
/// Records of one object or trace that are looked at, the oldest and the newest ones.
const LOOKED_AT: usize = 16_384;
/// `Restarted` and `Lost` records of an answer.
const MARKERS: usize = 256;

/// What is asked for: an object by name or uid, or a trace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Question {
    /// By name.
    pub object: Option<ObjectKey>,
    /// By uid.
    pub uid: Option<Uid>,
    /// By trace id.
    pub trace: Option<TraceId>,
    /// No write that ended before this unix time in nanoseconds.
    pub since: Option<u64>,
    /// How many trees, at least one; 0 for a trace: all.
    pub last: usize,
    /// How many spans in all; 0: 10,000.
    pub most: usize,
}

/// The records of one tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The span that it begins with.
    pub root: SpanId,
    /// In no order, with duplicates.
    pub records: Vec<Known>,
}

/// The answer to a question, newest tree first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Found {
    /// The trees.
    pub groups: Vec<Group>,
    /// Batches of the store that their writes were in.
    pub batches: Vec<StoredRecord>,
    /// `Restarted` and `Lost` records since the oldest of the trees began.
    pub markers: Vec<StoredRecord>,
    /// There were more records.
    pub truncated: bool,
    /// What was recorded last could not be written in time.
    pub behind: bool,
    /// Other servers were asked, too.
    pub several: bool,
    /// Notes about servers that did not answer.
    pub missing: Vec<String>,
}

/// Searches the segments and the spans that are open. [`CollectorHandle::find`](crate::CollectorHandle::find) misses none that ends
/// meanwhile.
pub fn find(keep: &Keep, open: &[OpenSpan], question: &Question) -> Result<Found, KeepError> {
    find_everywhere(keep, open, question, None)
}

/// Searches what other servers have, too.
pub(crate) fn find_everywhere(
    keep: &Keep,
    open: &[OpenSpan],
    question: &Question,
    elsewhere: Option<Box<dyn Elsewhere>>,
) -> Result<Found, KeepError> {
    let mut others = elsewhere.map(Others::new);
    let mut open = stored_open(keep, open);
    open.extend(others.iter_mut().flat_map(Others::open));
    let mut search = Search {
        pieces: Pieces::open(keep)?,
        others,
        open,
        room: if question.most == 0 { MOST } else { question.most },
        truncated: false,
    };
    let seeds = search.seeds(question)?;
    let mut chains = search.chains(seeds)?;
    // A command may have made several requests with one trace id.
    let last = if question.trace.is_some() && question.last == 0 { usize::MAX } else { question.last.max(1) };
    // One tree is the last change of the object. More are what happened last, whatever it was.
    if question.trace.is_none() && last > 1 {
        Search::leave_out_reports(&mut chains, now());
        chains.sort_by_key(|chain| std::cmp::Reverse(chain.root.stored.start));
    }
    search.truncated |= question.trace.is_some() && chains.len() > last;
    chains.truncate(last);
    let mut found = Found::default();
    for chain in chains {
        found.groups.push(search.below(chain)?);
    }
    search.add_batches(&mut found)?;
    search.add_markers(&mut found)?;
    found.truncated = search.truncated;
    if let Some(others) = search.others {
        found.several = true;
        found.truncated |= others.truncated;
        found.missing = others.missing();
    }
    Ok(found)
}

/// Open spans as records, up to now.
pub(crate) fn stored_open(keep: &Keep, open: &[OpenSpan]) -> Vec<StoredRecord> {
    let clock = keep.recorder().clock();
    let unix = |span: &OpenSpan| clock.map_or(span.record.start.0, |clock| clock.unix(span.record.start));
    let stored = |span: &OpenSpan| stored(span.record, Some(span.details), span.text.as_str(), unix(span));
    open.iter().map(stored).collect()
}

/// The newest record of a rare stage.
pub(crate) fn newest(keep: &Keep, stage: Stage) -> Result<Option<StoredRecord>, KeepError> {
    let mut found = None;
    Pieces::open(keep)?.each_newest(&[Key::stage(stage)], 0, &mut |records| {
        let of_stage = records.iter().filter(|stored| stored.record.stage == stage);
        found = of_stage.max_by_key(|stored| stored.start).cloned();
        found.is_none()
    })?;
    Ok(found)
}

/// What a question has to look into, and how much it may still answer.
pub(crate) struct Search {
    pieces: Pieces,
    others: Option<Others>,
    open: Vec<StoredRecord>,
    pub(crate) room: usize,
    pub(crate) truncated: bool,
}

impl Search {
    /// Shows every record that may have one of the keys, open ones last.
    pub(crate) fn visit(
        &mut self,
        keys: &[Key],
        window: Window,
        mut show: impl FnMut(&RecordRef<'_>, bool),
    ) -> Result<(), KeepError> {
        self.pieces.each(keys, window, &mut |record| show(record, false))?;
        if let Some(others) = &mut self.others {
            others.each(keys, window, &mut |record| show(record, false));
        }
        self.open.iter().for_each(|stored| show(&RecordRef::of(stored), true));
        Ok(())
    }

    /// The writes of the object, or what the trace begins with.
    fn seeds(&mut self, question: &Question) -> Result<Vec<Known>, KeepError> {
        if let Some(trace) = question.trace {
            return self.begins_of(trace, question.since.unwrap_or_default());
        }
        let mut keys = Vec::new();
        keys.extend(question.object.as_ref().map(Key::object));
        keys.extend(question.uid.map(Key::uid));
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut seeds: Vec<Known> = Vec::new();
        let since = question.since.unwrap_or_default();
        self.visit(&keys, Window::since(since), |record, open| {
            if is_asked_for(question, record) {
                seeds.push(Known { stored: record.to_stored(), open });
                leave_out_the_middle(&mut seeds);
            }
        })?;
        seeds.retain(|seed| seed.open || seed.stored.end() >= since);
        let mut seeds = once(seeds);
        // What was refused wrote nothing: it is shown where nothing else is.
        if question.last <= 1 && seeds.iter().any(|seed| !is_refused(seed)) {
            seeds.retain(|seed| !is_refused(seed));
        }
        // Another object may have had the name before: the newest one counts, unless more trees are asked for.
        let newest = seeds.last().map(|seed| seed.stored.record.subject);
        seeds.retain(|seed| question.last > 1 || Some(seed.stored.record.subject) == newest);
        seeds.extend(self.roots_of(newest.or(question.uid), since)?);
        if seeds.len() > WRITES {
            seeds.drain(1..=seeds.len() - WRITES);
        }
        Ok(seeds)
    }

    /// The records of a trace that others hang below: what the client asked for, and what hangs below nothing that was recorded here.
    fn begins_of(&mut self, trace: TraceId, since: u64) -> Result<Vec<Known>, KeepError> {
        let (mut begins, mut others, mut known_ids) = (Vec::new(), Vec::new(), HashSet::new());
        self.visit(&[Key::trace(trace)], Window::since(since), |found, open| {
            let record = &found.record;
            let is_late = open || found.start.saturating_add(record.duration) >= since;
            if record.trace != trace || !is_late {
                return;
            }
            if known_ids.len() < LOOKED_AT {
                known_ids.extend(ids(record));
            }
            let is_begin = record.parent.is_none() || is_remote(record);
            // A report of a node is below what it reports, or about something that happened much later.
            if is_begin || record.stage != Stage::Request {
                let list = if is_begin { &mut begins } else { &mut others };
                list.push(Known { stored: found.to_stored(), open });
                leave_out_the_middle(list);
            }
        })?;
        others.retain(|other| !known_ids.contains(&other.stored.record.parent));
        let mut others = once(others);
        others.truncate(WRITES);
        begins.append(&mut others);
        Ok(once(begins))
    }

    /// What happened to a pod without anybody's write: exits after it was ready, and evictions.
    fn roots_of(&mut self, uid: Option<Uid>, since: u64) -> Result<Vec<Known>, KeepError> {
        let Some(uid) = uid.filter(|uid| !uid.is_none()) else { return Ok(Vec::new()) };
        let mut roots = Vec::new();
        self.visit(&[Key::uid(uid)], Window::since(since), |found, open| {
            let record = &found.record;
            let is_root = record.parent.is_none() && matches!(record.stage, Stage::Exit | Stage::Evicted);
            if record.subject == uid && is_root && found.start >= since {
                roots.push(Known { stored: found.to_stored(), open });
                leave_out_the_middle(&mut roots);
            }
        })?;
        roots.sort_by_key(|root: &Known| std::cmp::Reverse(root.stored.start));
        roots.truncate(WRITES);
        Ok(roots)
    }

    fn add_batches(&mut self, found: &mut Found) -> Result<(), KeepError> {
        let records = found.groups.iter().flat_map(|group| &group.records).map(|known| &known.stored);
        let writes =
            records.filter(|stored| stored.record.stage == Stage::Write && stored.record.revision != 0);
        let mut revisions: Vec<u64> = writes.map(|stored| stored.record.revision).collect();
        revisions.sort_unstable();
        let keys: HashSet<Key> = revisions.iter().map(|revision| Key::revision(*revision)).collect();
        let keys: Vec<Key> = keys.into_iter().collect();
        if keys.is_empty() {
            return Ok(());
        }
        let since = begin_of(found);
        self.visit(&keys, Window::since(since), |found_batch, _| {
            if found_batch.record.stage == Stage::StoreBatch {
                let (first, last) = batch_revisions(&found_batch.record);
                let from = revisions.partition_point(|revision| *revision < first);
                if revisions.get(from).is_some_and(|revision| *revision <= last) {
                    found.batches.push(found_batch.to_stored());
                }
            }
        })
    }

    fn add_markers(&mut self, found: &mut Found) -> Result<(), KeepError> {
        if found.groups.is_empty() {
            return Ok(());
        }
        let since = begin_of(found);
        let records = found.groups.iter().flat_map(|group| &group.records);
        // What other nodes lost explains nothing.
        let places: HashSet<String> = records.map(|known| known.stored.node.clone()).collect();
        let keys = [Key::stage(Stage::Restarted), Key::stage(Stage::Lost)];
        self.visit(&keys, Window::since(since), |record, _| {
            let is_marker = matches!(record.record.stage, Stage::Restarted | Stage::Lost)
                && record.start.saturating_add(record.record.duration) >= since
                && (record.node.is_empty() || places.contains(record.node));
            if is_marker && found.markers.len() < MARKERS {
                found.markers.push(record.to_stored());
            }
        })
    }
}

/// When the oldest tree began.
fn begin_of(found: &Found) -> u64 {
    let starts = found.groups.iter().flat_map(|group| &group.records).map(|known| known.stored.start);
    starts.min().unwrap_or_default()
}

fn is_asked_for(question: &Question, found: &RecordRef<'_>) -> bool {
    let record = &found.record;
    if record.stage != Stage::Write {
        return false;
    }
    if let Some(uid) = question.uid {
        return record.subject == uid;
    }
    let Some(key) = &question.object else { return false };
    ObjectKey::of_write(found.text).is_some_and(|(_, object)| {
        let truncated = record.flags.contains(Flags::TRUNCATED);
        object == *key || truncated && key.text().starts_with(&object.text())
    })
}

fn is_refused(seed: &Known) -> bool {
    seed.stored.record.flags.contains(Flags::FAILED)
}

/// Each span once, in order of start. One that has ended since it was listed as open is known twice.
pub(crate) fn once(records: Vec<Known>) -> Vec<Known> {
    let mut known: HashMap<SpanId, Known> = HashMap::with_capacity(records.len());
    for next in records {
        match known.entry(next.stored.record.span) {
            Entry::Vacant(new) => drop(new.insert(next)),
            Entry::Occupied(mut before) => {
                let Known { stored, open } = next;
                let (record, start, node) = (stored.record, stored.start, stored.node.clone());
                before.get_mut().merge(&record, &node, open, start, || stored);
            }
        }
    }
    let mut records: Vec<Known> = known.into_values().collect();
    records.sort_by_key(|known| (known.stored.start, known.stored.record.span));
    records
}

/// Drops records between the oldest and the newest ones when there are too many.
fn leave_out_the_middle(records: &mut Vec<Known>) {
    if records.len() >= LOOKED_AT {
        records.sort_by_key(|known| known.stored.start);
        records.drain(LOOKED_AT / 4..LOOKED_AT * 3 / 4);
    }
}

#[cfg(test)]
mod tests;
