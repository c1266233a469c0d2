//! Ownership after a write that is not an apply: whoever changed a field owns it.

use super::Writer;
use super::compare::compare;
use super::entry::{self, Entry, Operation};
use super::set::Set;
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// Metadata nobody owns: identity and what the server sets.
const UNOWNED: [&str; 9] = [
    "f:name",
    "f:namespace",
    "f:creationTimestamp",
    "f:selfLink",
    "f:uid",
    "f:clusterName",
    "f:generation",
    "f:managedFields",
    "f:resourceVersion",
];

/// The set without what nobody owns.
pub(super) fn ownable(mut set: Set) -> Set {
    set.retain(|element, node| match element {
        "f:apiVersion" | "f:kind" => {
            node.member = false;
            true
        }
        "f:metadata" => {
            node.member = false;
            node.below.retain(|element, node| {
                node.member &= !UNOWNED.contains(&element);
                true
            });
            true
        }
        _ => true,
    });
    set
}

/// Sets `managedFields` of an object about to be written by a create, update or patch.
///
/// `live` is the stored object, `None` for a create. The fields that changed move to the writer; a manager left with
/// none goes. Entries that the client sends replace the live ones when they can be read and this is the main resource;
/// an empty list or one empty entry forgets them all. Never fails: a broken list counts as none.
pub fn update(live: Option<&Value>, new: &mut Value, writer: &Writer) {
    let sent = entry::strip_and_decode(new);
    let before = live.and_then(|l| entry::decode(l).ok()).unwrap_or_default();
    let entries = match sent {
        _ if !writer.subresource.is_empty() => before,
        entry::SentEntries::Reset => Vec::new(),
        entry::SentEntries::Entries(sent) if !sent.is_empty() => sent,
        _ => before,
    };
    // An object that was once without owners stays so until someone applies to it.
    if entries.is_empty()
        && live.is_some_and(|live| PartialObjectMetadata::of(live).metadata().uid().filled().is_some())
    {
        return;
    }
    let entries = after_change(live, new, entries, writer);
    entry::encode(new, entries);
}

/// The entries after `live` became `new` by the writer.
pub(super) fn after_change(
    live: Option<&Value>,
    new: &Value,
    mut entries: Vec<Entry>,
    writer: &Writer,
) -> Vec<Entry> {
    static NOTHING: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));
    let change = compare(live.unwrap_or(&NOTHING), new, writer.ty).without(writer.reset);
    for entry in &mut entries {
        for lost in [&change.modified, &change.added, &change.removed] {
            if entry.fields.intersects(lost) {
                entry.fields = entry.fields.difference(lost);
            }
        }
    }
    let own = ownable(change.modified.unite(change.added));
    if !own.is_empty() {
        let mut mine = Entry::of(writer, Operation::Update, own);
        if let Some(at) = entries.iter().position(|e| e.same_manager(&mine)) {
            mine.fields = entries.swap_remove(at).fields.union(&mine.fields);
        }
        entries.push(mine);
    }
    entries.retain(|e| !e.fields.is_empty());
    entry::cap(&mut entries);
    entries
}
