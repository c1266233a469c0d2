//! What the streams of all containers share: one thread serves them in turn, so one set of buffers is enough.

use super::pipe_size::LargePipes;

/// The most that is read from a stream before the others get their turn. Small enough to stay in the processor's cache.
const CHUNK: usize = 128 << 10;

/// Buffers, and counts over all streams.
#[derive(Debug)]
pub struct Shared {
    /// Bytes just read.
    pub input: Vec<u8>,
    /// Log lines to be written.
    pub lines: Vec<u8>,
    /// Pipes that were enlarged.
    pub large_pipes: LargePipes,
    /// Bytes of output that were read in this turn of the event loop.
    pub output_read: usize,
}

impl Default for Shared {
    fn default() -> Self {
        Self { input: vec![0; CHUNK], lines: Vec::new(), large_pipes: LargePipes::default(), output_read: 0 }
    }
}
