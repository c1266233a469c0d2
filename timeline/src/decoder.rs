//! Decodes blocks.

use coracle_trace::{Details, Flags, Moment, Record, SpanId, Stage, Text, TraceId, Uid};

use crate::block::{Block, BlockError, HAS_DETAILS, HEADER, Header, MAX_STRING, StoredRecord, parent, trace};
use crate::varint::Reader;

/// A record in the bytes of its block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordRef<'a> {
    pub(crate) record: Record,
    pub(crate) start: u64,
    pub(crate) details: Option<Details>,
    pub(crate) text: &'a str,
    pub(crate) node: &'a str,
    pub(crate) uncertainty: u32,
}

impl<'a> RecordRef<'a> {
    /// A record of this process.
    pub(crate) fn own(record: Record, details: Option<Details>, text: &'a str, start: u64) -> Self {
        let record = Record { start: Moment::MAX, ..record };
        Self { record, start, details, text, node: "", uncertainty: 0 }
    }

    /// When its span ended.
    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.record.duration)
    }

    pub(crate) fn of(stored: &'a StoredRecord) -> Self {
        let StoredRecord { record, start, details, text, node, uncertainty } = stored;
        Self { record: *record, start: *start, details: *details, text, node, uncertainty: *uncertainty }
    }

    pub(crate) fn to_stored(self) -> StoredRecord {
        let Self { record, start, details, text, node, uncertainty } = self;
        StoredRecord { record, start, details, text: text.to_owned(), node: node.to_owned(), uncertainty }
    }

    /// With the text cut to what a recorder keeps. Many records of a block can have the same long text, and would take many times its
    /// size.
    pub(crate) fn to_short(self) -> StoredRecord {
        RecordRef { text: Text::of(self.text).as_str(), ..self }.to_stored()
    }
}

impl Block {
    /// Decodes it.
    pub fn records(&self) -> Result<Vec<StoredRecord>, BlockError> {
        let (header, block, _) = Self::first(&self.bytes)?;
        decode(&header, &block[HEADER..])
    }

    /// Decodes a block that somebody else made: texts are cut, and nodes and uncertainties are left out.
    pub fn short_records(&self) -> Result<Vec<StoredRecord>, BlockError> {
        let (header, block, _) = Self::first(&self.bytes)?;
        let mut records = Vec::new();
        decode_each(&header, &block[HEADER..], &mut |found| {
            records.push(RecordRef { node: "", uncertainty: 0, ..*found }.to_short());
        })?;
        Ok(records)
    }
}

/// The records of a body whose checksum was right.
pub(crate) fn decode(header: &Header, body: &[u8]) -> Result<Vec<StoredRecord>, BlockError> {
    let mut records = Vec::new();
    decode_each(header, body, &mut |record| records.push(record.to_stored()))?;
    Ok(records)
}

/// Shows the records of a body without copying their texts.
pub(crate) fn decode_each(
    header: &Header,
    body: &[u8],
    show: &mut dyn FnMut(&RecordRef<'_>),
) -> Result<(), BlockError> {
    let mut decode = || {
        let mut decoder = Decoder::new(body)?;
        for _ in 0..header.records {
            show(&decoder.record()?);
        }
        (decoder.reader.len() == 0).then_some(())
    };
    decode().ok_or(BlockError::Malformed)
}

#[derive(Clone, Copy)]
struct Source<'a> {
    node: &'a str,
    uncertainty: u32,
}

struct Decoder<'a> {
    reader: Reader<'a>,
    sources: Vec<Source<'a>>,
    strings: Vec<&'a str>,
    uids: Vec<Uid>,
    span: SpanId,
    trace: TraceId,
    revision: u64,
    start: u64,
}

