//! Segments as they are when a question is asked.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::keep_error::{KeepError, at, io_error};
use crate::segment::{PieceIndex, read_footer};

/// A segment as it is at the moment.
pub(crate) struct SegmentView {
    pub(crate) path: PathBuf,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// `None`: in the file.
    pub(crate) pieces: Option<Vec<Arc<PieceIndex>>>,
}

/// A segment that can be read, whether it is deleted meanwhile or not.
pub(crate) struct OpenedSegment {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) pieces: Vec<Arc<PieceIndex>>,
}

impl SegmentView {
    /// The file and its index; `None` if it was deleted meanwhile.
    pub(crate) fn open(self) -> Result<Option<OpenedSegment>, KeepError> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("open", &self.path, error)),
        };
        let pieces = match self.pieces {
            Some(pieces) => pieces,
            // Sealed since it was opened, so that it can only be missing if the disk lost it.
            None => read_footer(&file).map_err(at("read", &self.path))?.unwrap_or_default(),
        };
        Ok(Some(OpenedSegment { file, path: self.path, pieces }))
    }
}
