//! Orders of operators that are not carried out yet. Those that can lose data (P10.17) are handled here: reset lost
//! lists, count processes as ended, change settings. Such an order first reports what it would lose, and has no effect
//! until it is confirmed.

use super::duty::DutyOrder;
use super::slot_moves::SlotOrders;
use super::trouble::{lists, names};
use super::{Coordinator, CoordinatorOut, Note, send};
use crate::fence::Opinion;
use crate::message::{Order, Settings, ToAgent};
use crate::plan::LostPolicy;
use crate::record::{Records, StoredNode};
use crate::store::Store;
use paritas_base::configuration::{Assignment, Configuration, Duty, Tenure};
use paritas_base::{Incarnation, ListId, NodeId, Span, Time};
use paritas_protocol::LinkId;
use std::collections::{BTreeMap, BTreeSet};

/// Limit of orders that wait for a commit.
const WAITING_MAX: usize = 16;

/// Orders that are not carried out yet. Not durable.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// Lost lists to begin again empty. Not durable: a reset takes seconds, and the order can be repeated.
    resets: BTreeSet<ListId>,
    /// Incarnations that an operator attests as ended, until that is committed.
    attested: BTreeSet<(NodeId, Incarnation)>,
    /// Nodes whose known process has a certified end, and of which an operator attests that no later process runs
    /// (P10.16). Not durable: this counts only until enough holders have registered.
    absent: BTreeSet<NodeId>,
    waiting: Vec<Waiting>,
    /// Duties of nodes.
    duties: BTreeMap<NodeId, DutyOrder>,
    /// Moves of slots.
    pub(super) slots: SlotOrders,
}

/// An operator's command that waits for the commit.
#[derive(Debug)]
struct Waiting {
    link: LinkId,
    /// The request's number, repeated in the answer.
    n: u64,
    /// The answer.
    lines: Vec<String>,
    /// The orders. They are withdrawn if the commit fails or the link ends before it.
    wanted: Wanted,
}

#[derive(Default, Debug)]
struct Wanted {
    resets: BTreeSet<ListId>,
    incarnations: BTreeSet<(NodeId, Incarnation)>,
}

impl Orders {
    pub(super) fn resets(&self) -> &BTreeSet<ListId> {
        &self.resets
    }

    pub(super) fn attested(&self) -> &BTreeSet<(NodeId, Incarnation)> {
        &self.attested
    }

    pub(super) fn absent(&self) -> &BTreeSet<NodeId> {
        &self.absent
    }

    /// Withdraws the orders of these commands, except those that another waiting command has given too.
    fn withdraw(&mut self, given_up: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        let (given_up, waiting) = core::mem::take(&mut self.waiting).into_iter().partition(given_up);
        self.waiting = waiting;
        let given_up: Vec<Waiting> = given_up;
        for Waiting { wanted, .. } in &given_up {
            self.resets.retain(|list| !wanted.resets.contains(list));
            self.attested
                .retain(|incarnation| !wanted.incarnations.contains(incarnation));
        }
        for Waiting { wanted, .. } in &self.waiting {
            self.resets.extend(&wanted.resets);
            self.attested.extend(&wanted.incarnations);
        }
        given_up
    }

    /// Answers the waiting orders after a commit.
    pub(super) fn answer(&mut self, records: &Records, out: &mut impl CoordinatorOut) {
        let is_lost = |list: &ListId| records.lists.get(list).is_some_and(|c| c.lost);
        self.resets.retain(is_lost);
        self.attested.clear();
        for Waiting { link, n, lines, wanted } in self.waiting.drain(..) {
            let is_over = |(node, incarnation): &(NodeId, Incarnation)| {
                records.nodes.get(node).is_some_and(|n| n.is_over(*incarnation))
            };
            let answer = match wanted.incarnations.iter().find(|incarnation| !is_over(incarnation)) {
                Some((node, _)) => Err(format!(
                    "{node} runs: it was heard meanwhile, so it does not count as ended"
                )),
                None => Ok((true, lines)),
            };
            send(out, link, &ToAgent::Said { n, answer });
        }
    }

    /// Withdraws the orders of a link that has ended: its command would not learn the outcome.
    pub(super) fn withdraw_of(&mut self, link: LinkId) {
        self.withdraw(|waiting| waiting.link == link);
    }

