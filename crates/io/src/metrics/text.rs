//! The text of Prometheus, format 0.0.4.

use std::fmt::{Display, Write};

/// Most bytes of a text. Samples beyond it are left out and counted.
const BYTES_MAX: usize = 8 << 20;

/// How a figure changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It only grows, or begins again at 0.
    Counter,
    /// It has any value.
    Gauge,
}

/// A text under construction: a family, then its samples, then the next family.
#[derive(Debug)]
pub struct Text {
    text: String,
    /// Name of the family.
    name: &'static str,
    bytes_max: usize,
    omitted: u64,
}

impl Default for Text {
    fn default() -> Self {
        Self::new()
    }
}

impl Text {
    /// Without families yet.
    pub fn new() -> Self {
        Self::with_limit(BYTES_MAX)
    }

    fn with_limit(bytes_max: usize) -> Self {
        Self {
            text: String::new(),
            name: "",
            bytes_max,
            omitted: 0,
        }
    }

    /// Begins a family. `name` and `help` are one line of ASCII, without backslashes.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.name = name;
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a sample of the family. Values of labels may be any text.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        let length = self.text.len();
        self.text.push_str(self.name);
        for (at, (name, value)) in labels.iter().enumerate() {
            self.text.push(if at == 0 { '{' } else { ',' });
            self.text.push_str(name);
            self.text.push_str("=\"");
            for letter in value.chars() {
                match letter {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    letter => self.text.push(letter),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        // As above.
        let _ = writeln!(self.text, " {value}");
        if self.text.len() > self.bytes_max {
            self.text.truncate(length);
            self.omitted += 1;
        }
    }

    /// The whole text.
    pub fn end(mut self) -> String {
        let omitted = self.omitted;
        self.bytes_max = usize::MAX;
        let help = "Samples that are missing here because the text would be too long.";
        self.family("paritas_metrics_omitted", Kind::Gauge, help);
        self.sample(&[], omitted);
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = Text::new();
        text.family("a_total", Kind::Counter, "What a is.");
        text.sample(&[("x", "a\\b\"c\nd"), ("y", "z")], 7);
        text.family("b", Kind::Gauge, "What b is.");
        text.sample(&[], 0.5);
        let expected = "# HELP a_total What a is.\n# TYPE a_total counter\na_total{x=\"a\\\\b\\\"c\\nd\",y=\"z\"} 7\n\
            # HELP b What b is.\n# TYPE b gauge\nb 0.5\n";
        assert!(text.end().starts_with(expected));
    }

    #[test]
    fn samples_beyond_the_limit_are_left_out_and_counted() {
        let mut text = Text::with_limit(200);
        text.family("a", Kind::Gauge, "What a is.");
        for n in 0..100 {
            text.sample(&[("n", &n.to_string())], n);
        }
        let text = text.end();
        assert!(text.len() < 400 && text.contains("a{n=\"3\"} 3\n"), "{text}");
        let kept = text.lines().filter(|line| line.starts_with("a{")).count();
        assert!(
            text.ends_with(&format!("paritas_metrics_omitted {}\n", 100 - kept)),
            "{text}"
        );
    }
}
