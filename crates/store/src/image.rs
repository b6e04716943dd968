//! Objects that are not in a stream: those that a draft will put there.

use crate::object::{Head, Object, Value};
use crate::{Arena, ObjectStore};

/// An object outside the stream. It is read like one of the stream. Its value may be longer than one in a stream.
#[derive(Clone, Debug)]
pub struct Image {
    /// The object as a chunk would have it, in one piece.
    bytes: Vec<u8>,
    head: Head,
}

impl Image {
    /// That of a key with a value.
    pub fn new(database: u8, key: &[u8], value: &Value<'_>) -> Self {
        let mut bytes = Vec::with_capacity(value.head_bytes(database, key.len(), 0) + value.bytes.len());
        value.encode_head(database, key, core::iter::empty(), &mut bytes);
        let head = Head::of(value, database, key.len(), bytes.len());
        bytes.extend_from_slice(value.bytes);
        Self { bytes, head }
    }

    /// The object, as a command reads it.
    pub fn object<'a>(&'a self, store: &'a ObjectStore, arena: &'a Arena) -> Object<'a> {
        Object {
            chunks: store.chunks(),
            arena,
            chunk: &self.bytes,
            head: self.head,
            offset_bits: 0,
        }
    }

    /// Its key.
    pub fn key(&self) -> &[u8] {
        self.head.key(&self.bytes)
    }

    /// Its value, to be stored.
    pub fn value(&self) -> Value<'_> {
        Value {
            bytes: self.head.body(&self.bytes),
            expiry_ms: self.head.expiry_ms(&self.bytes),
            flags: self.head.flags(&self.bytes),
            marks: self.head.marks(&self.bytes),
            hash_kind: self.head.is_hash(),
            record: self.head.record(&self.bytes).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Item, parse};

    #[test]
    fn an_image_has_the_bytes_and_the_parts_of_an_object_in_a_chunk() {
        let (key, long_key) = (b"key".as_slice(), vec![b'k'; 300]);
        for (database, key) in [(0, key), (0, &long_key), (15, key), (1, &long_key)] {
            for (expiry_ms, flags, marks, record) in [
                (None, None, 0, b"".as_slice()),
                (Some(77), None, 1, b""),
                (None, Some(5), 2, b"rec"),
                (Some(1 << 40), Some(9), 255, b"record"),
            ] {
                for bytes in [b"".as_slice(), b"value", &vec![b'v'; 20_000]] {
                    let value = Value {
                        bytes,
                        expiry_ms,
                        flags,
                        marks,
                        hash_kind: false,
                        record,
                    };
                    let image = Image::new(database, key, &value);
                    let Some(Item::Object(parsed)) = parse(&image.bytes, 0) else {
                        panic!("no object");
                    };
                    assert_eq!(parsed, image.head);
                    let again = image.value();
                    assert_eq!((again.bytes, again.expiry_ms, again.flags), (bytes, expiry_ms, flags));
                    assert_eq!((again.marks, again.record), (marks, record));
                    assert_eq!((image.head.database(), image.head.key(&image.bytes)), (database, key));
                }
            }
        }
    }
}
