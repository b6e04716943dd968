//! Values that have lost more parts than their class bears (P14.11). Only classes that bear fewer losses than the
//! scheme can lose a value while the list is not lost. Its objects are removed: they cannot be read, and holders that
//! are to make their parts would never become Live.

use super::{Installed, Records, StreamOwner};
use crate::context::Context;
use crate::interface::{Channel, Out};
use crate::parts::{positions_in_memory, to_wire};
use crate::stream_owner::{Admission, Phase};
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{Epoch, Position, Span, Time};
use paritas_large::{GroupId, Placement, Record, WHOLE_PART};
use paritas_store::{Blocked, Object};
use paritas_wire::peer::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Values whose holders are asked at a time.
const ASKED_MAX: usize = 64;
/// Time until the holders are asked again while a position is not Live, in resends.
const AGAIN_RESENDS: u64 = 10;
/// Keys that one step of the search for objects looks at.
const SEARCHED_KEYS: usize = 256;

#[derive(Debug)]
struct Suspect {
    record: Arc<Record>,
    /// By part, in the order of [`Placement::parts`]: whether its holder keeps it.
    kept: Vec<Option<bool>>,
}

/// What an owner knows of such values.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Values that may be lost, by their data group.
    suspects: BTreeMap<GroupId, Suspect>,
    /// Questions to holders: the value, and the number of the part.
    asked: BTreeMap<u64, (GroupId, usize)>,
    /// Values that are lost.
    lost: BTreeSet<GroupId>,
    /// How far the search for their objects is.
    cursor: u64,
    /// The epoch under which suspects were looked for last.
    looked_at: Option<Epoch>,
    /// By position: the tenure whose holder keeps its parts of all such values, those that are lost excepted, if it is
    /// Live. A holder may become Live before it is known that there were such values (P14.9).
    sure_of: Vec<Option<Tenure>>,
    /// When holders are asked next, and the search for objects of lost values goes on.
    at: Time,
    /// When all values of such classes are suspect again: a position is not Live, and may wait for a part that was lost
    /// in the meantime.
    again_at: Option<Time>,
}

impl Losses {
    pub(super) fn next_at(&self) -> Option<Time> {
        let is_busy = !self.suspects.is_empty() || !self.lost.is_empty();
        is_busy.then_some(self.at).or(self.again_at)
    }

    pub(super) fn suspect(&mut self, record: &Arc<Record>, now: Time) {
        if self.lost.contains(&record.data_group) || self.suspects.contains_key(&record.data_group) {
            return;
        }
        self.at = now;
        let suspect = Suspect {
            record: record.clone(),
            kept: Vec::new(),
        };
        self.suspects.insert(record.data_group, suspect);
    }
}

impl Records {
    /// Under each configuration, the suspects are the values that the Live holders already examined do not give back by
    /// themselves. Answers given under an earlier configuration say nothing of new holders. `knows_all`: before that,
    /// objects may name further values.
    fn look_for_losses<O: Out>(&mut self, cx: &mut Context<'_, O>, here: &Installed<'_>, knows_all: bool) {
        let (now, losses) = (cx.mono(), &mut self.losses);
        let is_new = losses.looked_at != Some(here.configuration.epoch);
        let is_busy = !losses.suspects.is_empty() || !losses.lost.is_empty();
        let is_due = !is_busy && losses.again_at.is_some_and(|at| at <= now);
        if is_new {
            losses.suspects.clear();
            losses.asked.clear();
            losses.again_at = None;
        }
        if !(is_new || is_due) || !knows_all {
            return;
        }
        losses.looked_at = Some(here.configuration.epoch);
        let positions = positions_in_memory(cx, here.configuration);
        let is_sure = |position: u8| {
            let held = here
                .configuration
                .at(Position(position))
                .filter(|held| held.state.is_live());
            let tenure = held.map(|held| held.tenure);
            !is_due && tenure.is_some() && losses.sure_of.get(usize::from(position)) == Some(&tenure)
        };
        let mut suspects = Vec::new();
        let is_any = self.ledger.weaker_than(here.configuration.parity).next().is_some();
        let mut held = here.configuration.positions.iter();
        let is_whole = held.all(|held| held.is_some_and(|held| held.state.is_live()));
        let again_at = cx.after(Span(cx.shared.parameters.resend.0 * AGAIN_RESENDS));
        losses.again_at = (is_any && !is_whole).then_some(again_at);
        for record in self.ledger.weaker_than(here.configuration.parity) {
            let placement = record.placement(positions);
            if placement.is_ok_and(|placement| !placement.is_readable(|part| is_sure(part.position))) {
                suspects.push(record.clone());
            }
        }
        for record in suspects {
            losses.suspect(&record, now);
        }
        self.note_sure(here.configuration);
    }

    /// Once no value is suspect, every holder of this configuration keeps what it must, or will when it is Live.
    fn note_sure(&mut self, configuration: &Configuration) {
        let losses = &mut self.losses;
        if losses.suspects.is_empty() && losses.looked_at == Some(configuration.epoch) {
            let positions = configuration.positions.iter();
            losses.sure_of = positions.map(|held| held.map(|held| held.tenure)).collect();
        }
    }

    /// Whether a value may be lost as far as is known, and will be removed if it is.
    fn may_be_lost(&self, configuration: &Configuration, record: &Record) -> bool {
        let losses = &self.losses;
        let group = &record.data_group;
        let is_open = losses.looked_at != Some(configuration.epoch)
            || losses.suspects.contains_key(group)
            || losses.lost.contains(group)
            // Its object was overwritten before the owner looked for suspects, and that delta is not stable.
            || !self.ledger.is_named(*group);
        is_open && record.class.tolerance() < configuration.parity
    }

