//! `Writer`: makes the parts of a value from its bytes, as they come (online-EC §IV-B, the server's encoder).
//!
//! It does no I/O. The host gives it bytes, sends the units that it hands out, and tells it what the holders answer. It
//! holds one unit and one accumulator for each parity block, whatever the length of the value. A unit leaves as soon as
//! it is whole, so that coding and sending overlap.

use crate::{Content, Layout, Part, Placement};
use core::fmt;
use paritas_code::{Code, Scheme, crc32c_append, sum};

/// Units of one part that may be on their way to its holder.
pub const UNTAKEN_MAX: u32 = 8;

/// Writes one value.
#[derive(Debug)]
pub struct Writer {
    layout: Layout,
    placement: Placement,
    parts: Vec<Progress>,
    code: Option<Code>,
    /// The next unit of the body.
    next: u32,
    /// Its bytes so far.
    unit: Vec<u8>,
    /// The parity units of the row so far.
    parity: Vec<Vec<u8>>,
    /// The checks that the record will have.
    checks: Vec<u32>,
}

/// How far one part is.
#[derive(Debug)]
struct Progress {
    part: Part,
    sent: u32,
    taken: u32,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Open,
    Kept,
    Broken,
    /// It was written before: its data group stays.
    There,
}

/// Too many parts are broken: what is left does not give back the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteFailed;

impl fmt::Display for WriteFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many nodes of the stripe list were lost while the value was written")
    }
}

impl core::error::Error for WriteFailed {}

impl Writer {
    /// Writes a body of this layout to these parts.
    ///
    /// # Panics
    /// If layout and placement are of different numbers of data blocks.
    pub fn new(layout: Layout, placement: Placement) -> Self {
        let class = placement.class();
        assert_eq!(layout.data(), class.data(), "layout and placement are of one class");
        let parity = usize::from(class.parity());
        let code = Scheme::new(class.data(), class.parity())
            .ok()
            .filter(|_| parity > 0)
            .map(Code::new);
        Self {
            layout,
            placement,
            parts: placement.parts().map(Progress::new).collect(),
            code,
            next: 0,
            unit: Vec::new(),
            parity: vec![Vec::new(); parity],
            checks: vec![0; crate::Record::checks_of(class)],
        }
    }

    /// Takes the next bytes of the body and calls `send` with part number (in the order of [`Placement::parts`]), unit
    /// number and bytes, for each unit to be sent. Returns how many of the bytes it took: all, unless a holder is
    /// behind. Call it again, with the rest or nothing, after [`Self::on_taken`].
    pub fn push(&mut self, bytes: &[u8], mut send: impl FnMut(usize, u32, &[u8])) -> usize {
        let mut rest = bytes;
        while self.next < self.layout.units() && self.may_send() {
            let range = self.layout.unit_range(self.next);
            let missing = (range.end - range.start) as usize - self.unit.len();
            let Some((now, later)) = rest.split_at_checked(missing) else {
                self.unit.extend_from_slice(rest);
                rest = &[];
                break;
            };
            rest = later;
            let padded = self.layout.row_unit_bytes(self.row()) as usize;
            if now.len() == padded {
                self.emit(now, &mut send);
            } else {
                let mut unit = core::mem::take(&mut self.unit);
                unit.extend_from_slice(now);
                unit.resize(padded, 0);
                self.emit(&unit, &mut send);
                unit.clear();
                self.unit = unit;
            }
        }
        bytes.len() - rest.len()
    }

    /// Bytes of the body that are still to come.
    pub fn missing_bytes(&self) -> u64 {
        if self.next >= self.layout.units() {
            return 0;
        }
        self.layout.body_bytes() - self.layout.unit_range(self.next).start - self.unit.len() as u64
    }

    /// A holder has taken the first `units` units of a part.
    pub fn on_taken(&mut self, part: usize, units: u32) {
        if let Some(progress) = self.parts.get_mut(part) {
            progress.taken = units.clamp(progress.taken, progress.sent);
        }
    }

    /// A holder has all units of a part, with this check. The part is broken if the check differs.
    pub fn on_kept(&mut self, part: usize, check: u32) {
        let is_whole = self.is_part_sent(part);
        let Some(wanted) = self
            .parts
            .get(part)
            .map(|progress| self.check_of(progress.part.content))
        else {
            return;
        };
        let progress = &mut self.parts[part];
        if progress.state == State::Open {
            progress.taken = progress.sent;
            progress.state = if is_whole && check == wanted {
                State::Kept
            } else {
                State::Broken
            };
        }
    }

    /// A part is there already: nothing is sent to it.
    pub fn on_there(&mut self, part: usize) {
        if let Some(progress) = self.parts.get_mut(part) {
            progress.state = State::There;
        }
    }

    /// A part will not be whole: its holder is lost or has no free memory, or a unit has not arrived. No more is sent
    /// to it.
    pub fn on_broken(&mut self, part: usize) {
        if let Some(progress) = self.parts.get_mut(part) {
            progress.state = State::Broken;
        }
    }

    /// Whether all units have been handed out.
    pub fn is_sent(&self) -> bool {
        self.next >= self.layout.units()
    }

    /// Whether every part is kept or broken, after the whole body. An error if the parts that are not broken do not
    /// give back the value; then nothing more need be sent.
    pub fn is_done(&self) -> Result<bool, WriteFailed> {
        let is_broken = |part: &Part| {
            let found = self.parts.iter().find(|progress| progress.part == *part);
            found.is_none_or(|progress| progress.state == State::Broken)
        };
        if !self.placement.is_readable(|part| !is_broken(part)) {
            return Err(WriteFailed);
        }
        Ok(self.is_sent() && self.parts.iter().all(|progress| progress.state != State::Open))
    }

