//! `docs/stages.md` says what every stage means.

use coracle_trace::Stage;

/// Keys and names in the documentation are those of the code, in the same order, and each says what it means.
#[test]
fn every_stage_is_documented() {
    let table = include_str!("../../docs/stages.md");
    let rows = table.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let rows: Vec<Vec<&str>> = rows
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let documented: Vec<(&str, &str)> = rows.iter().map(|row| (row[0].trim_matches('`'), row[1])).collect();
    let stages: Vec<(&str, &str)> = Stage::ALL.iter().map(|stage| (stage.key(), stage.name())).collect();
    assert_eq!(documented, stages);
    let unexplained = rows.iter().find(|row| row.len() != 4 || row[2].is_empty() || row[3].len() < 5);
    assert_eq!(unexplained, None);
}
