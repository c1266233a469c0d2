//! Variable-length integers (LEB128) and a reader that never panics.

pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Small positive and negative numbers take few bytes (zigzag).
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// The difference of two counters that may wrap.
pub(crate) fn put_delta(out: &mut Vec<u8>, value: u64, previous: u64) {
    put_signed(out, value.wrapping_sub(previous).cast_signed());
}

/// What is left of some bytes; every method returns `None` past their end.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }

    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return None;
            }
            value |= part << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn small<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.varint()?).ok()
    }

    pub(crate) fn signed(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    pub(crate) fn delta(&mut self, previous: u64) -> Option<u64> {
        Some(previous.wrapping_add(self.signed()?.cast_unsigned()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_number_is_read_as_it_was_written(value: u64, other: u64, signed: i64) {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            put_signed(&mut bytes, signed);
            put_delta(&mut bytes, value, other);
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.varint(), Some(value));
            prop_assert_eq!(reader.signed(), Some(signed));
            prop_assert_eq!(reader.delta(other), Some(value));
            prop_assert_eq!(reader.len(), 0);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let mut reader = Reader::new(&bytes);
            while reader.varint().is_some() {}
            let _ = reader.small::<u8>();
        }
    }
}
