//! How a field of a message stands in a frame. A type has one form, which [`Field`] gives it. A field that has another
//! one names it in the table after `as`: it is a type around the value.

use super::parts::{DIRECTORY_ENTRY_BYTES, LeaseRecord};
use super::{FINGERPRINT_BYTES, FORWARD_DATABASE, OPEN_FOR_CLIENT, PART_FINGERPRINT, STAGE_CLASS, dialect};
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{ClusterId, ConnId, Epoch, Incarnation, ListId, NodeId, Position, StreamId, Stripe, Time, Version};
use paritas_base::{HIDDEN_DATABASE, Reader, formats, sections, varint};

/// A part of a frame.
pub(super) trait Field<'a>: Sized {
    /// Appends the field to a frame.
    fn write(&self, to: &mut Vec<u8>);
    /// Reads what [`Self::write`] has written. `None`: the bytes are too few, or are no such value.
    fn read(r: &mut Reader<'a>) -> Option<Self>;
}

/// A struct in a frame: its fields, in the order of the frame.
macro_rules! fields {
    ($type:ty { $($field:tt $(as $form:ident)?),* }) => {
        impl<'a> $crate::peer::field::Field<'a> for $type {
            #[inline]
            fn write(&self, to: &mut Vec<u8>) {
                $( $crate::peer::field::Field::write(&$($form)?(self.$field), to); )*
            }

            #[inline]
            fn read(r: &mut paritas_base::Reader<'a>) -> Option<Self> {
                Some(Self {
                    $( $field: $crate::peer::field::Field::read(r)$(.map(|$form(value)| value))? ?, )*
                })
            }
        }
    };
}
pub(super) use fields;

/// Declares an enum that is one byte in a frame. A number is never reused for another variant.
macro_rules! codes {
    ($(#[$doc:meta])* pub enum $name:ident { $($(#[$about:meta])* $variant:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $($(#[$about])* $variant = $number,)* }

        impl $crate::peer::field::Field<'_> for $name {
            fn write(&self, to: &mut Vec<u8>) {
                to.push(*self as u8);
            }

            fn read(r: &mut paritas_base::Reader<'_>) -> Option<Self> {
                match r.u8()? {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}
pub(super) use codes;

/// A number of variable length ([`paritas_base::varint`]). One that is larger than its field is refused.
pub(super) struct Num<T>(pub T);

macro_rules! integers {
    ($($type:ident)*) => { $(
        impl Field<'_> for $type {
            #[inline]
            fn write(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn read(r: &mut Reader<'_>) -> Option<Self> {
                r.array().map(Self::from_le_bytes)
            }
        }

        impl Field<'_> for Num<$type> {
            #[inline]
            fn write(&self, to: &mut Vec<u8>) {
                varint::push(to, u64::from(self.0));
            }

            #[inline]
            fn read(r: &mut Reader<'_>) -> Option<Self> {
                r.varint()?.try_into().ok().map(Self)
            }
        }
    )* };
}
integers!(u8 u16 u32 u64);

fields!(NodeId { 0 });
fields!(Incarnation { 0 });
fields!(ClusterId { 0 });
fields!(ListId { 0 as Num });
fields!(Position { 0 });
fields!(StreamId { list, x });
fields!(Epoch { 0 });
fields!(Version { 0 });
fields!(ConnId { 0 as Num });
fields!(Tenure {
    node,
    incarnation,
    since
});

impl Field<'_> for Num<Epoch> {
    fn write(&self, to: &mut Vec<u8>) {
        Num(self.0.0).write(to);
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        Num::read(r).map(|Num(epoch)| Self(Epoch(epoch)))
    }
}

impl Field<'_> for bool {
    fn write(&self, to: &mut Vec<u8>) {
        to.push(u8::from(*self));
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        match r.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

/// A monotonic clock goes over the wire in units of 65,536 ns, rounded down: a lease that is counted from it ends
/// earlier by less than that.
const CLOCK_UNIT_BITS: u32 = 16;

impl Field<'_> for Time {
    fn write(&self, to: &mut Vec<u8>) {
        Num(self.0 >> CLOCK_UNIT_BITS).write(to);
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        let units = r.varint()?;
        let ns = units << CLOCK_UNIT_BITS;
        (ns >> CLOCK_UNIT_BITS == units).then_some(Self(ns))
    }
}

impl Field<'_> for Stripe {
    fn write(&self, to: &mut Vec<u8>) {
        self.0.write(to);
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        r.u32().map(Self).filter(|stripe| stripe.is_valid())
    }
}

/// A run of bytes that fills the frame.
impl<'a> Field<'a> for &'a [u8] {
    fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self);
    }

    fn read(r: &mut Reader<'a>) -> Option<Self> {
        Some(r.rest())
    }
}

