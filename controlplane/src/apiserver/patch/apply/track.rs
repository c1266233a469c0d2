//! Ownership after a write that is not an apply: whoever changed a field owns it.

use super::Writer;
use super::compare::compare;
use super::entry::{self, Entry, Operation};
use super::set::Set;
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// Fields nobody owns: identity and what the server sets.
static UNOWNED: LazyLock<Set> = LazyLock::new(|| {
    let fields = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    let mut metadata: Map<String, Value> =
        fields.iter().map(|f| (format!("f:{f}"), Value::Object(Map::new()))).collect();
    metadata.insert(".".into(), Value::Object(Map::new()));
    let set = serde_json::json!({"f:apiVersion": {}, "f:kind": {}, "f:metadata": metadata});
    Set::decode(&set).expect("the literal is a field set")
});

/// The set without what nobody owns.
pub(super) fn ownable(set: &Set) -> Set {
    set.difference(&UNOWNED)
}

/// Sets `managedFields` of an object about to be written by a create, update or patch.
///
/// `live` is the stored object, `None` for a create. The fields that changed move to the writer; a manager left with
/// none goes. Entries that the client sends replace the live ones when they can be read and this is the main resource;
/// an empty list or one empty entry forgets them all. Never fails: a broken list counts as none.
pub fn update(live: Option<&Value>, new: &mut Value, writer: &Writer) {
    let sent = entry::strip_reading(new);
    let before = live.and_then(|l| entry::decode(l).ok()).unwrap_or_default();
    let entries = match sent {
        _ if !writer.subresource.is_empty() => before,
        entry::Sent::Reset => Vec::new(),
        entry::Sent::Entries(sent) if !sent.is_empty() => sent,
        _ => before,
    };
    // An object that was once without owners stays so until someone applies to it.
    if entries.is_empty()
        && live.is_some_and(|l| l["metadata"]["uid"].as_str().is_some_and(|u| !u.is_empty()))
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
    let change = compare(live.unwrap_or(&NOTHING), new, writer.ty).without_top(writer.reset);
    let taken = change.modified.union(&change.added);
    let gone = taken.union(&change.removed);
    for entry in &mut entries {
        if entry.fields.intersects(&gone) {
            entry.fields = entry.fields.difference(&gone);
        }
    }
    let own = ownable(&taken);
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