    /// Withdraws all orders after a failed commit. They must not be carried out later in a different situation.
    pub(super) fn refuse(&mut self, why: &str, out: &mut impl CoordinatorOut) {
        for Waiting { link, n, lines, wanted } in self.withdraw(|_| true) {
            // A command without outstanding orders is already in the store, for example new settings.
            let is_done = wanted.resets.is_empty() && wanted.incarnations.is_empty();
            let answer = match is_done {
                true => Ok((true, lines)),
                false => Err(format!(
                    "not done, the store failed: {why}. Look with `paritas status`, then order again"
                )),
            };
            send(out, link, &ToAgent::Said { n, answer });
        }
    }

    // --- duties --------------------------------------------------------------------------------------------------

    /// Returns the order for that node that the new one replaces.
    pub(super) fn order_duty(&mut self, node: NodeId, order: DutyOrder) -> Option<DutyOrder> {
        self.duties.insert(node, order)
    }

    /// The duty that the node is to have.
    pub(super) fn duty_of(&self, node: NodeId) -> Option<Duty> {
        self.duties.get(&node).map(|order| order.duty)
    }

    pub(super) fn apply_duties(&self, nodes: &mut BTreeMap<NodeId, StoredNode>) {
        for (id, order) in &self.duties {
            if let Some(node) = nodes.get_mut(id) {
                node.duty = order.duty;
            }
        }
    }

    /// After a commit of all duties.
    pub(super) fn take_duties(&mut self) -> impl Iterator<Item = DutyOrder> + use<> {
        core::mem::take(&mut self.duties).into_values()
    }
}

/// The outcome of an order that is allowed.
enum Outcome {
    /// It is not confirmed. Says what it would lose.
    Would(Vec<String>),
    /// It is done, or had nothing to do.
    Done(Vec<String>),
    /// The next commit carries it out.
    Decide(Vec<String>, Wanted),
}

impl<S: Store> Coordinator<S> {
    /// True if a decision is needed. The order is then answered after the commit.
    pub(super) fn on_order(
        &mut self,
        now: Time,
        link: LinkId,
        n: u64,
        order: &Order,
        confirmed: bool,
        out: &mut impl CoordinatorOut,
    ) -> bool {
        let said = if self.orders.waiting.len() >= WAITING_MAX {
            Err("too many orders wait for the store".into())
        } else {
            match order {
                Order::ResetLists { lists } => self.reset_lists(now, lists, confirmed),
                Order::Fence { nodes } => self.fence(now, nodes, confirmed, out),
                Order::Set(settings) => self.set(now, *settings, confirmed, out),
            }
        };
        let answer = match said {
            Ok(Outcome::Decide(lines, wanted)) => {
                self.orders.resets.extend(&wanted.resets);
                self.orders.attested.extend(&wanted.incarnations);
                self.orders.waiting.push(Waiting { link, n, lines, wanted });
                return true;
            }
            Ok(Outcome::Would(lines)) => Ok((false, lines)),
            Ok(Outcome::Done(lines)) => Ok((true, lines)),
            Err(why) => Err(why),
        };
        send(out, link, &ToAgent::Said { n, answer });
        false
    }

    // --- reset-list ----------------------------------------------------------------------------------------------

    fn reset_lists(&mut self, now: Time, wanted: &[ListId], confirmed: bool) -> Result<Outcome, String> {
        if let Some(why) = self.refuses_orders() {
            return Err(why);
        }
        let lost: Vec<ListId> = self.records.lists.values().filter(|c| c.lost).map(|c| c.list).collect();
        if lost.is_empty() {
            return Err("no list is lost: there is nothing to begin again".into());
        }
        if let Some(list) = wanted.iter().find(|list| !lost.contains(list)) {
            return Err(format!(
                "list {} is not lost, so nothing is changed. Lost lists: {}. If a list waits for a machine that is off \
                 for good, use `paritas fence` first",
                list.0,
                lists(&lost)
            ));
        }
        let wanted = if wanted.is_empty() { &lost } else { wanted };
        let mut lines: Vec<String> = wanted
            .iter()
            .filter_map(|list| self.records.lists.get(list))
            .map(|list| self.loss_by_reset(now, list))
            .collect();
        if !confirmed {
            return Ok(Outcome::Would(lines));
        }
        lines.push("they begin again empty as soon as every position has a node".into());
        let ordered = Wanted {
            // If this order is withdrawn, earlier orders stay.
            resets: wanted
                .iter()
                .filter(|list| !self.orders.resets.contains(list))
                .copied()
                .collect(),
            ..Wanted::default()
        };
        Ok(Outcome::Decide(lines, ordered))
    }

    // --- fence ---------------------------------------------------------------------------------------------------