    /// The broken parts: to be made from the others.
    pub fn broken(&self) -> impl Iterator<Item = Part> {
        self.parts
            .iter()
            .filter(|progress| progress.state == State::Broken)
            .map(|progress| progress.part)
    }

    /// Whether a part is neither kept nor broken, and units are sent to it.
    pub(crate) fn is_open(&self, part: usize) -> bool {
        self.is_in(part, State::Open)
    }

    /// Whether a part is broken.
    pub(crate) fn is_broken(&self, part: usize) -> bool {
        self.is_in(part, State::Broken)
    }

    fn is_in(&self, part: usize, state: State) -> bool {
        self.parts.get(part).is_some_and(|progress| progress.state == state)
    }

    /// Number of units of a part that have been handed out.
    pub(crate) fn sent_units(&self, part: usize) -> u32 {
        self.parts.get(part).map_or(0, |progress| progress.sent)
    }

    /// Whether all units of a part have been handed out, so that its check is final.
    fn is_part_sent(&self, part: usize) -> bool {
        let sent = |progress: &Progress| progress.sent == self.units_of(progress.part.content);
        self.parts.get(part).is_some_and(sent)
    }

    /// Number of units of a part with this content.
    fn units_of(&self, content: Content) -> u32 {
        content.units(&self.layout)
    }

    /// The checks for the record. They are final once [`Self::is_sent`].
    pub fn checks(&self) -> &[u32] {
        &self.checks
    }

    /// Bytes that it holds.
    pub fn held_bytes(&self) -> usize {
        self.unit.capacity() + self.parity.iter().map(Vec::capacity).sum::<usize>()
    }

    fn row(&self) -> u32 {
        self.next / u32::from(self.layout.data())
    }

    fn is_last_of_row(&self) -> bool {
        (self.next + 1).is_multiple_of(u32::from(self.layout.data()))
    }

    /// Whether the next unit fits the windows of all its holders.
    fn may_send(&self) -> bool {
        self.parts.iter().all(|progress| {
            let goes_there = match progress.part.content {
                Content::Parity(_) => self.is_last_of_row(),
                content => content.has(&self.layout, self.next).is_some(),
            };
            !goes_there || progress.state != State::Open || progress.sent - progress.taken < UNTAKEN_MAX
        })
    }

    fn emit(&mut self, unit: &[u8], send: &mut impl FnMut(usize, u32, &[u8])) {
        let block = (self.next % u32::from(self.layout.data())) as u8;
        let unit_sum = self.sum_of(unit);
        let next = self.next;
        let layout = self.layout;
        self.deliver(unit, |content| content.has(&layout, next), send);
        self.add_to_check(Content::Block(block), unit_sum);
        if self.placement.class().data() < self.checks.len() as u8 && self.parity.is_empty() {
            self.add_to_check(Content::Whole, unit_sum);
        }
        if let Some(code) = &self.code {
            for accumulator in &mut self.parity {
                accumulator.resize(unit.len(), 0);
            }
            let mut accumulators: Vec<&mut [u8]> = self.parity.iter_mut().map(Vec::as_mut_slice).collect();
            code.encode_from(block, unit, &mut accumulators);
        }
        if self.is_last_of_row() {
            let row = self.row();
            let mut parity = core::mem::take(&mut self.parity);
            for (j, accumulator) in (0..).zip(&mut parity) {
                let content = Content::Parity(j);
                self.deliver(accumulator, |c| (c == content).then_some(row), send);
                self.add_to_check(content, self.sum_of(accumulator));
                accumulator.clear();
            }
            self.parity = parity;
        }
        self.next += 1;
    }

    /// Sends a unit to all parts whose content has it. A part has its units in order.
    fn deliver(
        &mut self,
        unit: &[u8],
        number: impl Fn(Content) -> Option<u32>,
        send: &mut impl FnMut(usize, u32, &[u8]),
    ) {
        for (at, progress) in self.parts.iter_mut().enumerate() {
            if let Some(number) = number(progress.part.content) {
                debug_assert!(progress.state != State::Kept);
                if progress.state == State::Open {
                    debug_assert_eq!(progress.sent, number, "units of a part are sent in order");
                    progress.sent = number + 1;
                    send(at, number, unit);
                }
            }
        }
    }

    /// The sum of a unit as its holder has it: in a chunk, with zeros after it.
    fn sum_of(&self, unit: &[u8]) -> u32 {
        sum::of_extent(self.layout.unit_bytes() as usize, 0, unit)
    }

    fn check_at(&self, content: Content) -> usize {
        match content {
            Content::Block(i) => usize::from(i),
            Content::Parity(j) => usize::from(self.layout.data()) + usize::from(j),
            Content::Whole => self.checks.len() - 1,
        }
    }

    fn check_of(&self, content: Content) -> u32 {
        self.checks[self.check_at(content)]
    }

    fn add_to_check(&mut self, content: Content, unit_sum: u32) {
        let at = self.check_at(content);
        self.checks[at] = crc32c_append(self.checks[at], &unit_sum.to_le_bytes());
    }
}

impl Progress {
    fn new(part: Part) -> Self {
        Self {
            part,
            sent: 0,
            taken: 0,
            state: State::Open,
        }
    }
}
