//! Joins the parts of a list's history that several processes have (P10.14).

use paritas_base::configuration::Configuration;
use paritas_base::{Epoch, Incarnation, NodeId};
use std::collections::BTreeMap;

/// The newest configuration of a list, and the ids of the epochs before it, latest first, as far back as they are
/// known.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    pub(super) newest: Configuration,
    pub(super) trail: Vec<u64>,
    /// Reports that are too old to be compared with it, and why. Their sources hold a position.
    pub(super) apart: Vec<Apart>,
}

/// A report that may be of this history or of another one.
#[derive(Clone, Debug)]
pub(super) struct Apart {
    pub(super) who: Source,
    /// Whether its source holds a position by the newest configuration.
    pub(super) holds_now: bool,
    pub(super) why: String,
}

/// The source of a report: a process, or `None` for the store.
pub(super) type Source = Option<(NodeId, Incarnation)>;
/// A configuration, the ids of the epochs before it, and their source.
pub(super) type Report<'a> = (Source, &'a Configuration, &'a [u64]);

/// Joins the reports to one chain. A report that is too old to be joined is ignored if its source holds no position of
/// the list. Others may be joined later, when a node reports that knows what lies between.
///
/// # Errors
/// If the reports are from two different histories.
pub(super) fn join(reports: &[Report<'_>]) -> Result<Option<Chain>, String> {
    let mut order: Vec<&Report<'_>> = reports.iter().collect();
    order.sort_by_key(|(_, c, _)| core::cmp::Reverse(c.epoch));
    let Some((first, newest, _)) = order.first() else {
        return Ok(None);
    };
    // The id of each epoch, and its source.
    let mut ids: BTreeMap<Epoch, (u64, Source)> = BTreeMap::new();
    ids.insert(newest.epoch, (newest.id, *first));
    let mut apart = Vec::new();
    for (who, c, trail) in order {
        let Some((known, by)) = ids.get(&c.epoch).copied() else {
            let holds = |c: &Configuration| match who {
                Some((node, incarnation)) => c.held_by(*node, *incarnation).next().is_some(),
                None => true,
            };
            let holds_now = holds(newest);
            if holds_now || holds(c) {
                let why = too_old(c, *who, newest, *first);
                apart.push(Apart {
                    who: *who,
                    holds_now,
                    why,
                });
            }
            continue;
        };
        if known != c.id {
            return Err(fork(c, *who, by));
        }
        for (back, id) in (1..).zip(trail.iter()) {
            let Some(epoch) = c.epoch.0.checked_sub(back).filter(|epoch| *epoch > 0) else {
                break;
            };
            let (known, by) = *ids.entry(Epoch(epoch)).or_insert((*id, *who));
            if known != *id {
                return Err(fork(c, *who, by));
            }
        }
    }
    let earlier = ids.range(..newest.epoch).rev();
    let trail = (1..)
        .zip(earlier)
        .take_while(|(back, (epoch, _))| epoch.0 + back == newest.epoch.0)
        .map(|(_, (_, (id, _)))| *id);
    let trail = trail.take(Configuration::HISTORY_MAX).collect();
    let newest = (*newest).clone();
    Ok(Some(Chain { newest, trail, apart }))
}

fn too_old(c: &Configuration, who: Source, newest: &Configuration, first: Source) -> String {
    let (epoch, list, newest) = (c.epoch.0, c.list.0, newest.epoch.0);
    format!(
        "{} has epoch {epoch} of list {list}, and no other node knows a history that goes back to it. So it cannot be \
         checked against epoch {newest} of {}",
        name(who),
        name(first)
    )
}

fn fork(c: &Configuration, who: Source, other: Source) -> String {
    let (list, epoch) = (c.list.0, c.epoch.0);
    if let (None, Some(node)) | (Some(node), None) = (who, other) {
        return format!(
            "the store has another history of list {list} than {} (epoch {epoch}). Nothing is written. Move the \
             store's file away: it is another history, and --adopt needs none. Do not delete it",
            name(Some(node))
        );
    }
    format!(
        "there are two histories of list {list}: {} and {} have different ones (epoch {epoch}). Two coordinators have \
         decided, each with a store of its own. Nothing is written. Take a snapshot of each side that \
         still gives one. Then find out which side has answered clients last: it is the right one. Stop the processes \
         of the other side, which gives up what only they hold, and start again with --adopt --without and their \
         numbers. Further nodes may be named then",
        name(who),
        name(other)
    )
}

fn name(who: Source) -> String {
    who.map_or_else(|| "the store".into(), |(node, _)| node.to_string())
}
