//! Invariant I11 as a function: what every committed change of a configuration has to satisfy (PROTOCOL 13).

use paritas_base::Epoch;
use paritas_base::configuration::{Configuration, PositionState};

/// The decodability rule (PROTOCOL 10.3): whether a list with so many data and parity positions that are not Live
/// can still be rebuilt, with so many of its parity needed for an acknowledgement.
pub fn is_decodable(data_missing: usize, parity_missing: usize, parity: usize, ack_quorum: usize) -> bool {
    data_missing == 0 || (parity_missing < ack_quorum && data_missing + parity_missing <= parity)
}

/// Checks one step of a list's history; `old` is `None` for its first configuration.
///
/// # Errors
/// Says what is broken.
pub fn check_transition(old: Option<&Configuration>, new: &Configuration) -> Result<(), String> {
    let fail = |why: String| Err(format!("list {} epoch {}: {why}", new.list.0, new.epoch.0));
    if let Err(why) = check_alone(new) {
        return fail(why);
    }
    let Some(old) = old else {
        let first = Epoch(1);
        let born = new
            .positions
            .iter()
            .flatten()
            .all(|a| a.tenure.since == first && a.state == PositionState::Live);
        let whole = new.epoch == first && new.born == first && new.positions.iter().all(Option::is_some);
        return if born && whole && !new.lost {
            Ok(())
        } else {
            fail("a list begins whole, at epoch 1".into())
        };
    };
    if (old.list, old.data, old.parity, old.ack_quorum) != (new.list, new.data, new.parity, new.ack_quorum) {
        return fail("what is fixed has changed".into());
    }
    if new.epoch.0 != old.epoch.0 + 1 {
        return fail(format!("it follows epoch {}", old.epoch.0));
    }
    if new.born != old.born && new.born != new.epoch {
        return fail("born at another epoch than this".into());
    }
    if old.lost && !new.lost && new.born != new.epoch {
        return fail("a lost list came back without a reset".into());
    }
    for (i, (before, after)) in old.positions.iter().zip(&new.positions).enumerate() {
        let Some(after) = after else { continue };
        let kept = before.is_some_and(|b| b.tenure == after.tenure);
        if kept {
            let state = before.map(|b| b.state);
            if state == Some(PositionState::Live) && after.state == PositionState::Filling {
                return fail(format!("position {i} went from Live to Filling"));
            }
        } else if after.tenure.since != new.epoch {
            return fail(format!(
                "position {i}: a new tenure since epoch {}",
                after.tenure.since.0
            ));
        } else if (after.state == PositionState::Live) != (new.born == new.epoch) {
            return fail(format!(
                "position {i}: a new tenure is Live if and only if it is born empty"
            ));
        }
    }
    let same = Configuration {
        epoch: old.epoch,
        ..new.clone()
    };
    if same == *old {
        fail("nothing has changed".into())
    } else {
        Ok(())
    }
}

fn check_alone(new: &Configuration) -> Result<(), String> {
    let (data, parity) = (usize::from(new.data), usize::from(new.parity));
    if new.positions.len() != data + parity {
        return Err(format!("{} positions for {data}+{parity}", new.positions.len()));
    }
    if new.born > new.epoch {
        return Err("born in the future".into());
    }
    for (i, a) in new.positions.iter().enumerate() {
        let Some(a) = a else { continue };
        if a.tenure.since > new.epoch || a.tenure.since < Epoch(1) {
            return Err(format!("position {i} since epoch {}", a.tenure.since.0));
        }
        if new.positions[..i]
            .iter()
            .flatten()
            .any(|b| b.tenure.node == a.tenure.node)
        {
            return Err(format!("node {} holds two positions", a.tenure.node));
        }
        if new.is_gone(a.tenure.node, a.tenure.incarnation) {
            return Err(format!("position {i} is held by {}, which is gone", a.tenure.node));
        }
    }
    let missing = |range: core::ops::Range<usize>| {
        let whole = |i: &usize| new.positions[*i].is_some_and(|a| a.state == PositionState::Live);
        range.filter(|i| !whole(i)).count()
    };
    let (d, p) = (missing(0..data), missing(data..data + parity));
    if parity > 0 && !new.lost && !is_decodable(d, p, parity, usize::from(new.ack_quorum)) {
        return Err(format!(
            "{d} data and {p} parity positions are not Live, and it is not marked lost"
        ));
    }
    Ok(())
}