/// The sum of a run of bytes, and the run.
impl<'a> Field<'a> for (u32, &'a [u8]) {
    fn write(&self, to: &mut Vec<u8>) {
        self.0.write(to);
        self.1.write(to);
    }

    fn read(r: &mut Reader<'a>) -> Option<Self> {
        Some((r.u32()?, r.rest()))
    }
}

/// A value that may be missing: a byte that says whether it is there, then the value. It must be the last field of a
/// frame, because `None` is read only at the end of one.
impl<'a, T: Field<'a>> Field<'a> for Option<T> {
    fn write(&self, to: &mut Vec<u8>) {
        self.is_some().write(to);
        if let Some(value) = self {
            value.write(to);
        }
    }

    fn read(r: &mut Reader<'a>) -> Option<Self> {
        match bool::read(r)? {
            true => T::read(r).map(Some),
            false => r.end(None),
        }
    }
}

/// In postcard. It fills the frame.
impl Field<'_> for Box<Configuration> {
    fn write(&self, to: &mut Vec<u8>) {
        // Cannot fail: a Configuration has no part that postcard refuses.
        if let Ok(bytes) = postcard::to_allocvec(self.as_ref()) {
            to.extend_from_slice(&bytes);
        }
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        let (configuration, rest) = postcard::take_from_bytes(r.rest()).ok()?;
        rest.is_empty().then(|| Self::new(configuration))
    }
}

/// Bytes after their number.
pub(super) struct Counted<'a>(pub &'a [u8]);

impl<'a> Field<'a> for Counted<'a> {
    fn write(&self, to: &mut Vec<u8>) {
        Num(self.0.len() as u64).write(to);
        to.extend_from_slice(self.0);
    }

    fn read(r: &mut Reader<'a>) -> Option<Self> {
        let length = r.varint_u32()? as usize;
        r.bytes(length).map(Self)
    }
}

/// At most 255 bytes after their number.
pub(super) struct Short<'a>(pub &'a [u8]);

impl<'a> Field<'a> for Short<'a> {
    fn write(&self, to: &mut Vec<u8>) {
        to.push(self.0.len() as u8);
        to.extend_from_slice(self.0);
    }

    fn read(r: &mut Reader<'a>) -> Option<Self> {
        let length = usize::from(r.u8()?);
        r.bytes(length).map(Self)
    }
}

/// The record of a large value. Its first byte, which belongs to it, is the number of those that follow.
pub(super) struct Record<'a>(pub &'a [u8]);

impl<'a> Field<'a> for Record<'a> {
    fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self.0);
    }

    fn read(r: &mut Reader<'a>) -> Option<Self> {
        let length = usize::from(*r.0.first()?);
        r.bytes(1 + length).map(Self)
    }
}

/// Entries of a directory. They fill the frame.
pub(super) struct Entries<'a>(pub &'a [u8]);

impl<'a> Field<'a> for Entries<'a> {
    fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self.0);
    }

    fn read(r: &mut Reader<'a>) -> Option<Self> {
        Some(Self(r.rest())).filter(|entries| entries.0.len().is_multiple_of(DIRECTORY_ENTRY_BYTES))
    }
}

/// Records of leases after their number.
pub(super) struct LeaseRecords<'a>(pub &'a [u8]);

impl<'a> Field<'a> for LeaseRecords<'a> {
    fn write(&self, to: &mut Vec<u8>) {
        ((self.0.len() / LeaseRecord::BYTES) as u16).write(to);
        to.extend_from_slice(self.0);
    }

    fn read(r: &mut Reader<'a>) -> Option<Self> {
        let count = usize::from(r.u16()?);
        r.bytes(count * LeaseRecord::BYTES).map(Self)
    }
}

/// The end of a range of stripe numbers.
pub(super) struct End(pub u32);

impl Field<'_> for End {
    fn write(&self, to: &mut Vec<u8>) {
        Num(self.0).write(to);
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        r.varint_u32().filter(|end| *end <= Stripe::NUMBER_MAX).map(Self)
    }
}

/// A version, or the latest.
pub(super) struct OrLatest(pub Option<Version>);

