//! How much of the time is explained.

use crate::tree::Piece;

/// The share of a critical path that spans and named waits explain, from 0 to 1.
pub fn coverage(path: &[Piece]) -> f64 {
    let sum = |measured: bool| -> u64 {
        let pieces = path.iter().filter(|piece| piece.measured || !measured);
        pieces.map(|piece| piece.end.saturating_sub(piece.start)).sum()
    };
    match sum(false) {
        0 => 1.0,
        total => sum(true) as f64 / total as f64,
    }
}
