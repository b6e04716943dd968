//! Invariants checked after turns and at the end of a run (P13).

use crate::driver::Streams;
use crate::gauges;
use crate::world::World;
use paritas_base::configuration::{Configuration, PositionState};
use paritas_base::{ListId, Map, NodeId, Position, StreamId, Stripe, Version, map};
use paritas_frontend::Node;
use paritas_protocol::{Fault, List, Phase, Role, StreamOwner};
use std::borrow::Cow;

fn owner_of(node: &Node, stream: StreamId) -> Option<&StreamOwner> {
    node.replica().list(stream.list)?.owner(stream.x)
}

impl World {
    /// Checks the invariants after each turn of a process.
    pub(crate) fn after_turn(&mut self, at: usize) {
        let Some(process) = self.fleet.processes[at].as_ref() else {
            return;
        };
        if let Some(reason) = &process.out.halted {
            let what = format!("n{at} halts: {reason}");
            return self.violate(what);
        }
        let arena = process.node.replica().arena();
        let mut checked = Ok(());
        let wrong = self.oracle.wrong_parity(&self.fleet, at);
        let everything = self.schedule.random.chance(30_000) || self.schedule.verbose || self.exhaustive;
        for (list, role) in process.roles() {
            let ghost = &mut self.oracle.ghosts[usize::from(list.0)];
            match role {
                Role::Owner(owner) => {
                    checked = checked.and_then(|()| ghost.observe(owner, arena));
                    if everything {
                        checked = checked.and_then(|()| ghost.check_owner(owner, arena));
                    }
                    checked = checked.and_then(|()| self.check_log(owner, everything));
                    checked = checked.and_then(|()| self.check_absent(owner));
                }
                Role::Member(member) if everything => {
                    let wrong = wrong.filter(|(of, _)| *of == list).map(|(_, stripe)| stripe);
                    checked = checked.and_then(|()| ghost.check_member(process, member, &self.oracle.code, wrong));
                }
                _ => {}
            }
        }
        if everything {
            for (list, position, old) in process.node.replica().stashed() {
                let wrong = wrong.filter(|(of, _)| *of == list).map(|(_, stripe)| stripe);
                let ghost = &self.oracle.ghosts[usize::from(list.0)];
                checked = checked.and_then(|()| ghost.check_stashed(position, &old, &self.oracle.code, wrong));
            }
            checked = checked.and_then(|()| gauges::check(process, &self.swarm));
            checked = checked.and_then(|()| self.check_parts(at));
        }
        if let Err(what) = checked {
            self.violate(what);
        }
        if everything {
            self.check_installed(at);
        }
        self.check_one_server(at);
    }

    /// I3: at most one node serves a stream. Only streams that this process owns can have changed.
    fn check_one_server(&mut self, at: usize) {
        let data = self.swarm.data;
        let Some(mut process) = self.fleet.processes[at].take() else {
            return;
        };
        let owned = process.owned(data);
        let mut shared = Streams::default();
        for other in self.fleet.all_mut() {
            owned.add_common(other.owned(data), &mut shared);
        }
        self.fleet.processes[at] = Some(process);
        for stream in shared.iter(data) {
            self.check_one_server_of(stream);
        }
    }

    fn check_one_server_of(&mut self, stream: StreamId) {
        let now = self.schedule.now;
        let mut serving: Vec<NodeId> = Vec::new();
        for process in self.fleet.all_mut() {
            let clock = process.clock(now);
            // Without members no lease is needed, because no node can take over (P4.5).
            let has_members = owner_of(&process.node, stream).is_some_and(|o| !o.members().is_empty());
            if has_members && process.node.replica_mut().serves(clock, stream, &mut process.out) {
                serving.push(process.id);
            }
        }
        if serving.len() > 1 {
            self.violate(format!("I3: {serving:?} all serve stream {stream}"));
        }
    }

