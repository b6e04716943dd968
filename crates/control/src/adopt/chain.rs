//! One history of each list out of what several processes have of it (PROTOCOL 10.14).

use paritas_base::configuration::Configuration;
use paritas_base::{Epoch, NodeId};
use std::collections::BTreeMap;

/// The newest configuration of a list, and the ids of the epochs before it as far as anybody knows them.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    pub(super) newest: Configuration,
    pub(super) trail: Vec<u64>,
}

/// Who has told what; `None`: the store.
pub(super) type Told<'a> = (Option<NodeId>, &'a Configuration, &'a [u64]);

/// Joins what was told to one chain.
///
/// # Errors
/// If there are two: says whose.
pub(super) fn join(told: &[Told<'_>]) -> Result<Option<Chain>, String> {
    let mut order: Vec<&Told<'_>> = told.iter().collect();
    order.sort_by_key(|(_, c, _)| core::cmp::Reverse(c.epoch));
    let Some((first, newest, _)) = order.first() else {
        return Ok(None);
    };
    // The id of each epoch, and who has told it.
    let mut ids: BTreeMap<Epoch, (u64, Option<NodeId>)> = BTreeMap::new();
    ids.insert(newest.epoch, (newest.id, *first));
    for (who, c, trail) in order {
        let Some((known, by)) = ids.get(&c.epoch).copied() else {
            return Err(format!(
                "{} has epoch {} of list {}, and nobody else knows the history so far back that one could tell whether \
                 it belongs to epoch {} of {}. End that process, which is too old to hold anything, and start again; \
                 it comes back as a new one",
                name(*who),
                c.epoch.0,
                c.list.0,
                newest.epoch.0,
                name(*first)
            ));
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
    Ok(Some(Chain { newest, trail }))
}

fn fork(c: &Configuration, who: Option<NodeId>, other: Option<NodeId>) -> String {
    format!(
        "there are two histories of list {}: {} and {} have different ones (epoch {}). Two coordinators have \
         decided, each \
         with a store of its own. Nothing is written. Find out which nodes have what clients were told last; stop the \
         processes of the others, which gives up what only they hold, and start again with --without and their numbers",
        c.list.0,
        name(who),
        name(other),
        c.epoch.0
    )
}

fn name(who: Option<NodeId>) -> String {
    who.map_or_else(|| "the store".into(), |node| node.to_string())
}
