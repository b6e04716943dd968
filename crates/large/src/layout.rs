//! `Layout`: how a value is cut into body and tail, and the body into units, rows and blocks.
//!
//! ```text
//! value   | row 0                         | row 1 …                       | tail, in the object
//!         | unit 0 | unit 1 | … | unit k-1| unit k | …
//! block i : the i-th unit of each row
//! ```
//! A unit is one chunk. What is left after the last full row is the tail if it is short; else it is one more row of
//! shorter units, and there is no tail.

use core::ops::Range;

/// Longest tail in bytes. It is also at most three units.
pub const TAIL_BYTES_MAX: u64 = 48 << 10;

/// Units of a short row have lengths that are multiples of this, in bytes.
const ALIGN_BYTES: u64 = 64;

/// How one body is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    body_bytes: u64,
    unit_bytes: u32,
    /// Data blocks, k.
    data: u8,
    /// Rows of full units.
    full_rows: u32,
    /// Bytes of each unit of the short row; 0 if there is none.
    short_unit_bytes: u32,
}

impl Layout {
    /// Cuts a value of `value_bytes` for `data` blocks. Returns the layout of its body and the length of its tail in
    /// bytes.
    ///
    /// `None` if it is empty or has more than 2³² − 1 rows.
    ///
    /// # Panics
    /// If `data` is 0, or `unit_bytes` is not a multiple of 64.
    pub fn of_value(value_bytes: u64, data: u8, unit_bytes: u32) -> Option<(Self, u64)> {
        let rest = value_bytes % (u64::from(data) * u64::from(unit_bytes));
        // A value has a body, also one that is as short as a tail.
        let is_tail = rest <= tail_bytes_max(unit_bytes) && rest < value_bytes;
        let tail = if is_tail { rest } else { 0 };
        Some((Self::of_body(value_bytes - tail, data, unit_bytes)?, tail))
    }

    /// The layout of a body of this length. `None` as for [`Self::of_value`].
    ///
    /// # Panics
    /// As [`Self::of_value`].
    pub fn of_body(body_bytes: u64, data: u8, unit_bytes: u32) -> Option<Self> {
        assert!(data > 0, "a body has at least one data block");
        assert!(
            unit_bytes > 0 && u64::from(unit_bytes).is_multiple_of(ALIGN_BYTES),
            "a unit has a multiple of 64 bytes"
        );
        let row_bytes = u64::from(data) * u64::from(unit_bytes);
        let rest = body_bytes % row_bytes;
        let short = rest.div_ceil(u64::from(data)).next_multiple_of(ALIGN_BYTES);
        let layout = Self {
            body_bytes,
            unit_bytes,
            data,
            full_rows: u32::try_from(body_bytes / row_bytes).ok()?,
            short_unit_bytes: if rest > 0 { short as u32 } else { 0 },
        };
        // One row more must still be countable.
        (body_bytes > 0 && layout.full_rows < u32::MAX / u32::from(data)).then_some(layout)
    }

    /// Bytes of the value that are in the body.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Bytes of a full unit.
    pub fn unit_bytes(&self) -> u32 {
        self.unit_bytes
    }

    /// Number of data blocks.
    pub fn data(&self) -> u8 {
        self.data
    }

    /// Number of rows: units of one block.
    pub fn rows(&self) -> u32 {
        self.full_rows + u32::from(self.short_unit_bytes > 0)
    }

    /// Number of units of the whole body: units of a whole copy.
    pub fn units(&self) -> u32 {
        self.rows() * u32::from(self.data)
    }

    /// Bytes of each unit of a row, the zeros included that fill up the last ones of a short row.
    pub fn row_unit_bytes(&self, row: u32) -> u32 {
        if row < self.full_rows {
            self.unit_bytes
        } else {
            self.short_unit_bytes
        }
    }

    /// Bytes that a block occupies, data or parity.
    pub fn block_bytes(&self) -> u64 {
        u64::from(self.full_rows) * u64::from(self.unit_bytes) + u64::from(self.short_unit_bytes)
    }

    /// The bytes of the body that are in a unit of a whole copy. The last units of a short row may have none.
    pub fn unit_range(&self, unit: u32) -> Range<u64> {
        let data = u32::from(self.data);
        let (row, i) = (unit / data, unit % data);
        let row_start = u64::from(row.min(self.full_rows)) * u64::from(data) * u64::from(self.unit_bytes);
        let start = row_start + u64::from(i) * u64::from(self.row_unit_bytes(row));
        let end = start + u64::from(self.row_unit_bytes(row));
        start.min(self.body_bytes)..end.min(self.body_bytes)
    }