    /// I6 and I7: all started members hold the acked deltas, except `m - a` of them. The deltas in their logs are those
    /// of the owner.
    fn check_log(&self, owner: &StreamOwner, all: bool) -> Result<(), String> {
        // Where nothing is acked, no member can lack it.
        if owner.phase() != Phase::Serve || (owner.acked() == 0 && !all) {
            return Ok(());
        }
        let StreamId { list, x } = owner.stream();
        let mut may_lag = self.swarm.parity - self.swarm.ack_quorum;
        for member in owner.members().iter().filter(|m| m.started) {
            let process = self.fleet.processes[usize::from(member.tenure.node.0)].as_ref();
            let Some(process) = process.filter(|p| p.incarnation == member.tenure.incarnation) else {
                continue;
            };
            let Some(role) = process.node.replica().list(list).and_then(List::member) else {
                continue;
            };
            let Some(log) = role.log(x).filter(|_| role.tenure() == member.tenure) else {
                continue;
            };
            if log.term > owner.tenure().term() {
                continue;
            }
            if log.recv < owner.acked() && may_lag > 0 {
                may_lag -= 1;
            } else if log.recv < owner.acked() {
                return Err(format!(
                    "I7: {} acked stream {} up to {}, but {} has it up to {}",
                    owner.tenure().node,
                    owner.stream(),
                    owner.acked(),
                    member.tenure.node,
                    log.recv
                ));
            }
            if !all {
                continue;
            }
            for theirs in log.ring.iter() {
                if let Some(ours) = owner.ring().get(theirs.seq)
                    && (ours.term, &ours.extents) != (theirs.term, &theirs.extents)
                {
                    return Err(format!(
                        "I6: delta {} of {} differs at {}: terms {} and {}",
                        theirs.seq,
                        owner.stream(),
                        member.tenure.node,
                        ours.term,
                        theirs.term
                    ));
                }
            }
        }
        Ok(())
    }

    /// P5.10: dropped chunks are acknowledged, and none is dropped once the owner has asked to be Live.
    fn check_absent(&self, owner: &StreamOwner) -> Result<(), String> {
        let chunks = owner.store().chunks();
        // A chunk found wrong is set aside in any case (P9.3).
        if owner.phase() != Phase::Serve || chunks.absent_count() == 0 || self.oracle.counts.flips > 0 {
            return Ok(());
        }
        let what = || format!("of {} at {}", owner.stream(), owner.tenure().node);
        if owner.has_asked_live() {
            return Err(format!(
                "5.10: chunks {} were dropped after it asked to be Live",
                what()
            ));
        }
        let term = owner.tenure().term();
        let unsafe_yet = |(stripe, version): &(Stripe, Version)| {
            version.term() == term && version.seq() > owner.acked() && chunks.slot(*stripe).is_err()
        };
        match chunks.stripes().find(unsafe_yet) {
            Some((stripe, version)) => Err(format!(
                "5.10: {stripe} {} was dropped at {version}, but is acknowledged only up to {}",
                what(),
                owner.acked()
            )),
            None => Ok(()),
        }
    }

