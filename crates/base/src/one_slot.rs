//! Keys that lie in one hash slot together, whatever their hash tags: those of a database, or with a prefix. Commands
//! of several keys, transactions and scripts then reach all of them. It is chosen when the cluster is made.

use crate::{DATABASES, Sections};
use core::fmt;
use core::str::FromStr;

/// The section of the plan and of the cluster's record that has the rules, as text. Who does not know it would look for
/// keys elsewhere.
pub const SECTION: u8 = 129;
/// The most rules. Each key is compared with all prefixes.
pub const RULES_MAX: usize = 16;
/// The longest prefix in bytes.
pub const PREFIX_BYTES_MAX: usize = 200;

/// Which keys lie together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Those of a database.
    Database(u8),
    /// Those that begin so, in any database. It has no comma.
    Prefix(String),
}

/// Rules in order: the first that matches a key counts. As text they have commas between them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct OneSlot(Vec<Rule>);

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let database = |text: &str| text.parse().ok().filter(|database| *database < DATABASES);
        let has_length = |prefix: &&str| (1..=PREFIX_BYTES_MAX).contains(&prefix.len());
        match text.split_once(':') {
            Some(("db", number)) => database(number).map(Self::Database),
            Some(("prefix", prefix)) => Some(prefix).filter(has_length).map(|text| Self::Prefix(text.into())),
            _ => None,
        }
        .ok_or_else(|| {
            format!(
                "`{text}` is no rule: use db:N, for a database from 0 to {}, or prefix:TEXT, with 1 to \
                 {PREFIX_BYTES_MAX} bytes",
                DATABASES - 1
            )
        })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database(database) => write!(f, "db:{database}"),
            Self::Prefix(prefix) => write!(f, "prefix:{prefix}"),
        }
    }
}

impl FromStr for OneSlot {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let texts = text.split(',').filter(|_| !text.is_empty());
        let mut rules: Vec<Rule> = Vec::new();
        for rule in texts {
            let rule = rule.parse()?;
            if rules.contains(&rule) {
                return Err(format!("`{rule}` is there twice"));
            }
            if rules.len() == RULES_MAX {
                return Err(format!("there are more than {RULES_MAX} rules"));
            }
            rules.push(rule);
        }
        Ok(Self(rules))
    }
}

impl fmt::Display for OneSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, rule) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{rule}")?;
        }
        Ok(())
    }
}

impl OneSlot {
    /// All rules.
    pub fn rules(&self) -> &[Rule] {
        &self.0
    }

    /// Writes them, if there are any.
    pub fn put(&self, more: &mut Sections) {
        if !self.0.is_empty() {
            more.put(SECTION, self.to_string().as_bytes());
        }
    }

    /// Those that were written.
    ///
    /// # Errors
    /// If they are damaged.
    pub fn of(more: &Sections) -> Result<Self, String> {
        let text = core::str::from_utf8(more.find(SECTION).unwrap_or_default());
        let text = text.map_err(|_| "one_slot: it is no text".to_owned())?;
        text.parse().map_err(|why| format!("one_slot: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_were_written() {
        for text in ["", "db:1", "db:0,db:15,prefix:bull:,prefix:ü"] {
            let written: OneSlot = text.parse().unwrap();
            let mut more = Sections::none();
            written.put(&mut more);
            assert_eq!(OneSlot::of(&more), Ok(written));
            assert_eq!(more == Sections::none(), text.is_empty());
        }
    }

    #[test]
    fn what_is_no_rule_is_refused_with_what_one_is() {
        let long = format!("prefix:{}", "x".repeat(PREFIX_BYTES_MAX + 1));
        for bad in [
            "db", "db:", "db:16", "db:-1", "db:1 ", "db:1,", ",", "prefix:", "Prefix:a", "1", &long,
        ] {
            let why = bad.parse::<OneSlot>().unwrap_err();
            assert!(why.contains("db:N") && why.contains("prefix:TEXT"), "{why}");
        }
        let twice = "db:1,prefix:a,db:1".parse::<OneSlot>();
        assert_eq!(twice, Err("`db:1` is there twice".to_owned()));
        let many: Vec<String> = (0..=RULES_MAX).map(|n| format!("prefix:{n}")).collect();
        let many = many.join(",").parse::<OneSlot>();
        assert_eq!(many, Err("there are more than 16 rules".to_owned()));
    }

    #[test]
    fn damaged_rules_are_refused() {
        for body in [&b"db:99"[..], b"\xff"] {
            let mut more = Sections::none();
            more.put(SECTION, body);
            assert!(OneSlot::of(&more).unwrap_err().starts_with("one_slot: "));
        }
    }
}
