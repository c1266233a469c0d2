#![allow(clippy::unwrap_used)]

use coracle_trace::{Flags, Moment, Record};
use proptest::prelude::*;

use super::*;
use crate::block::BlockError;

fn uids() -> impl Strategy<Value = Uid> {
    prop_oneof![Just(Uid(0)), (1u128..5).prop_map(Uid), any::<u128>().prop_map(Uid)]
}

fn details() -> BoxedStrategy<Details> {
    let marks = (prop::collection::vec(any::<u32>(), 16), any::<u16>());
    let details = |((marks, reached), owner): ((Vec<u32>, u16), Uid)| {
        let mark = |index: usize| if reached & 1 << index == 0 { 0 } else { marks[index] };
        Details { marks: std::array::from_fn(mark), owner }
    };
    (marks, uids()).prop_map(details).boxed()
}

prop_compose! {
    fn record()(
        stage in prop::sample::select(Stage::ALL), flags: u16, code: u16, span: u64, parent in 0u64..4, raw: u64,
        subject in uids(), revision in prop_oneof![0u64..9, any::<u64>()], start: u64, duration in 0u64..1 << 40,
        trace in prop_oneof![Just(0u128), 1u128..3, any::<u128>()], details in prop::option::of(details()).boxed(),
        text in ".{0,40}", node in "(node[12])?", uncertainty in 0u32..2,
    ) -> StoredRecord {
        let parent = match parent {
            0 => SpanId(0),
            1 => SpanId::of_write(subject, revision),
            2 => SpanId::of_stage(subject, Stage::PodStart),
            _ => SpanId(raw),
        };
        let record = Record {
            stage, flags: Flags(flags), code, span: SpanId(span), parent, trace: TraceId(trace), subject, revision,
            start: Moment::MAX, duration,
        };
        StoredRecord { record, start, details, text, node, uncertainty }
    }
}

proptest! {
    #[test]
    fn records_are_read_as_they_were_written(records in prop::collection::vec(record().boxed(), 0..60)) {
        let blocks = encode(&records);
        let mut read = Vec::new();
        for block in &blocks {
            prop_assert!(block.bytes.len() <= MAX_BLOCK);
            read.extend(block.records().unwrap());
        }
        prop_assert_eq!(read, records);
    }

    #[test]
    fn a_flipped_bit_is_found(records in prop::collection::vec(record().boxed(), 1..20), at: prop::sample::Index, bit in 0..8) {
        let mut block = encode(&records).remove(0);
        let at = at.index(block.bytes.len());
        block.bytes[at] ^= 1u8 << bit;
        prop_assert!(block.records().is_err());
    }

    #[test]
    fn a_cut_block_is_incomplete(records in prop::collection::vec(record().boxed(), 1..20), at: prop::sample::Index) {
        let mut block = encode(&records).remove(0);
        block.bytes.truncate(at.index(block.bytes.len()));
        prop_assert_eq!(block.records(), Err(BlockError::Incomplete));
    }

    #[test]
    fn a_body_with_a_right_checksum_may_have_any_bytes(body in prop::collection::vec(any::<u8>(), 0..400), count in 0u32..9) {
        let mut bytes = MAGIC.to_vec();
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(count.to_le_bytes());
        bytes.extend([0; 16]);
        let sum = block::checksum(&bytes, &body);
        bytes.extend(sum.to_le_bytes());
        bytes.extend(body);
        let _ = Block { bytes }.records();
    }
}

#[test]
fn long_strings_are_cut_at_a_character() {
    let text = "ä".repeat(MAX_STRING);
    assert_eq!(cut(&text).len(), MAX_STRING);
    assert_eq!(cut(&format!("a{text}")).len(), MAX_STRING - 1);
}

#[test]
fn records_of_others_are_short() {
    let mut long = crate::testing::record(Stage::Image, 1, SpanId::NONE, 0, 1).says(&"x".repeat(4000));
    long.node = "node".repeat(1000);
    let block = encode(std::slice::from_ref(&long)).remove(0);
    let short = block.short_records().unwrap().remove(0);
    assert_eq!((short.text.len(), short.node.as_str()), (159, ""));
    assert_eq!((short.record, short.start), (long.record, long.start));
}