    /// B2: every position that is Live by the owner's configuration keeps its parts of the large values that objects
    /// name, or that the owner has pinned for readers.
    fn check_parts(&self, at: usize) -> Result<(), String> {
        let Some(process) = self.fleet.processes[at].as_ref() else {
            return Ok(());
        };
        // A former owner does not know what its successor has freed.
        let is_newest = |list: &&List| {
            let newest = self.committed.configuration(list.configuration.list);
            newest.epoch == list.configuration.epoch
        };
        for list in process.node.replica().lists().filter(is_newest) {
            for owner in list.owners().filter(|owner| owner.phase() == Phase::Serve) {
                for (i, held) in list.configuration.positions.iter().enumerate() {
                    let Some(held) = held.filter(|held| held.state == PositionState::Live) else {
                        continue;
                    };
                    let holder = self.fleet.processes[usize::from(held.tenure.node.0)].as_ref();
                    let holder = holder.filter(|holder| holder.incarnation == held.tenure.incarnation);
                    let theirs = holder.and_then(|holder| holder.node.replica().list(list.configuration.list));
                    let parts = theirs.into_iter().flat_map(|list| &list.parts);
                    let mut parts =
                        parts.filter(|parts| parts.tenure() == held.tenure && parts.position() == Position(i as u8));
                    if let Some(what) = parts
                        .next()
                        .and_then(|parts| parts.missing_part(&list.configuration, owner))
                    {
                        return Err(format!(
                            "B2: {} at position {i} is Live and has not {what} of stream {}",
                            held.tenure.node,
                            owner.stream()
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks at rest: parity is the encoding of data (F1), and every history is linearizable (I9).
    pub(crate) fn check_final(&mut self) -> Result<(), String> {
        // Number of parity chunks that each node should hold.
        let mut allocated: Map<NodeId, u64> = map();
        for list in self.committed.lists() {
            self.check_list(list, &mut allocated)?;
        }
        // A node that does not know yet that it lost a position still holds its chunks, so it is left out.
        for process in self
            .fleet
            .processes
            .iter()
            .flatten()
            .filter(|p| self.committed.is_known_to(p))
        {
            let in_memory = process.node.figures().parity_bytes / process.node.replica().arena().chunk_bytes() as u64;
            let held = in_memory + process.node.replica().logged_keys().count() as u64;
            let allocated = allocated.get(&process.id).copied().unwrap_or(0);
            if held != allocated {
                return Err(format!(
                    "I10: {allocated} stripes, but {held} parity chunks at {}",
                    process.id
                ));
            }
        }
        self.check_versions_at_end()?;
        self.oracle.check_histories(&self.swarm)
    }

    /// Checks at rest of a run in which a position lacks memory: every history, and all lists that have come to rest.
    /// The others may wait for that position: its node holds positions of other lists too.
    pub(crate) fn check_others(&mut self) -> Result<(), String> {
        let mut allocated: Map<NodeId, u64> = map();
        for list in self.committed.lists() {
            if self.unsettled_of(self.committed.configuration(list)).is_none() {
                self.check_list(list, &mut allocated)?;
            }
        }
        self.oracle.check_histories(&self.swarm)
    }

    /// The checks of a run that is stopped in the middle: what clients have seen is linearizable, and what they wait
    /// for may have happened or not.
    pub(crate) fn check_until_now(&mut self) -> Result<(), String> {
        for client in 0..self.workload.clients.len() {
            if let Some((_, _, conn)) = self.workload.clients[client].conn {
                self.client_lost(client, conn);
            }
        }
        self.guests_end();
        self.oracle.check_histories(&self.swarm)
    }

    /// F1, for one list.
    fn check_list(&self, list: ListId, allocated: &mut Map<NodeId, u64>) -> Result<(), String> {
        let (configuration, ghost) = (
            self.committed.configuration(list),
            &self.oracle.ghosts[usize::from(list.0)],
        );
        let owner_of = |node, x| owner_of(node, StreamId { list, x });
        let node = |position: Position| {
            let tenure = configuration.tenure(position)?;
            self.fleet.processes[usize::from(tenure.node.0)]
                .as_ref()
                .map(|p| &p.node)
        };
        let mut stripes = Vec::new();
        for x in configuration.data_positions() {
            let node = node(x).ok_or("F1: a data position is vacant")?;
            let owner = owner_of(node, x).ok_or("F1: a data position has no owner")?;
            ghost.check_owner(owner, node.replica().arena())?;
            stripes.extend(owner.store().chunks().stripes().map(|(s, _)| s));
        }
        stripes.sort();
        stripes.dedup();
        let count = stripes.len() as u64;
        for (position, a) in configuration.members() {
            *allocated.entry(a.tenure.node).or_default() += count;
            let member_node = node(position).ok_or("F1: a parity position is vacant")?;
            let process = self.fleet.processes[usize::from(a.tenure.node.0)].as_ref();
            let process = process.ok_or("F1: a parity position's process does not run")?;
            let member = member_node.replica().list(list).and_then(List::member);
            let Some(member) = member.filter(|m| m.position() == position) else {
                return Err("F1: a parity position has no member".into());
            };
            ghost.check_member(process, member, &self.oracle.code, None)?;
            stripes.extend(member.valid_stripes());
            stripes.sort();
            stripes.dedup();
            for stripe in &stripes {
                let Some((versions, bytes)) = process.parity(member, *stripe) else {
                    return Err(format!("F1: {stripe} is not valid at position {}", position.0));
                };
                let mut expected = vec![0; member_node.replica().arena().chunk_bytes()];
                for x in configuration.data_positions() {
                    let Some(node) = node(x) else { continue };
                    let Some(owner) = owner_of(node, x) else { continue };
                    let chunks = owner.store().chunks();
                    if chunks.version(*stripe) != versions[x.index()] {
                        return Err(format!(
                            "F1: {stripe} of stream {} is at {}, but parity {} has {}",
                            x.0,
                            chunks.version(*stripe),
                            position.0,
                            versions[x.index()]
                        ));
                    }
                    if let Ok(Some(data)) = chunks.bytes(node.replica().arena(), *stripe) {
                        let coefficient = self.oracle.code.coefficient(x.0, position.0 - configuration.data);
                        paritas_code::mul_add(coefficient, data, &mut expected);
                    }
                }
                let same = bytes.map_or_else(|| expected.iter().all(|b| *b == 0), |b| *b == *expected);
                if !same {
                    return Err(format!("F1: {stripe} differs at parity position {}", position.0));
                }
            }
        }
        self.check_subsets(list, &stripes)?;
        self.fleet
            .check_units(&self.swarm, &self.workload.classes, configuration)
    }

    /// 15.7: any `k` chunks of a stripe give back all others. This follows from F1; it is checked here with the decoder
    /// that a takeover uses.
    fn check_subsets(&self, list: ListId, stripes: &[Stripe]) -> Result<(), String> {
        let configuration = self.committed.configuration(list);
        let (k, width) = (configuration.data, configuration.positions.len() as u8);
        let zeros = vec![0; self.swarm.chunk_bytes as usize];
        let mut decoded = zeros.clone();
        for stripe in stripes {
            let mut chunks: Vec<(u8, Cow<'_, [u8]>)> = Vec::new();
            for i in 0..width {
                let tenure = configuration.tenure(Position(i));
                let process = tenure.and_then(|t| self.fleet.processes[usize::from(t.node.0)].as_ref());
                let Some((process, node)) = process.map(|p| (p, &p.node)) else {
                    continue;
                };
                let bytes = if i < k {
                    let owner = owner_of(node, StreamId { list, x: Position(i) });
                    let bytes = owner.and_then(|o| o.store().chunks().bytes(node.replica().arena(), *stripe).ok()?);
                    bytes.map(Cow::Borrowed)
                } else {
                    let member = node.replica().list(list).and_then(List::member);
                    member.and_then(|m| process.parity(m, *stripe)?.1)
                };
                chunks.push((i, bytes.unwrap_or(Cow::Borrowed(&zeros))));
            }
            for set in (0u32..1 << width).filter(|set| set.count_ones() == u32::from(k)) {
                let chosen = chunks.iter().filter(|(i, _)| set >> i & 1 == 1);
                let sources: Vec<(u8, &[u8])> = chosen.map(|(i, bytes)| (*i, &**bytes)).collect();
                for (i, bytes) in chunks.iter().filter(|(i, _)| set >> i & 1 == 0) {
                    let result = self.oracle.code.decode(&sources, &[*i], &mut [&mut decoded]);
                    if result.is_err() || decoded != **bytes {
                        return Err(format!(
                            "15.7: {stripe} of position {i} differs from what chunks {set:#b} decode to: {result:?}"
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a data position, or a parity position, can never be complete. Streams may have grown beyond the memory
    /// of its node while no position of its kind was there to limit their credit, or its node has granted the memory to
    /// other lists (P8.2).
    pub(crate) fn is_outgrown(&self, of_data: bool) -> bool {
        self.committed
            .filling(of_data)
            .any(|at| self.lacks_memory(at, |_| true))
    }

    /// Whether a data position may have no memory at all, because Live positions use what its node keeps free for such
    /// positions. They may do so where commands completed them there, but not by writing.
    pub(crate) fn is_crowded_out(&self) -> bool {
        if self.swarm.parameters.rules.fault(Fault::HeadroomWritten) {
            return false;
        }
        let is_live = |stream: StreamId| {
            let a = self.committed.configuration(stream.list).at(stream.x);
            a.is_some_and(|a| a.state.is_live())
        };
        self.committed.filling(true).any(|at| self.lacks_memory(at, is_live))
    }

    /// Whether the parities of a node and its own streams need more chunks than the node may use.
    fn lacks_memory(&self, at: usize, counts: impl Fn(StreamId) -> bool) -> bool {
        let owner = |stream: StreamId| {
            let at = usize::from(self.committed.configuration(stream.list).tenure(stream.x)?.node.0);
            Some((at, owner_of(&self.fleet.processes[at].as_ref()?.node, stream)?))
        };
        let streams = |list| (0..self.swarm.data).map(move |x| StreamId { list, x: Position(x) });
        let held = |owner: &StreamOwner| owner.store().chunks().stripes().map(|(s, _)| s).collect::<Vec<_>>();
        // Number of stripes that the parities of a list have to hold.
        let stripes = |list| {
            let owners = streams(list).filter_map(owner);
            let mut stripes: Vec<Stripe> = owners.flat_map(|(_, owner)| held(owner)).collect();
            stripes.sort();
            stripes.dedup();
            stripes.len()
        };
        let Some(process) = self.fleet.processes[at].as_ref() else {
            return false;
        };
        let parity = |list: ListId| {
            let member = process.node.replica().list(list).and_then(List::member)?;
            Some(stripes(list).max((member.slots_granted() + member.refill_backlog()) as usize))
        };
        let parity: usize = self.committed.lists().filter_map(parity).sum();
        let owned = self
            .committed
            .lists()
            .flat_map(streams)
            .filter(|stream| counts(*stream));
        let owned = owned.filter_map(owner).filter(|(node, _)| *node == at);
        let owned: usize = owned.map(|(_, owner)| held(owner).len()).sum();
        // Positions of a list have about as many units each.
        let units = |list: ListId| {
            let all = self
                .fleet
                .processes
                .iter()
                .flatten()
                .filter_map(|p| p.node.replica().list(list));
            let most = all.flat_map(|list| &list.parts).map(|parts| parts.chunk_count()).max();
            let mine = process.node.replica().list(list).map_or(0, |list| list.parts.len());
            mine * most.unwrap_or(0) as usize
        };
        let held = parity + self.committed.lists().map(units).sum::<usize>();
        let (in_memory, on_disk, on_disk_max) = match process.node.replica().parity_log() {
            Some(log) => (0, held, log.chunks_max()),
            None => (held, 0, 0),
        };
        let slots_max = process.node.replica().arena().slots_max();
        let slots = slots_max - self.swarm.parameters.kept_chunks.min(slots_max / 4);
        in_memory + owned > slots as usize || on_disk > on_disk_max as usize
    }

    /// What is not yet at rest, if anything (I12).
    pub(crate) fn unsettled(&self) -> Option<String> {
        if let Some(what) = self.workload.unanswered(false) {
            return Some(what);
        }
        if let Some(process) = self
            .fleet
            .processes
            .iter()
            .flatten()
            .find(|p| p.turn_open || p.unflushed)
        {
            return Some(format!("{} is in the middle of a turn", process.id));
        }
        if let Some(at) = self.oracle.pass_under_way(&self.fleet, &self.committed) {
            return Some(format!("n{at} has not scrubbed all its chunks"));
        }
        if let Some(what) = self.oracle.wrong_unit(&self.fleet, self.swarm.parity) {
            return Some(what);
        }
        if let Some(hand_off) = self.committed.hand_off() {
            return Some(format!("a hand-off is still under way: {hand_off:?}"));
        }
        self.committed.configurations.iter().find_map(|configuration| {
            let what = self.unsettled_of(configuration)?;
            Some(format!("list {}: {what}", configuration.list.0))
        })
    }

    fn unsettled_of(&self, configuration: &Configuration) -> Option<String> {
        for (i, position) in configuration.positions.iter().enumerate() {
            let Some(a) = position else {
                return Some(format!("position {i} is vacant"));
            };
            if !a.state.is_live() {
                return Some(format!("position {i} is Filling at {}", a.tenure.node));
            }
            let at = usize::from(a.tenure.node.0);
            let list = self.fleet.processes[at]
                .as_ref()
                .and_then(|p| p.node.replica().list(configuration.list));
            match list {
                Some(list) if list.configuration.epoch == configuration.epoch => match list
                    .roles
                    .iter()
                    .find(|role| role.position().index() == i)
                {
                    Some(Role::Owner(owner)) => {
                        if owner.seq() != owner.stable() {
                            return Some(format!(
                                "position {i} has seq {} and stable {}",
                                owner.seq(),
                                owner.stable()
                            ));
                        }
                        if !owner.is_whole() {
                            return Some(format!("position {i} is Live but not complete"));
                        }
                        if !owner.has_settled_slots() {
                            return Some(format!("position {i} still holds keys of slots that it gave away"));
                        }
                    }
                    Some(Role::Member(member)) => {
                        if let Some(stripe) = member.lost_stripe() {
                            return Some(format!("position {i} has not repaired {stripe}"));
                        }
                        for x in configuration.data_positions() {
                            let held = member.log(x).map_or(0, |l| l.ring.bytes());
                            if held > 0 {
                                return Some(format!("position {i} holds {held} B of raw deltas of stream {}", x.0));
                            }
                        }
                    }
                    None | Some(Role::Halted(_)) => return Some(format!("position {i} has no role")),
                },
                _ => return Some(format!("position {i} does not have the latest configuration")),
            }
        }
        self.fleet.unsettled_values(configuration)
    }
}