impl Field<'_> for OrLatest {
    fn write(&self, to: &mut Vec<u8>) {
        self.0.is_none().write(to);
        if let Some(version) = self.0 {
            version.write(to);
        }
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        match bool::read(r)? {
            true => Some(Self(None)),
            false => Version::read(r).map(|version| Self(Some(version))),
        }
    }
}

/// A number above 0, or 0 for none.
pub(super) struct OrZero(pub Option<u64>);

impl Field<'_> for OrZero {
    fn write(&self, to: &mut Vec<u8>) {
        self.0.unwrap_or_default().write(to);
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        r.u64().map(|n| Self(Some(n).filter(|n| *n > 0)))
    }
}

/// One of [`dialect`]. Others are refused.
pub(super) struct Dialect(pub u8);

impl Field<'_> for Dialect {
    fn write(&self, to: &mut Vec<u8>) {
        to.push(self.0);
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        r.u8().filter(|byte| dialect::is_known(*byte)).map(Self)
    }
}

/// The database of a forwarded command: a section, unless it is 0. The sections are read again when they are checked.
pub(super) struct Section(pub u8);

impl Field<'_> for Section {
    fn write(&self, to: &mut Vec<u8>) {
        if self.0 > 0 {
            sections::push(to, (FORWARD_DATABASE, &[self.0]));
        }
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        match sections::find(r.0, FORWARD_DATABASE) {
            None => Some(Self(0)),
            Some([number @ 1..=HIDDEN_DATABASE]) => Some(Self(*number)),
            // Sections that are refused as a whole give a better reason than a bad body: `BadFrame::Section`.
            Some(_) => sections::check(r.0, &[FORWARD_DATABASE]).is_err().then_some(Self(0)),
        }
    }
}

/// Whether a client sends the units of a part that is opened: an empty section, or none.
pub(super) struct ForClient(pub bool);

impl Field<'_> for ForClient {
    fn write(&self, to: &mut Vec<u8>) {
        if self.0 {
            sections::push(to, (OPEN_FOR_CLIENT, &[]));
        }
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        match sections::find(r.0, OPEN_FOR_CLIENT) {
            None => Some(Self(false)),
            Some([]) => Some(Self(true)),
            Some(_) => sections::check(r.0, &[OPEN_FOR_CLIENT]).is_err().then_some(Self(false)),
        }
    }
}

/// The fingerprint of a part: a section, or none.
pub(super) struct Fingerprint<'a>(pub Option<&'a [u8; FINGERPRINT_BYTES]>);

impl<'a> Field<'a> for Fingerprint<'a> {
    fn write(&self, to: &mut Vec<u8>) {
        if let Some(print) = self.0 {
            sections::push(to, (PART_FINGERPRINT, print));
        }
    }

    fn read(r: &mut Reader<'a>) -> Option<Self> {
        let Some(found) = sections::find(r.0, PART_FINGERPRINT) else {
            return Some(Self(None));
        };
        match found.try_into() {
            Ok(print) => Some(Self(Some(print))),
            Err(_) => sections::check(r.0, &[PART_FINGERPRINT]).is_err().then_some(Self(None)),
        }
    }
}

/// The class that a command gives a value, as text: a section, or none. Who does not know it does not know the command
/// either.
pub(super) struct StageClass<'a>(pub &'a [u8]);

impl<'a> Field<'a> for StageClass<'a> {
    fn write(&self, to: &mut Vec<u8>) {
        if !self.0.is_empty() {
            sections::push(to, (STAGE_CLASS, self.0));
        }
    }

    fn read(r: &mut Reader<'a>) -> Option<Self> {
        Some(Self(sections::find(r.0, STAGE_CLASS).unwrap_or_default()))
    }
}

/// The section of tomorrow, which is there or not. It may be left out, so it is not read apart from the others.
pub(super) struct Tomorrow(pub bool);

impl Field<'_> for Tomorrow {
    fn write(&self, to: &mut Vec<u8>) {
        if self.0 {
            sections::push(to, (formats::TOMORROW_SECTION, &[]));
        }
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        Some(Self(sections::find(r.0, formats::TOMORROW_SECTION).is_some()))
    }
}

/// Stays in the node.
pub(super) struct NotSent(pub Option<u32>);

impl Field<'_> for NotSent {
    fn write(&self, _: &mut Vec<u8>) {}

    fn read(_: &mut Reader<'_>) -> Option<Self> {
        Some(Self(None))
    }
}
