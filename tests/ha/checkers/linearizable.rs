//! Linearizability, by the search of Wing and Gong with the memory of Lowe, as porcupine does it: operations are tried in the order
//! of their invocations, one that fits the model is taken out of the history, and the search goes back when an operation has
//! returned that does not fit. Objects are independent of each other, so each is searched alone.

use super::register::{Register, revisions};
use super::{Kind, Violation};
use crate::ha::history::{Call, Operation, Outcome, Revision, Value};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Steps of the search of one object before it gives up.
const STEPS: u64 = 200_000_000;
/// Operations that a message shows of what led to a contradiction.
const SHOWN: usize = 6;

/// Checks every object. `seen` are revisions of values that watchers saw, for writes without an answer.
pub fn check(operations: &[Operation], seen: &HashMap<Value, Revision>) -> Vec<Violation> {
    let mut keys: BTreeMap<u32, Vec<&Operation>> = BTreeMap::new();
    // Reads without an answer and writes that no server accepted say nothing.
    let telling = |op: &&Operation| match op.outcome {
        Outcome::NotSent => false,
        Outcome::Unknown => op.call != Call::Read,
        _ => true,
    };
    for operation in operations.iter().filter(telling) {
        keys.entry(operation.key).or_default().push(operation);
    }
    let mut known = revisions(operations);
    known.extend(seen);
    keys.into_values().filter_map(|operations| Search::new(operations, &known).run()).collect()
}

/// A place in the list of calls and returns that are not linearized yet.
#[derive(Clone, Copy)]
struct Entry {
    operation: usize,
    is_call: bool,
    previous: usize,
    next: usize,
}

/// The entry before the first, and after the last.
const HEAD: usize = 0;

/// What has been linearized: all operations with an answer below `base`, and these beyond it. Of those without an answer only two
/// sorts count, and only how many: the others need a revision that the object has had once, and which of several was taken
/// makes no difference later.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Taken {
    base: usize,
    beyond: Vec<usize>,
    unseen_creates: usize,
    deletes: usize,
}

/// Where nothing fits any more.
struct Deepest {
    /// Operations with an answer that are left; and those without one that were taken, of which fewer explain more.
    rank: (usize, usize),
    /// The one that has returned and does not fit.
    stopped: usize,
    state: Register,
    order: Vec<usize>,
}

struct Search<'a> {
    operations: Vec<&'a Operation>,
    known: &'a HashMap<Value, Revision>,
    entries: Vec<Entry>,
    /// The entries of each operation: its call, and its return unless it has none.
    places: Vec<(usize, Option<usize>)>,
    taken: Vec<bool>,
    /// Below it every operation with an answer is taken.
    base: usize,
    unseen_creates: usize,
    deletes: usize,
    /// Where the search came farthest.
    best: Option<Deepest>,
}

impl<'a> Search<'a> {
    fn new(mut operations: Vec<&'a Operation>, known: &'a HashMap<Value, Revision>) -> Self {
        operations.sort_by_key(|operation| (operation.invoked, operation.id));
        let mut events = Vec::with_capacity(operations.len() * 2);
        for (number, operation) in operations.iter().enumerate() {
            // Of the same time: calls first, so that operations that touch are concurrent.
            events.push((operation.invoked, false, number));
            if operation.outcome != Outcome::Unknown {
                events.push((operation.returned, true, number));
            }
        }
        events.sort_unstable();
        let mut entries = vec![Entry { operation: 0, is_call: false, previous: 0, next: 0 }];
        let mut places = vec![(0, None); operations.len()];
        for (_, returns, operation) in events {
            let here = entries.len();
            match returns {
                true => places[operation].1 = Some(here),
                false => places[operation].0 = here,
            }
            entries.push(Entry { operation, is_call: !returns, previous: here - 1, next: 0 });
            entries[here - 1].next = here;
        }
        let last = entries.len() - 1;
        entries[HEAD].previous = last;
        let taken = vec![false; operations.len()];
        Self { operations, known, entries, places, taken, base: 0, unseen_creates: 0, deletes: 0, best: None }
    }

