//! The data stripes, or the index stripes, of a parity table: a state, versions and sums by stripe number.

use super::State;
use paritas_base::Version;
use paritas_store::grow_table;

#[derive(Debug, Default)]
pub(super) struct Half {
    pub(super) states: Vec<State>,
    /// `k` versions a stripe.
    pub(super) versions: Vec<Version>,
    /// `k` sums a stripe.
    pub(super) sums: Vec<u32>,
}

impl Half {
    pub(super) fn state(&self, number: u32) -> State {
        self.states.get(number as usize).copied().unwrap_or(State::Untouched)
    }

    /// Number of stripes from `first` on that will use a chunk and do not yet.
    pub(super) fn awaited_from(&self, first: u32) -> u32 {
        let rest = self.states.get(first as usize..).unwrap_or_default();
        rest.iter()
            .filter(|state| state.is_held() && !state.has_place())
            .count() as u32
    }

    /// Number of stripes from `first` to `end` that use no chunk and will not.
    pub(super) fn unused(&self, first: u32, end: u32) -> u32 {
        let known = (self.states.len() as u32).clamp(first, end.max(first));
        let unused = (first..known).filter(|number| !self.state(*number).is_held()).count();
        unused as u32 + end.max(first) - known
    }

    /// The largest end, up to `end`, such that at most `unused` stripes from `first` to it use no chunk and will not.
    pub(super) fn reach(&self, first: u32, end: u32, mut unused: u32) -> u32 {
        let known = (self.states.len() as u32).min(end);
        for number in first..known {
            if !self.state(number).is_held() {
                let Some(left) = unused.checked_sub(1) else {
                    return number;
                };
                unused = left;
            }
        }
        first.max(known).saturating_add(unused).min(first.max(end))
    }

    /// Number of stripes from `first` to `end` that use no chunk.
    pub(super) fn without_place(&self, first: u32, end: u32) -> u32 {
        let known = (self.states.len() as u32).min(end);
        let placed = (first..known).filter(|number| self.state(*number).has_place()).count();
        end - first - placed as u32
    }

    /// Number of stripes that use a chunk.
    pub(super) fn placed(&self) -> u32 {
        self.states.iter().filter(|state| state.has_place()).count() as u32
    }

    /// Makes space for the entry of a number; gives its index.
    pub(super) fn grow(&mut self, number: u32, k: usize) -> usize {
        let at = number as usize;
        if at >= self.states.len() {
            grow_table(&mut self.states, at + 1);
            grow_table(&mut self.versions, (at + 1) * k);
            grow_table(&mut self.sums, (at + 1) * k);
            self.states.resize(at + 1, State::Untouched);
            self.versions.resize((at + 1) * k, Version::ZERO);
            self.sums.resize((at + 1) * k, 0);
        }
        at
    }
}