    fn fence(
        &mut self,
        now: Time,
        nodes: &[NodeId],
        confirmed: bool,
        out: &mut impl CoordinatorOut,
    ) -> Result<Outcome, String> {
        if nodes.is_empty() {
            return Err("which node: name its number in `paritas status`".into());
        }
        let mut lines = Vec::new();
        let mut incarnations = BTreeSet::new();
        let mut absent = BTreeSet::new();
        let missing = self.missing_witnesses();
        for node in nodes.iter().copied().collect::<BTreeSet<_>>() {
            let Some(stored) = self.records.nodes.get(&node) else {
                let known: Vec<NodeId> = self.records.nodes.keys().copied().collect();
                return Err(format!(
                    "{node} has never registered, only {}: nothing is changed",
                    names(&known)
                ));
            };
            let is_absent = stored.has_ended() && missing.contains(&node);
            if stored.has_ended() && !is_absent {
                lines.push(format!("{node} has ended already"));
                continue;
            }
            let incarnation = stored.record.incarnation;
            if let Some(why) = self.may_run(now, node, incarnation) {
                return Err(format!(
                    "{node} {why}. Nothing is changed. If process {} runs, stop it first. To move its positions to \
                     other nodes, use `paritas drain {}`",
                    stored.record.pid, node.0
                ));
            }
            if is_absent {
                lines.push(format!(
                    "{node} is not waited for: its process {} has ended, and no later process of it knows a newer \
                     decision",
                    stored.record.pid
                ));
                absent.insert(node);
            } else {
                incarnations.insert((node, incarnation));
            }
        }
        if incarnations.is_empty() && absent.is_empty() {
            return Ok(Outcome::Done(lines));
        }
        let before = (self.orders.attested.clone(), self.orders.absent.clone());
        self.orders.attested.extend(&incarnations);
        self.orders.absent.extend(&absent);
        let refused = self.refuses_orders();
        if refused.is_none() {
            lines.extend(self.losses_by_ends(now, &incarnations));
        }
        (self.orders.attested, self.orders.absent) = before;
        if let Some(why) = refused {
            return Err(why);
        }
        if !confirmed {
            return Ok(Outcome::Would(lines));
        }
        self.orders.absent.extend(absent);
        for (node, incarnation) in incarnations.iter().copied() {
            out.note(Note::Attested { node, incarnation });
        }
        let wanted = Wanted {
            incarnations,
            ..Wanted::default()
        };
        Ok(Outcome::Decide(lines, wanted))
    }

    /// The time since an incarnation was last heard, if that is less than the suspicion time.
    pub(super) fn heard_ago(&self, now: Time, node: NodeId, incarnation: Incarnation) -> Option<Span> {
        let presence = self.registry.presence_of(node, incarnation);
        let heard = presence.map(|p| now - p.heard_at());
        heard
            .filter(|ago| *ago < self.records.plan.suspicion())
            .or_else(|| self.asked_ago(now, node, incarnation))
    }

    /// Why an incarnation may still run: the coordinator or a peer hears it, or it has not had time to register.
    fn may_run(&self, now: Time, node: NodeId, incarnation: Incarnation) -> Option<String> {
        let presence = self.registry.presence_of(node, incarnation);
        if let Some(ago) = self.heard_ago(now, node, incarnation) {
            return Some(format!("runs: it was heard {} ms ago", ago.as_ms()));
        }
        let silence = self.judge_silence(now);
        if silence.isolated.contains(&node) {
            let hears = |(peer, said): &(NodeId, Opinion)| (*said == Opinion::Hears).then_some(*peer);
            let peers: Vec<NodeId> = silence.said.get(&node)?.iter().filter_map(hears).collect();
            return Some(format!("runs: its peers {} hear it", names(&peers)));
        }
        let until = self.suspicion.settled_from().max(self.silent_at(presence));
        (now < until).then(|| {
            format!(
                "may run: wait {} ms, every running process registers by then",
                (until - now).as_ms()
            )
        })
    }

