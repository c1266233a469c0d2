//! What the stock cluster answered when it was last asked: `stock/TEST.txt`, a line for each thing that was seen. Without a stock
//! cluster our server is compared with these files.

use std::fs;
use std::path::PathBuf;

/// Whether what the stock cluster answers is written down.
pub fn is_recorded() -> bool {
    std::env::var_os("CORACLE_PEER_RECORD").is_some_and(|value| !value.is_empty())
}

fn path(test: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("peer/stock").join(format!("{test}.txt"))
}

/// A line of the file for what was seen.
pub fn line(seen: &str) -> String {
    seen.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r")
}

/// What the stock cluster answered, if that is known.
pub fn read(test: &str) -> Option<Vec<String>> {
    let text = fs::read_to_string(path(test)).ok()?;
    Some(text.lines().map(str::to_owned).collect())
}

/// Writes down what the stock cluster answered.
pub fn write(test: &str, seen: &[String]) {
    let path = path(test);
    fs::create_dir_all(path.parent().expect("the directory of the suite")).unwrap();
    let text: String = seen.iter().map(|seen| line(seen) + "\n").collect();
    fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

#[test]
fn what_was_seen_is_one_line_of_a_transcript() {
    let seen = ["a\nb", "a\\nb", "plain"];
    let lines: Vec<String> = seen.iter().map(|seen| line(seen)).collect();
    assert_eq!(lines, ["a\\nb", "a\\\\nb", "plain"]);
    assert!(read("no-such-test").is_none());
}
