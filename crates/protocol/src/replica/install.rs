//! A configuration is installed: roles are kept, begun and ended (P2.3).

use super::{Notice, Replica};
use crate::context::Context;
use crate::interface::{Channel, HaltReason, Out, Proposal};
use crate::lists::{Halted, List, Role};
use crate::mark::Mark;
use crate::parity_member::ParityMember;
use crate::parts::PositionParts;
use crate::stream_owner::StreamOwner;
use paritas_base::configuration::{Configuration, Lineage, PositionState, Tenure};
use paritas_base::{Clock, Position, StreamId};
use paritas_wire::peer::Message;

impl Replica {
    /// P2.3: a role is kept if and only if its tenure is unchanged. True if the configuration was installed.
    pub(super) fn install(&mut self, now: Clock, new: &Configuration, out: &mut impl Out) -> bool {
        let mut cx = Context {
            now,
            out,
            shared: &mut self.shared,
        };
        let shape = (new.data, new.parity) == (cx.shared.cluster.data, cx.shared.cluster.parity)
            && new.ack_quorum == cx.shared.cluster.ack_quorum
            && new.is_well_formed()
            // The limits are those of every node. If a node installed a configuration that a peer never accepts, each
            // would ask the other for ever.
            && new.is_within_limits()
            && cx.shared.cluster.slots.iter().any(|(_, s)| s.list == new.list);
        if !shape {
            return false;
        }
        let (node, incarnation) = (cx.shared.node, cx.shared.incarnation);
        let entry = self.lists.entry(new.list);
        if let Some(List { configuration: own, .. }) = entry {
            if own.epoch >= new.epoch {
                return false;
            }
            match cx.rules().lineage(new.lineage(own.epoch, own.id)) {
                Lineage::Follows => {}
                // Its coordinator decided without what is installed here (P10.14).
                Lineage::Foreign => return false,
                Lineage::Unknown => {
                    let installed = Some((own.epoch, own.id));
                    let list = new.list;
                    cx.propose(Proposal::GetConfiguration { list, installed });
                    return false;
                }
            }
        }
        if entry
            .as_ref()
            .is_some_and(|list| list.configuration.epoch.0 + 1 < new.epoch.0)
        {
            cx.out.mark(Mark::EpochJump);
        }
        let mut mine: Vec<(Position, Tenure)> = new
            .held_by(node, incarnation)
            .map(|(position, a)| (position, a.tenure))
            .collect();
        let slots = entry.as_ref().map(|list| &list.configuration.slots);
        if slots != Some(&new.slots) || new.slots.hand_off.is_some() {
            cx.shared.slots.is_stale();
        }
        let before = entry.take();
        if before.as_ref().is_some_and(|list| list.configuration.born != new.born) {
            cx.shared.stashes.drop_list(&mut cx.shared.arena, new.list);
            if let Some(disk) = &mut cx.shared.disk {
                disk.drop_list(new.list);
            }
        }
        let (before, parts_before) = before.map_or((Vec::new(), Vec::new()), |list| (list.roles, list.parts));
        let rules = cx.rules();
        let mut roles = Vec::new();
        for mut role in before {
            let tenure = match &role {
                Role::Owner(owner) => owner.tenure(),
                Role::Member(member) => member.tenure(),
                Role::Halted(_) => {
                    roles.push(role);
                    continue;
                }
            };
            let kept = mine
                .iter()
                .position(|m| m.0 == role.position() && rules.same_tenure(tenure, m.1));
            if let Some(at) = kept {
                mine.remove(at);
                match &mut role {
                    Role::Owner(owner) => {
                        owner.close_delta(&mut cx, new);
                        owner.on_configuration(&mut cx, new);
                    }
                    Role::Member(member) => member.on_configuration(&mut cx, new),
                    Role::Halted(_) => {}
                }
                roles.push(role);
                continue;
            }
            match role {
                Role::Halted(_) => {}
                Role::Owner(mut owner) => {
                    let yielded = Message::Yielded { tenure: owner.tenure() };
                    if let Some(successor) = new.tenure(owner.stream().x) {
                        cx.send(&successor, Channel::Main, owner.stream(), new.epoch, &yielded);
                    }
                    owner.end(&mut cx, new);
                }
                Role::Member(mut member) => member.end(&mut cx),
            }
        }
        if roles.iter().any(|role| matches!(role, Role::Halted(_))) {
            mine.clear();
        }
        for (position, tenure) in mine {
            let state = new.at(position).map(|a| a.state);
            if state == Some(PositionState::Live) {
                // P10.15: a position becomes Live only after its holder asked for it. This incarnation has lost the
                // role.
                let reason = format!(
                    "P10.15: list {} names position {} of this node Live, and it has no such role",
                    new.list.0, position.0
                );
                cx.out.halt(HaltReason(reason.clone()));
                let list = new.list;
                roles.push(Role::Halted(Box::new(Halted { list, position, reason })));
                continue;
            }
            roles.push(if new.is_data(position) {
                let stream = StreamId {
                    list: new.list,
                    x: position,
                };
                Role::Owner(Box::new(StreamOwner::new(&mut cx, new, stream, tenure)))
            } else {
                let parity = position.0 - new.data;
                let coefficients = (0..new.data).map(|x| cx.shared.code.coefficient(x, parity)).collect();
                let on_disk = cx.shared.disk.is_some();
                if let Some(disk) = &mut cx.shared.disk {
                    disk.begin(new.list, new.is_born(&tenure));
                }
                Role::Member(Box::new(ParityMember::new(
                    new,
                    position,
                    tenure,
                    coefficients,
                    on_disk,
                )))
            });
        }
        roles.sort_by_key(Role::position);
        let parts = install_parts(&mut cx, new, &roles, parts_before);
        *entry = Some(List {
            configuration: new.clone(),
            roles,
            parts,
        });
        self.notices.push(Notice::Configuration(new.list));
        true
    }
}

/// Parts of large values belong to the tenure of a role: they are kept, begun and ended with it (P14.4).
fn install_parts<O: Out>(
    cx: &mut Context<'_, O>,
    new: &Configuration,
    roles: &[Role],
    before: Vec<PositionParts>,
) -> Vec<PositionParts> {
    let tenure = |role: &Role| match role {
        Role::Halted(_) => None,
        Role::Owner(owner) => Some((owner.stream().x, owner.tenure())),
        Role::Member(member) => Some((member.position(), member.tenure())),
    };
    let mut held: Vec<(Position, Tenure)> = roles.iter().filter_map(tenure).collect();
    let mut parts = Vec::new();
    for mut one in before {
        match held.iter().position(|held| *held == (one.position(), one.tenure())) {
            Some(at) => {
                held.remove(at);
                parts.push(one);
            }
            None => one.end(cx),
        }
    }
    for (position, tenure) in held {
        parts.push(PositionParts::new(cx, new, position, tenure));
    }
    for one in &mut parts {
        one.on_configuration(cx, new);
    }
    parts
}