impl<'a> Decoder<'a> {
    fn new(body: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(body);
        let mut sources = Vec::new();
        for _ in 0..reader.varint()? {
            let node = string(&mut reader)?;
            let _boot = reader.u128()?;
            let _offset = reader.signed()?;
            sources.push(Source { node, uncertainty: reader.small()? });
        }
        let mut strings = Vec::new();
        for _ in 0..reader.varint()? {
            strings.push(string(&mut reader)?);
        }
        let mut uids = Vec::new();
        for _ in 0..reader.varint()? {
            uids.push(Uid(reader.u128()?));
        }
        let (span, trace) = (SpanId::NONE, TraceId::NONE);
        Some(Self { reader, sources, strings, uids, span, trace, revision: 0, start: 0 })
    }

    fn record(&mut self) -> Option<RecordRef<'a>> {
        let stage = self.reader.small().and_then(Stage::from_code).unwrap_or(Stage::Other);
        let flags = Flags(self.reader.small()?);
        let code = self.reader.small()?;
        let source: usize = self.reader.small()?;
        let span = SpanId(self.reader.u64()?);
        let (parent_kind, parent_value) = self.parent_before_subject()?;
        let trace = self.trace()?;
        let subject = self.uid()?;
        let revision = self.reader.delta(self.revision)?;
        let parent = match (parent_kind, parent_value) {
            (parent::WRITE, (uid, back)) => SpanId::of_write(uid, revision.wrapping_add(back)),
            (parent::STAGE, (_, stage)) => {
                SpanId::of_stage(subject, Stage::from_code(stage.try_into().ok()?)?)
            }
            (parent::PREVIOUS, _) => self.span,
            (_, (_, value)) => SpanId(value),
        };
        let start = self.reader.delta(self.start)?;
        let duration = self.reader.varint()?;
        let details = self.details()?;
        let text = match self.reader.small::<usize>()? {
            0 => "",
            index => self.strings.get(index - 1)?,
        };
        (self.span, self.revision, self.start) = (span, revision, start);
        let Source { node, uncertainty } = *self.sources.get(source)?;
        Some(RecordRef {
            record: Record {
                stage,
                flags,
                code,
                span,
                parent,
                trace,
                subject,
                revision,
                start: Moment::MAX,
                duration,
            },
            start,
            details,
            text,
            node,
            uncertainty,
        })
    }

    /// The kind of the parent, and the uid and number that the kind needs.
    fn parent_before_subject(&mut self) -> Option<(u8, (Uid, u64))> {
        let [kind] = self.reader.array()?;
        let value = match kind {
            parent::NONE | parent::PREVIOUS => (Uid(0), 0),
            parent::WRITE => (self.uid()?, self.reader.signed()?.cast_unsigned()),
            parent::BYTES => (Uid(0), self.reader.u64()?),
            parent::STAGE => (Uid(0), self.reader.varint()?),
            _ => return None,
        };
        Some((kind, value))
    }

    fn trace(&mut self) -> Option<TraceId> {
        let [kind] = self.reader.array()?;
        match kind {
            trace::NONE => return Some(TraceId::NONE),
            trace::AGAIN => {}
            trace::BYTES => self.trace = TraceId(self.reader.u128()?),
            _ => return None,
        }
        Some(self.trace)
    }

    fn uid(&mut self) -> Option<Uid> {
        match self.reader.small::<usize>()? {
            0 => Some(Uid(0)),
            index => self.uids.get(index - 1).copied(),
        }
    }

    fn details(&mut self) -> Option<Option<Details>> {
        let bits = self.reader.varint()?;
        if bits & HAS_DETAILS == 0 {
            return Some(None);
        }
        let mut marks = [0; 16];
        for (index, mark) in marks.iter_mut().enumerate() {
            if bits & (1 << index) != 0 {
                *mark = self.reader.small()?;
            }
        }
        Some(Some(Details { marks, owner: self.uid()? }))
    }
}

fn string<'a>(reader: &mut Reader<'a>) -> Option<&'a str> {
    let length: usize = reader.small()?;
    if length > MAX_STRING {
        return None;
    }
    std::str::from_utf8(reader.take(length)?).ok()
}
