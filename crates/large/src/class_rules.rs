//! `ClassRules`: which class a new value gets, by its key and length.

use crate::Class;
use core::fmt;
use core::str::FromStr;

/// Most rules of a node, and bytes of the prefix of one.
const RULES_MAX: usize = 64;
const PREFIX_BYTES_MAX: usize = 256;

/// Rules in the order in which they are tried: the first one that a value meets gives its class. A value that meets
/// none has the class of the cluster's scheme.
///
/// As text: `PREFIX* CLASS` or `PREFIX* CLASS BYTES`, separated by `;`. BYTES is the least length of the value, with
/// `kb`, `mb` or `gb`. Without `*` the rule is for one key.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ClassRules(Vec<Rule>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    prefix: String,
    /// For all keys with the prefix; otherwise only for the key itself.
    is_prefix: bool,
    bytes_min: u64,
    class: Class,
}

impl ClassRules {
    /// The class of a value of this key and length.
    pub fn class_of(&self, key: &[u8], value_bytes: u64) -> Option<Class> {
        let is_met = |rule: &&Rule| {
            let prefix = rule.prefix.as_bytes();
            value_bytes >= rule.bytes_min
                && match rule.is_prefix {
                    true => key.starts_with(prefix),
                    false => key == prefix,
                }
        };
        self.0.iter().find(is_met).map(|rule| rule.class)
    }

    /// All classes that the rules name.
    pub fn classes(&self) -> impl Iterator<Item = Class> + '_ {
        self.0.iter().map(|rule| rule.class)
    }
}

impl fmt::Display for ClassRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, rule) in self.0.iter().enumerate() {
            let (between, star) = (if n > 0 { "; " } else { "" }, if rule.is_prefix { "*" } else { "" });
            write!(f, "{between}{}{star} {}", rule.prefix, rule.class)?;
            if rule.bytes_min > 0 {
                write!(f, " {}", rule.bytes_min)?;
            }
        }
        Ok(())
    }
}

impl FromStr for ClassRules {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rules = text.split(';').map(str::trim).filter(|rule| !rule.is_empty());
        let rules = rules.map(rule).collect::<Result<Vec<_>, _>>()?;
        match rules.len() > RULES_MAX {
            true => Err(format!("{} rules: at most {RULES_MAX} are possible", rules.len())),
            false => Ok(Self(rules)),
        }
    }
}

fn rule(text: &str) -> Result<Rule, String> {
    let shown: String = text.chars().take(60).collect();
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let (pattern, class, bytes) = match words[..] {
        [pattern, class] => (pattern, class, None),
        [pattern, class, bytes] => (pattern, class, Some(bytes)),
        _ => {
            return Err(format!(
                "{shown:?} is not a rule: expected PREFIX* CLASS or PREFIX* CLASS BYTES"
            ));
        }
    };
    let (prefix, is_prefix) = match pattern.strip_suffix('*') {
        Some(prefix) => (prefix, true),
        None => (pattern, false),
    };
    if prefix.contains(|c: char| c == '*' || c.is_control()) || prefix.len() > PREFIX_BYTES_MAX {
        return Err(format!(
            "{shown:?}: a prefix has at most {PREFIX_BYTES_MAX} bytes, `*` only at its end, and no control characters"
        ));
    }
    let bytes_min = bytes
        .map_or(Some(0), size)
        .ok_or_else(|| format!("{shown:?}: the least length must be a number of bytes, as in 1048576, 64kb or 1mb"))?;
    Ok(Rule {
        prefix: prefix.to_owned(),
        is_prefix,
        bytes_min,
        class: class.parse()?,
    })
}

fn size(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &lower[digits.len()..] {
        "" | "b" => 0,
        "kb" => 10,
        "mb" => 20,
        "gb" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> ClassRules {
        text.parse().expect("rules")
    }

    #[test]
    fn the_first_rule_that_is_met_gives_the_class() {
        let rules = rules("img:* eor:3,4 1mb; img:* rep:3; one ec:2,2");
        let class = |key: &str, bytes| rules.class_of(key.as_bytes(), bytes).map(|class| class.to_string());
        assert_eq!(class("img:7", 1 << 20).as_deref(), Some("eor:3,4"));
        assert_eq!(class("img:7", (1 << 20) - 1).as_deref(), Some("rep:3"));
        assert_eq!(class("one", 5).as_deref(), Some("ec:2,2"));
        assert_eq!(class("one more", 5), None);
        assert_eq!(class("im", 5), None);
        assert_eq!(ClassRules::default().class_of(b"img:7", 5), None);
    }

    #[test]
    fn rules_and_their_text_agree() {
        for text in ["", "* rep:3", "img:* eor:3,4 1048576; one ec:2,2"] {
            assert_eq!(rules(text).to_string(), text);
        }
        assert_eq!(rules(" ;a*  rep:3  1mb ; ").to_string(), "a* rep:3 1048576");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("img:*", "is not a rule: expected PREFIX* CLASS"),
            ("img:* rep:3 1mb more", "is not a rule"),
            ("img:* raid:5", "is not a redundancy class"),
            ("a*b* rep:3", "`*` only at its end"),
            ("a\u{7f}* rep:3", "no control characters"),
            ("img:* rep:3 big", "must be a number of bytes"),
            ("img:* rep:3 99999999999gb", "must be a number of bytes"),
        ] {
            let error = text.parse::<ClassRules>().expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
        let many = "a* rep:3;".repeat(RULES_MAX + 1);
        assert!(many.parse::<ClassRules>().expect_err("too many").contains("at most 64"));
        let long = format!("{}* rep:3", "a".repeat(PREFIX_BYTES_MAX + 1));
        assert!(
            long.parse::<ClassRules>()
                .expect_err("too long")
                .contains("at most 256")
        );
    }
}