    /// The consequences if these incarnations have ended, computed with the same rules that a decision uses.
    fn losses_by_ends(&self, now: Time, incarnations: &BTreeSet<(NodeId, Incarnation)>) -> Vec<String> {
        let silence = self.judge_silence(now);
        let nodes = self.next_nodes(now, &silence);
        let mut facts = self.facts(now, &nodes, silence);
        let next = self.next_lists(&mut facts, &mut Vec::new());
        let held = |incarnation: &(NodeId, Incarnation)| -> usize {
            self.records
                .lists
                .values()
                .map(|c| c.held_by(incarnation.0, incarnation.1).count())
                .sum()
        };
        let mut lines: Vec<String> = incarnations
            .iter()
            .map(|incarnation| {
                let pid = self.records.nodes.get(&incarnation.0).map_or(0, |n| n.record.pid);
                format!(
                    "{}, process {pid}, counts as ended: it cannot register again, and its {} positions go to other \
                     nodes after its leases have ended",
                    incarnation.0,
                    held(incarnation)
                )
            })
            .collect();
        let becomes_lost = |c: &&Configuration| c.lost && self.records.lists.get(&c.list).is_some_and(|old| !old.lost);
        let lost: Vec<ListId> = next.iter().filter(becomes_lost).map(|c| c.list).collect();
        let emptied = |c: &&Configuration| self.records.lists.get(&c.list).is_some_and(|old| old.born != c.born);
        let emptied: Vec<ListId> = next.iter().filter(emptied).map(|c| c.list).collect();
        if !lost.is_empty() {
            lines.push(format!(
                "lists {} would be lost: more positions end than the scheme covers. If one of these machines can go on \
                 with its process still in memory, as after a pause, do that instead",
                lists(&lost)
            ));
        }
        if !emptied.is_empty() {
            lines.push(format!(
                "lists {} have no redundancy: their data on these nodes is lost",
                lists(&emptied)
            ));
        }
        if lost.is_empty() && emptied.is_empty() {
            lines.push("no list is lost by it: the other nodes can rebuild all data of these nodes".into());
        }
        lines
    }

    // --- set -----------------------------------------------------------------------------------------------------

    fn set(
        &mut self,
        now: Time,
        settings: Settings,
        confirmed: bool,
        out: &mut impl CoordinatorOut,
    ) -> Result<Outcome, String> {
        if settings == Settings::default() {
            return Ok(Outcome::Done(self.settings_in_words()));
        }
        if let Some(why) = self.refuses_orders() {
            return Err(why);
        }
        let mut plan = self.records.plan.clone();
        plan.suspicion_ms = settings.suspicion_ms.unwrap_or(plan.suspicion_ms);
        plan.lost_policy = settings.lost_policy.unwrap_or(plan.lost_policy);
        if let Err(why) = plan.check_times() {
            return Err(format!("{why}. Nothing is changed"));
        }
        let lost: Vec<&Configuration> = self.records.lists.values().filter(|c| c.lost).collect();
        if plan.lost_policy == LostPolicy::Reset && !lost.is_empty() && !confirmed {
            return Ok(Outcome::Would(
                lost.into_iter().map(|list| self.loss_by_reset(now, list)).collect(),
            ));
        }
        let mut cluster = self.records.cluster.clone();
        cluster.suspicion_ms = plan.suspicion_ms;
        if plan == self.records.plan {
            return Ok(Outcome::Done(self.settings_in_words()));
        }
        match self.records.commit_settings(&mut self.store, plan, cluster.clone()) {
            Ok(()) => {}
            Err(error) => {
                self.on_failed_commit(now, &error, out);
                if let Some(ending) = self.ending {
                    return Err(ending.to_string());
                }
                return Err(format!(
                    "{error}. It is not known whether the settings were changed: `paritas set` without arguments \
                     shows them"
                ));
            }
        }
        out.note(Note::Set(settings));
        for link in self.registry.subscribed() {
            send(out, link, &ToAgent::Cluster(cluster.clone()));
        }
        Ok(Outcome::Decide(self.settings_in_words(), Wanted::default()))
    }

    fn settings_in_words(&self) -> Vec<String> {
        let plan = &self.records.plan;
        let longest = 2 * u64::from(plan.lease_ms.max(plan.suspicion_ms));
        vec![
            format!("suspicion_ms={}", plan.suspicion_ms),
            format!("lost_policy={}", plan.lost_policy),
            format!("the longest wait of clients when a node dies is {longest} ms"),
        ]
    }

    /// The data that is lost with the reset of a lost list.
    fn loss_by_reset(&self, now: Time, list: &Configuration) -> String {
        let data: Vec<Option<&Assignment>> = list.data_positions().map(|x| list.at(x)).collect();
        let answers = |t: &Tenure| {
            let node = self.records.nodes.get(&t.node);
            node.is_some_and(|n| n.record.incarnation == t.incarnation && self.is_available(now, n))
        };
        let whole = data
            .iter()
            .flatten()
            .filter(|a| a.state.is_live() && answers(&a.tenure));
        let left: Vec<NodeId> = whole.map(|a| a.tenure.node).collect();
        format!(
            "list {}: of its {} data positions {} can still be read ({}). The reset deletes their keys; the keys of \
             the other positions are lost already",
            list.list.0,
            data.len(),
            left.len(),
            names(&left)
        )
    }
}