    fn run(mut self) -> Option<Violation> {
        let total = self.places.iter().filter(|(_, returns)| returns.is_some()).count();
        let mut left = total;
        let mut memory: HashSet<(Taken, Register)> = HashSet::new();
        let mut path: Vec<(usize, Register)> = Vec::new();
        let (mut state, mut at, mut steps) = (Register::EMPTY, self.entries[HEAD].next, 0);
        while left > 0 {
            steps += 1;
            if steps > STEPS {
                return Some(self.undecided());
            }
            let entry = self.entries[at];
            if entry.is_call {
                let next = state.after(self.operations[entry.operation], self.known);
                if let Some(next) = next {
                    self.take(entry.operation);
                    if memory.insert((self.so_far(), next)) {
                        left -= usize::from(self.places[entry.operation].1.is_some());
                        path.push((entry.operation, state));
                        state = next;
                        at = self.entries[HEAD].next;
                        continue;
                    }
                    self.give_back(entry.operation);
                }
                at = self.entries[at].next;
                continue;
            }
            // It has returned, and nothing that was possible before fits it.
            let rank = (left, path.len() + left - total);
            if self.best.as_ref().is_none_or(|best| rank < best.rank) {
                let order = path.iter().map(|(operation, _)| *operation).collect();
                self.best = Some(Deepest { rank, stopped: entry.operation, state, order });
            }
            let Some((operation, before)) = path.pop() else { return Some(self.contradiction()) };
            self.give_back(operation);
            left += usize::from(self.places[operation].1.is_some());
            state = before;
            at = self.entries[self.places[operation].0].next;
        }
        None
    }

    /// Takes the entries of an operation out of the list.
    fn take(&mut self, operation: usize) {
        let (call, returns) = self.places[operation];
        for place in [Some(call), returns].into_iter().flatten() {
            let Entry { previous, next, .. } = self.entries[place];
            self.entries[previous].next = next;
            self.entries[next].previous = previous;
        }
        self.taken[operation] = true;
        if let Some(count) = self.unanswered(operation) {
            *count += 1;
        }
        while self.base < self.taken.len() && (self.taken[self.base] || self.places[self.base].1.is_none()) {
            self.base += 1;
        }
    }

    /// Puts them back where they were.
    fn give_back(&mut self, operation: usize) {
        let (call, returns) = self.places[operation];
        for place in [returns, Some(call)].into_iter().flatten() {
            let Entry { previous, next, .. } = self.entries[place];
            self.entries[previous].next = place;
            self.entries[next].previous = place;
        }
        self.taken[operation] = false;
        if returns.is_some() {
            self.base = self.base.min(operation);
        } else if let Some(count) = self.unanswered(operation) {
            *count -= 1;
        }
    }

    /// What is linearized. Only what was invoked before the first open operation returned can be: few are beyond the base.
    fn so_far(&self) -> Taken {
        let limit = self.operations.get(self.base).map_or(0, |open| open.returned);
        let reachable =
            self.operations[self.base..].iter().take_while(|operation| operation.invoked <= limit);
        let beyond = (self.base..self.base + reachable.count())
            .filter(|number| self.taken[*number] && self.places[*number].1.is_some());
        let (unseen_creates, deletes) = (self.unseen_creates, self.deletes);
        Taken { base: self.base, beyond: beyond.collect(), unseen_creates, deletes }
    }

    /// How often an operation like this one, which has no answer, was taken.
    fn unanswered(&mut self, operation: usize) -> Option<&mut usize> {
        let operation = self.operations[operation];
        match operation.call {
            _ if operation.outcome != Outcome::Unknown => None,
            Call::Create(value) if !self.known.contains_key(&value) => Some(&mut self.unseen_creates),
            Call::Delete(None) => Some(&mut self.deletes),
            _ => None,
        }
    }

    fn undecided(&self) -> Violation {
        let message = format!(
            "key {}: no verdict on {} operations after {STEPS} steps",
            self.operations[0].key,
            self.operations.len()
        );
        Violation::new(Kind::Undecided, message)
    }

    fn contradiction(&self) -> Violation {
        let mut message = format!("key {}: ", self.operations[0].key);
        let Some(Deepest { stopped, state, order, .. }) = &self.best else {
            return Violation::new(Kind::NotLinearizable, message);
        };
        let culprit = self.operations[*stopped];
        message += &format!("{culprit} is impossible: the object held {}, after", state.content);
        let before = order[order.len().saturating_sub(SHOWN)..].iter().map(|number| self.operations[*number]);
        let before: Vec<&Operation> = before.collect();
        before.iter().for_each(|operation| message += &format!("\n    {operation}"));
        let operations = [culprit].into_iter().chain(before).map(|operation| operation.id).collect();
        Violation::of(Kind::NotLinearizable, message, operations)
    }
}

#[cfg(test)]
mod tests;
