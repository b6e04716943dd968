//! `Latency`: the median time of the last answers.

use paritas_base::Span;

/// Answers that are remembered.
const SAMPLES: usize = 64;

/// The times of the last answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latency {
    samples: Vec<Span>,
    next: usize,
    /// Asked for more often than a time is added.
    median: Span,
}

impl Latency {
    pub(crate) fn add(&mut self, took: Span) {
        if self.samples.len() < SAMPLES {
            self.samples.push(took);
        } else {
            self.samples[self.next] = took;
        }
        self.next = (self.next + 1) % SAMPLES;
        let mut samples = [Span(0); SAMPLES];
        let samples = &mut samples[..self.samples.len()];
        samples.copy_from_slice(&self.samples);
        self.median = *samples.select_nth_unstable(samples.len() / 2).1;
    }

    /// 0 if nothing was answered yet.
    pub(crate) fn median(&self) -> Span {
        self.median
    }
}