    /// Asks holders which parts of suspects they keep.
    fn ask_holders<O: Out>(&mut self, cx: &mut Context<'_, O>, here: &Installed<'_>) {
        let again = cx.after(cx.shared.parameters.resend);
        let positions = positions_in_memory(cx, here.configuration);
        let losses = &mut self.losses;
        // What was not answered in time is asked again.
        losses.asked.clear();
        losses.at = again;
        for (group, suspect) in losses.suspects.iter_mut().take(ASKED_MAX) {
            let Ok(placement) = suspect.record.placement(positions) else {
                continue;
            };
            suspect.kept.resize(placement.parts().count(), None);
            for (at, part) in placement.parts().enumerate() {
                let Some(None) = suspect.kept.get(at) else { continue };
                let Some(holder) = here.configuration.tenure(Position(part.position)) else {
                    suspect.kept[at] = Some(false);
                    continue;
                };
                let id = cx.next_request_id();
                let message = Message::ReadUnit {
                    id,
                    name: to_wire(suspect.record.name_of(&part)),
                    unit: WHOLE_PART,
                };
                if cx.send(&holder, Channel::Bulk, here.stream, here.configuration.epoch, &message) {
                    losses.asked.insert(id, (*group, at));
                }
            }
        }
    }

    /// The answer to such a question. False if it was none.
    pub(super) fn on_asked_part<O: Out>(&mut self, cx: &Context<'_, O>, id: u64, is_kept: bool) -> bool {
        let losses = &mut self.losses;
        let Some((group, at)) = losses.asked.remove(&id) else {
            return false;
        };
        let suspect = losses.suspects.get_mut(&group);
        if let Some(kept) = suspect.and_then(|suspect| suspect.kept.get_mut(at)) {
            *kept = Some(is_kept);
        }
        if losses.asked.is_empty() {
            losses.at = cx.now.mono;
            self.woken.progress = true;
        }
        true
    }

    /// A value is lost if every holder has answered and the parts that they keep do not give it back. Parts are never
    /// added under one configuration but by making, from parts that are kept.
    fn judge_losses<O: Out>(&mut self, cx: &Context<'_, O>, here: &Installed<'_>) {
        let positions = positions_in_memory(cx, here.configuration);
        let losses = &mut self.losses;
        let lost = &mut losses.lost;
        losses.suspects.retain(|group, suspect| {
            let Ok(placement) = suspect.record.placement(positions) else {
                return false;
            };
            if is_readable(placement, &suspect.kept) {
                return false;
            }
            let is_known = !suspect.kept.is_empty() && suspect.kept.iter().all(Option::is_some);
            if is_known {
                lost.insert(*group);
            }
            !is_known
        });
        self.note_sure(here.configuration);
    }
}

impl StreamOwner {
    /// Looks for values that are lost, and removes their objects.
    pub(super) fn tend_losses<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        let here = self.installed(configuration);
        let knows_all = self.store.knows_records() && self.records.ledger.has_learnt() && !self.lost;
        self.records.look_for_losses(cx, &here, knows_all);
        if self.records.losses.next_at().is_some_and(|at| at <= cx.mono()) {
            self.records.ask_holders(cx, &here);
            self.records.judge_losses(cx, &here);
            self.remove_lost(cx, configuration);
        }
    }

    /// Whether a value may be lost as far as is known, and will be removed if it is.
    pub fn may_be_lost(&self, configuration: &Configuration, record: &Record) -> bool {
        self.records.may_be_lost(configuration, record)
    }

    /// One step of the search for objects that name lost values. The objects are removed even if fewer parity members
    /// are Live than P3.1 requires, because those members become Live only after the removal.
    fn remove_lost<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        // A value is forgotten once no holder needs its parts: its removal is acknowledged.
        let ledger = &self.records.ledger;
        self.records.losses.lost.retain(|group| ledger.is_alive(*group));
        if self.records.losses.lost.is_empty() || self.phase != Phase::Serve {
            return;
        }
        self.records.losses.at = cx.after(cx.shared.parameters.retry);
        if !self.records.losses.lost.iter().any(|group| ledger.is_named(*group)) {
            return;
        }
        if self.admit_removal(cx) != Admission::Admitted {
            return;
        }
        let (losses, store) = (&self.records.losses, &self.store);
        let mut keys = Vec::new();
        let names_lost = |object: &Object<'_>| {
            let record = object.record().and_then(super::decode);
            record.is_some_and(|record| losses.lost.contains(&record.data_group))
        };
        let searched = store.scan(&cx.shared.arena, losses.cursor, SEARCHED_KEYS, |object| {
            if names_lost(object) {
                keys.push((store.hash(object.database(), object.key()), object.key().to_vec()));
            }
        });
        // A chunk that is not here yet is on its way.
        let Ok(next) = searched else { return };
        for (hash, key) in keys {
            let (store, delta) = self.delta();
            match store.delete(&mut cx.shared.arena, delta, hash, &key) {
                Ok(true) => {
                    self.log.touch(hash);
                    cx.shared.lost_values += 1;
                    self.wake.progress = true;
                }
                Ok(false) => {}
                Err(Blocked::DeltaFull) => {
                    self.close_delta(cx, configuration);
                    self.records.losses.at = cx.mono();
                    return;
                }
                Err(_) => return,
            }
        }
        let losses = &mut self.records.losses;
        losses.cursor = next;
        if next != 0 {
            losses.at = cx.mono();
        }
    }
}

fn is_readable(placement: Placement, kept: &[Option<bool>]) -> bool {
    let parts: Vec<_> = placement.parts().collect();
    placement.is_readable(|part| {
        let at = parts.iter().position(|other| other == part);
        at.is_some_and(|at| kept.get(at) == Some(&Some(true)))
    })
}
