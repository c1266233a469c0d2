//! Pieces of segments that may have an answer.

use crate::block::StoredRecord;
use crate::decoder::RecordRef;
use crate::filter::Key;
use crate::keep::Keep;
use crate::keep_error::{KeepError, at};
use crate::segment::{PieceIndex, read_piece};
use crate::segment_view::OpenedSegment;

/// Times that records may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) since: u64,
    pub(crate) until: u64,
}

impl Window {
    pub(crate) fn since(since: u64) -> Self {
        Self { since, until: u64::MAX }
    }
}

/// The segments as they were when the question was asked.
pub(crate) struct Pieces {
    segments: Vec<OpenedSegment>,
    buffer: Vec<u8>,
}

impl Pieces {
    pub(crate) fn open(keep: &Keep) -> Result<Self, KeepError> {
        let mut segments = Vec::new();
        for view in keep.segments() {
            segments.extend(view.open()?);
        }
        Ok(Self { segments, buffer: Vec::new() })
    }

    /// Shows the records of the pieces that may have one of the keys, oldest piece first.
    pub(crate) fn each(
        &mut self,
        keys: &[Key],
        window: Window,
        show: &mut dyn FnMut(&RecordRef<'_>),
    ) -> Result<(), KeepError> {
        for segment in &self.segments {
            for piece in segment.pieces.iter().filter(|piece| may_have(piece, keys, window)) {
                read_piece(&segment.file, piece, &mut self.buffer, show)
                    .map_err(at("read", &segment.path))?;
            }
        }
        Ok(())
    }

    /// Shows the pieces that may have one of the keys, all of them if there are none, newest first until `show` says no.
    pub(crate) fn each_newest(
        &mut self,
        keys: &[Key],
        since: u64,
        show: &mut dyn FnMut(&[StoredRecord]) -> bool,
    ) -> Result<(), KeepError> {
        for segment in self.segments.iter().rev() {
            let window = Window::since(since);
            for piece in segment.pieces.iter().rev().filter(|piece| may_have(piece, keys, window)) {
                let mut records = Vec::new();
                let mut keep = |record: &RecordRef<'_>| records.push(record.to_stored());
                read_piece(&segment.file, piece, &mut self.buffer, &mut keep)
                    .map_err(at("read", &segment.path))?;
                if !show(&records) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

fn may_have(piece: &PieceIndex, keys: &[Key], window: Window) -> bool {
    let Some(filter) = &piece.filter else { return piece.last >= window.since };
    piece.last >= window.since
        && piece.first <= window.until
        && (keys.is_empty() || keys.iter().any(|key| filter.may_have(*key)))
}
