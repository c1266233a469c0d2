//! The closest of some names, for what was probably meant.

/// The number of letters to insert, delete, replace or swap to make one text of the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, &x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &y) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(x != y);
            let mut least = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && x == b[j - 1] && a[i - 1] == y {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// Whether a text of at least two letters is short for another one, as `db` for `database`: it begins with the same letter, and has
/// only letters of the other one, in their order.
fn abbreviates(short: &str, long: &str) -> bool {
    let mut letters = long.chars();
    let same = short.chars().next() == long.chars().next();
    same && (2..=4).contains(&short.chars().count())
        && short.chars().all(|letter| letters.any(|other| other == letter))
}

/// How far a name is from the one that was written: nothing when they are too different for a slip of the pen, which is when
/// more than a third of the letters differ, none begins with the other, and none is short for the other.
pub fn slip(wanted: &str, name: &str) -> Option<usize> {
    let (a, b) = (wanted.chars().count(), name.chars().count());
    let (long, short) = (a.max(b), a.min(b));
    let part = short >= 3 && (name.starts_with(wanted) || wanted.starts_with(name));
    let part = part || abbreviates(name, wanted) || abbreviates(wanted, name);
    let most = (long / 3).max(1);
    // Every letter that one has more than the other is an edit.
    if !part && long > short + most {
        return None;
    }
    let edits = distance(wanted, name);
    (part || edits == 0 || (edits <= most && edits < long)).then_some(edits)
}

/// The name that is most like another one; none when all are too different.
pub fn closest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let others = names.into_iter().filter(|name| *name != wanted);
    let similar = others.filter_map(|name| Some((slip(wanted, name)?, name)));
    similar.min().map(|(_, name)| name)
}

/// `; the closest that exists is x` when there is a similar name, otherwise nothing.
pub fn suggestion<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    closest(wanted, names).map_or_else(String::new, |name| format!("; the closest that exists is {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits() {
        for (a, b, edits) in
            [("", "", 0), ("abc", "", 3), ("web", "wbe", 1), ("nginx", "ngnix", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(a, b), edits, "{a} {b}");
        }
    }

    #[test]
    fn only_what_is_similar() {
        assert_eq!(closest("confg", ["config", "secret"]), Some("config"));
        assert_eq!(closest("web", ["database", "queue"]), None);
        assert_eq!(closest("settings", ["settings-v2"]), Some("settings-v2"));
        assert_eq!(closest("web", ["db", "web-frontend"]), Some("web-frontend"), "the other is no slip");
        assert_eq!(closest("database", ["db", "queue"]), Some("db"), "it is short for the other");
        assert_eq!(closest("a", ["b"]), None, "nothing is left of it");
        assert_eq!(suggestion("a", ["zzzz"]), "");
        assert_eq!(suggestion("apii", ["api"]), "; the closest that exists is api");
    }
}