    /// The units of a whole copy that have bytes of this range of the body. An empty range has none.
    pub fn units_of(&self, bytes: Range<u64>) -> Range<u32> {
        let bytes = bytes.start..bytes.end.min(self.body_bytes);
        if bytes.is_empty() {
            return 0..0;
        }
        self.unit_at(bytes.start)..self.unit_at(bytes.end - 1) + 1
    }

    fn unit_at(&self, byte: u64) -> u32 {
        let full_bytes = u64::from(self.full_rows) * u64::from(self.data) * u64::from(self.unit_bytes);
        if byte < full_bytes {
            (byte / u64::from(self.unit_bytes)) as u32
        } else {
            let into = (byte - full_bytes) / u64::from(self.short_unit_bytes);
            self.full_rows * u32::from(self.data) + into as u32
        }
    }
}

/// Longest tail for units of this length, in bytes.
fn tail_bytes_max(unit_bytes: u32) -> u64 {
    TAIL_BYTES_MAX.min(3 * u64::from(unit_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNIT: u32 = 16 << 10;

    #[test]
    fn what_is_left_after_the_last_row_is_a_tail_or_a_short_row() {
        let row = 4 * u64::from(UNIT);
        let (layout, tail) = Layout::of_value(2 * row + 5, 4, UNIT).expect("a body");
        assert_eq!((layout.rows(), layout.body_bytes(), tail), (2, 2 * row, 5));
        let (layout, tail) = Layout::of_value(2 * row + row - 1, 4, UNIT).expect("a body");
        assert_eq!((layout.rows(), layout.body_bytes(), tail), (3, 3 * row - 1, 0));
        assert_eq!(layout.row_unit_bytes(2), UNIT);
        let (layout, tail) = Layout::of_value(row + (49 << 10), 4, UNIT).expect("a body");
        assert_eq!((layout.rows(), tail), (2, 0));
        assert_eq!(layout.row_unit_bytes(1), 12_544, "49 KiB in four, rounded up to 64");
        let (layout, tail) = Layout::of_value(1000, 4, UNIT).expect("a body");
        assert_eq!((layout.rows(), layout.row_unit_bytes(0), tail), (1, 256, 0));
        assert_eq!(Layout::of_value(0, 4, UNIT), None);
    }

    proptest! {
        #[test]
        fn units_follow_one_another_and_have_every_byte_once(
            bytes in 1u64..40_000,
            data in 1u8..9,
            unit in prop::sample::select(vec![64u32, 128, 1024]),
        ) {
            let Some((layout, tail)) = Layout::of_value(bytes, data, unit) else {
                return Ok(());
            };
            prop_assert!(tail <= TAIL_BYTES_MAX.min(3 * u64::from(unit)));
            prop_assert_eq!(layout.body_bytes() + tail, bytes);
            prop_assert_eq!(Layout::of_body(layout.body_bytes(), data, unit), Some(layout));
            let mut next = 0;
            for number in 0..layout.units() {
                let range = layout.unit_range(number);
                prop_assert_eq!(range.start, next);
                prop_assert!(range.end - range.start <= u64::from(layout.row_unit_bytes(number / u32::from(data))));
                next = range.end;
                if !range.is_empty() {
                    prop_assert_eq!(layout.units_of(range.clone()), number..number + 1);
                }
            }
            prop_assert_eq!(next, layout.body_bytes());
            // Zeros that fill up a short row take less than 65 B for each data block.
            let stored = layout.block_bytes() * u64::from(data);
            prop_assert!(stored - layout.body_bytes() < 64 * u64::from(data) + u64::from(data));
        }

        #[test]
        fn a_range_needs_only_the_units_that_it_touches(from in 0u64..20_000, length in 0u64..20_000, data in 1u8..6) {
            let layout = Layout::of_body(20_000, data, 256).expect("a body");
            let units = layout.units_of(from..from + length);
            let wanted = from..(from + length).min(20_000);
            for number in 0..layout.units() {
                let range = layout.unit_range(number);
                let touches = range.start < wanted.end && wanted.start < range.end && !wanted.is_empty();
                prop_assert_eq!(touches, units.contains(&number) && !range.is_empty());
            }
        }
    }
}
