//! `Latency`: the median time of the last answers.

use paritas_base::Span;

/// Answers that are remembered.
const SAMPLES: usize = 64;

/// The times of the last answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latency {
    samples: Vec<Span>,
    next: usize,
}

impl Latency {
    pub(crate) fn add(&mut self, took: Span) {
        if self.samples.len() < SAMPLES {
            self.samples.push(took);
        } else {
            self.samples[self.next] = took;
        }
        self.next = (self.next + 1) % SAMPLES;
    }

    /// 0 if nothing was answered yet.
    pub(crate) fn median(&self) -> Span {
        let mut sorted = self.samples.clone();
        sorted.sort();
        sorted.get(sorted.len() / 2).copied().unwrap_or(Span(0))
    }
}
