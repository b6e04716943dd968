//! Hash slots as in Redis Cluster: CRC16 (XMODEM) of the key, or of its hash tag. Keys that a rule of `one_slot` names
//! have the slot of the rule.

use paritas_base::one_slot::{OneSlot, Rule};
use paritas_base::{DATABASES, SLOT_COUNT};

/// `TABLES[n]`: CRC16, polynomial 0x1021, of each byte followed by `n` zero bytes. Eight tables process eight bytes at
/// a time. One byte at a time is a chain of dependent loads and takes 2 ns a byte.
static TABLES: [[u16; 256]; 8] = {
    let mut tables = [[0u16; 256]; 8];
    let mut byte = 0;
    #[expect(clippy::indexing_slicing, reason = "at compile time")]
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut step = 0;
        while step < 64 {
            crc = (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
            step += 1;
            if step % 8 == 0 {
                tables[step / 8 - 1][byte] = crc;
            }
        }
        byte += 1;
    }
    tables
};

const _: () = assert!(SLOT_COUNT.is_power_of_two());

/// The hash slot of a key. Keys with the same hash tag have the same slot. The hash tag is the first `{…}`, unless it
/// is empty.
#[inline]
pub fn slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) & (SLOT_COUNT - 1)
}

/// The hash slots of a cluster's keys.
#[derive(Clone, Default, Debug)]
pub struct KeySlots {
    rules: Vec<(Rule, u16)>,
}

impl KeySlots {
    /// With these rules.
    pub fn new(one_slot: &OneSlot) -> Self {
        let slot_of = |rule: &Rule| match rule {
            Rule::Database(_) => slot(rule.to_string().as_bytes()),
            Rule::Prefix(prefix) => slot(prefix.as_bytes()),
        };
        let rules = one_slot.rules().iter();
        Self {
            rules: rules.map(|rule| (rule.clone(), slot_of(rule))).collect(),
        }
    }

    /// The slot of a key of a database. Hidden databases have no rules.
    #[inline]
    pub fn slot(&self, database: u8, key: &[u8]) -> u16 {
        match self.rules.is_empty() {
            true => slot(key),
            false => self.ruled(database, key).unwrap_or_else(|| slot(key)),
        }
    }

    fn ruled(&self, database: u8, key: &[u8]) -> Option<u16> {
        let matches = |(rule, _): &&(Rule, u16)| match rule {
            Rule::Database(of) => *of == database,
            Rule::Prefix(prefix) => key.starts_with(prefix.as_bytes()),
        };
        let rule = self.rules.iter().find(matches).filter(|_| database < DATABASES);
        rule.map(|(_, slot)| *slot)
    }
}

/// The work for the slot of a key, in steps of a turn's budget.
pub const fn slot_steps(key: &[u8]) -> u64 {
    key.len() as u64 / 2
}

#[inline]
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    if !may_contain_open(key) {
        return None;
    }
    let open = key.iter().position(|&byte| byte == b'{')?;
    let tail = key.get(open + 1..)?;
    let close = tail.iter().position(|&byte| byte == b'}')?;
    tail.get(..close).filter(|tag| !tag.is_empty())
}

/// Whether the key may contain a `{`. Few keys do; eight bytes are tested at once.
#[inline]
fn may_contain_open(key: &[u8]) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = ONES << 7;
    let (words, rest) = key.as_chunks::<8>();
    let zero_bytes = |word: &[u8; 8]| {
        let differs = u64::from_le_bytes(*word) ^ (ONES * b'{' as u64);
        differs.wrapping_sub(ONES) & !differs & HIGH
    };
    words.iter().fold(0, |found, word| found | zero_bytes(word)) != 0 || rest.contains(&b'{')
}

#[inline]
#[expect(clippy::indexing_slicing, reason = "a byte is always below 256")]
fn crc16(bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<8>();
    let crc = words.iter().fold(0u16, |crc, word| {
        let [a, b, c, d, e, f, g, h] = word.map(usize::from);
        let [high, low] = crc.to_be_bytes().map(usize::from);
        let early = TABLES[7][a ^ high] ^ TABLES[6][b ^ low] ^ TABLES[5][c] ^ TABLES[4][d];
        early ^ TABLES[3][e] ^ TABLES[2][f] ^ TABLES[1][g] ^ TABLES[0][h]
    });
    rest.iter().fold(crc, |crc, &byte| {
        (crc << 8) ^ TABLES[0][usize::from((crc >> 8) as u8 ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    use super::{KeySlots, crc16, slot};
    use paritas_base::HIDDEN_DATABASE;
    use paritas_base::one_slot::OneSlot;

    #[test]
    fn crc16_is_xmodem() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        // Compared with a bitwise computation, for every length around a word.
        let key: Vec<u8> = (0..40u16).map(|n| (n * 37 % 251) as u8).collect();
        for length in 0..key.len() {
            let slow = key[..length].iter().fold(0u16, |crc, &byte| {
                (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
                    (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
                })
            });
            assert_eq!(crc16(&key[..length]), slow, "{length}");
        }
    }

    #[test]
    fn slots_are_those_of_redis_cluster() {
        assert_eq!(slot(b"123456789"), 12_739);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"bar"), 5_061);
        assert_eq!(slot(b""), 0);
    }

    #[test]
    fn the_first_hash_tag_with_something_in_it_decides() {
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        // These have no hash tag: it is empty, or it has no end.
        assert_ne!(slot(b"foo{}{bar}"), slot(b"bar"));
        assert_ne!(slot(b"foo{bar"), slot(b"bar"));
        // The tag may be anywhere in a long key.
        for before in 0..20 {
            let key = ["x".repeat(before), "{tag}".to_owned(), "y".repeat(9)].concat();
            assert_eq!(slot(key.as_bytes()), slot(b"tag"));
        }
    }

    #[test]
    fn the_first_rule_that_matches_gives_the_slot() {
        let one_slot: OneSlot = "prefix:bull:,db:1,prefix:{a}".parse().unwrap();
        let slots = KeySlots::new(&one_slot);
        for (database, key, wanted) in [
            (0, "bull:{x}:1", "bull:"),
            (1, "bull:2", "bull:"),
            (1, "other", "db:1"),
            (1, "{a}b", "db:1"),
            (0, "{a}b", "a"),
            (0, "other", "other"),
            (2, "bul", "bul"),
            (HIDDEN_DATABASE, "bull:", "bull:"),
            (HIDDEN_DATABASE, "bull:1", "bull:1"),
        ] {
            let found = slots.slot(database, key.as_bytes());
            assert_eq!(found, slot(wanted.as_bytes()), "{database} {key}");
        }
        assert_eq!(KeySlots::default().slot(1, b"other"), slot(b"other"));
    }
}
