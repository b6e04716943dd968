//! Fields that a later version adds behind a body: records, messages and frames may end with sections
//! (`docs/formats/sections.md`).
//!
//! ```text
//! tag u8   length num   body
//! ```
//! Tags rise. Who does not know a tag below [`Sections::MUST_KNOW`] keeps the section and hands it on; one from there
//! on changes what the rest means, so it is refused by name.

use crate::{Reader, varint};
use core::fmt;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Sections in order, as they came. Most often there are none.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Sections(Vec<u8>);

/// Why bytes are no sections that this version takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadSections {
    /// A section is cut, its length is no number, or there are too many bytes.
    Malformed,
    /// This tag does not follow the one before it.
    Order(u8),
    /// This tag must be known and is not.
    Unknown(u8),
}

impl fmt::Display for BadSections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("its sections are malformed"),
            Self::Order(tag) => write!(f, "its section {tag} is out of order"),
            Self::Unknown(tag) => write!(
                f,
                "it has section {tag}, which this version does not know and must not leave out: use a newer paritas"
            ),
        }
    }
}

impl Sections {
    /// Tags from here on must be known.
    pub const MUST_KNOW: u8 = 128;
    /// Most bytes of the sections of one body. A peer or a client chooses them.
    pub const BYTES_MAX: usize = 64 << 10;

    /// An empty list, as every body of this version has.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Reads sections that fill the rest of a body.
    ///
    /// # Errors
    /// If they are malformed, or one must be known and its tag is not in `known`.
    pub fn read(bytes: &[u8], known: &[u8]) -> Result<Self, BadSections> {
        check(bytes, known)?;
        Ok(Self(bytes.to_vec()))
    }

    /// The bytes of all sections, as they are written behind a body.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The body of the section with this tag.
    pub fn find(&self, tag: u8) -> Option<&[u8]> {
        find(&self.0, tag)
    }

    /// Puts a section in its place, or replaces it.
    pub fn put(&mut self, tag: u8, body: &[u8]) {
        let mut bytes = Vec::with_capacity(self.0.len() + body.len() + 4);
        let others = || each(&self.0).flatten();
        others()
            .filter(|(found, _)| *found < tag)
            .for_each(|section| push(&mut bytes, section));
        push(&mut bytes, (tag, body));
        others()
            .filter(|(found, _)| *found > tag)
            .for_each(|section| push(&mut bytes, section));
        self.0 = bytes;
    }

    /// Whether this version may use what they belong to: it knows all that must be known.
    ///
    /// # Errors
    /// The first that it does not know.
    pub fn check(&self, known: &[u8]) -> Result<(), BadSections> {
        check(&self.0, known)
    }
}

/// Checks sections that fill the rest of a body, without keeping them.
///
/// # Errors
/// As [`Sections::read`].
pub fn check(bytes: &[u8], known: &[u8]) -> Result<(), BadSections> {
    if bytes.is_empty() {
        return Ok(());
    }
    if bytes.len() > Sections::BYTES_MAX {
        return Err(BadSections::Malformed);
    }
    let mut last = None;
    for section in each(bytes) {
        let (tag, _) = section.ok_or(BadSections::Malformed)?;
        if last.is_some_and(|last| tag <= last) {
            return Err(BadSections::Order(tag));
        }
        if tag >= Sections::MUST_KNOW && !known.contains(&tag) {
            return Err(BadSections::Unknown(tag));
        }
        last = Some(tag);
    }
    Ok(())
}

/// The body of the section with this tag, in the bytes of sections.
pub fn find(bytes: &[u8], tag: u8) -> Option<&[u8]> {
    each(bytes)
        .flatten()
        .find(|(found, _)| *found == tag)
        .map(|(_, body)| body)
}

/// Appends a section. The tags of those before it are lower.
pub fn push(to: &mut Vec<u8>, (tag, body): (u8, &[u8])) {
    to.push(tag);
    varint::push(to, body.len() as u64);
    to.extend_from_slice(body);
}

/// The sections in order. `None`, and then no more: what follows is none.
fn each(bytes: &[u8]) -> impl Iterator<Item = Option<(u8, &[u8])>> {
    let mut r = Reader(bytes);
    core::iter::from_fn(move || {
        if r.0.is_empty() {
            return None;
        }
        let section = next(&mut r);
        if section.is_none() {
            r.0 = &[];
        }
        Some(section)
    })
}

fn next<'a>(r: &mut Reader<'a>) -> Option<(u8, &'a [u8])> {
    let (tag, length) = (r.u8()?, r.varint_u32()? as usize);
    Some((tag, r.bytes(length)?))
}

impl Serialize for Sections {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

/// Well-formed sections come back as they were, also those that must be known and are not: who uses what they belong to
/// asks [`Sections::check`], and can say which one is strange.
impl<'de> Deserialize<'de> for Sections {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let bytes: &[u8] = Deserialize::deserialize(from)?;
        match check(bytes, &ALL) {
            Ok(()) => Ok(Self(bytes.to_vec())),
            Err(bad) => Err(D::Error::custom(bad)),
        }
    }
}

/// All tags that must be known.
const ALL: [u8; 128] = {
    let mut all = [0; 128];
    let mut at = 0;
    while at < all.len() {
        all[at] = Sections::MUST_KNOW + at as u8;
        at += 1;
    }
    all
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strange_section_is_kept_and_one_that_must_be_known_is_refused_by_name() {
        let mut sections = Sections::none();
        sections.put(200, b"must");
        sections.put(7, b"may");
        sections.put(9, &[1; 300]);
        sections.put(7, b"may!");
        assert_eq!(sections.find(7), Some(&b"may!"[..]));
        assert_eq!(sections.find(9).map(<[u8]>::len), Some(300));
        assert_eq!(sections.find(8), None);
        assert_eq!(sections.check(&[200]), Ok(()));
        assert_eq!(sections.check(&[201]), Err(BadSections::Unknown(200)));
        assert!(BadSections::Unknown(200).to_string().contains("section 200"));
        assert_eq!(Sections::read(sections.bytes(), &[200]), Ok(sections.clone()));
        let carried = postcard::to_allocvec(&sections).unwrap();
        assert_eq!(postcard::from_bytes::<Sections>(&carried), Ok(sections));
    }

    #[test]
    fn sections_that_are_cut_or_out_of_order_are_refused() {
        let mut sections = Sections::none();
        sections.put(1, b"one");
        sections.put(2, b"");
        let whole = sections.bytes();
        for cut in 0..=whole.len() {
            assert_eq!(
                check(&whole[..cut], &[]).is_ok(),
                [0, 5, 7].contains(&cut),
                "cut at {cut}"
            );
        }
        assert_eq!(check(&[2, 0, 1, 0], &[]), Err(BadSections::Order(1)));
        assert_eq!(check(&[2, 0, 2, 0], &[]), Err(BadSections::Order(2)));
        assert_eq!(check(&[1, 0x80, 0], &[]), Err(BadSections::Malformed));
        assert_eq!(
            check(&[1, 0xff, 0xff, 0xff, 0xff, 0xff], &[]),
            Err(BadSections::Malformed)
        );
        let mut long = Sections::none();
        long.put(1, &vec![0; Sections::BYTES_MAX]);
        assert_eq!(long.check(&[]), Err(BadSections::Malformed));
        // Carried in a record too.
        let carried = postcard::to_allocvec(&Sections(vec![2, 0, 1, 0])).unwrap();
        assert!(postcard::from_bytes::<Sections>(&carried).is_err());
    }
}
