//! What the shard proposes, and questions of clients to the coordinator that wait for their answers.

use super::driver::AgentOut;
use super::{Agent, Phase, send};
use crate::fence::LINK_TIMEOUT;
use crate::message::{Opinions, Refusal, ToCoordinator};
use paritas_base::{ConnId, Time};
use paritas_protocol::Proposal;

/// Limit of client requests that wait for an answer.
const QUESTIONS_MAX: usize = 256;

/// A request of a client that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) conn: ConnId,
    pub(super) n: u64,
    pub(super) until: Time,
    /// An order about a node's duty or slots, rather than a request for the status.
    pub(super) duty: bool,
}

impl Question {
    /// Answers that no coordinator replies, and why one has refused this process, if so.
    pub(super) fn give_up(self, refused: Option<&Refusal>, out: &mut impl AgentOut) {
        let mut why = "no coordinator answers".to_owned();
        if let Some(refusal) = refused {
            why = format!("{why}, and one refuses this node: {refusal}");
        }
        if self.duty {
            out.duty_set(self.conn, self.n, Some(&why));
        } else {
            out.status(self.conn, self.n, Err(&why));
        }
    }
}

impl Agent {
    /// Shards repeat their requests until they are answered, so the agent drops them while there is no coordinator.
    pub(super) fn on_proposal(&mut self, now: Time, proposal: Proposal, out: &mut impl AgentOut) {
        let registered = self.is_registered();
        match proposal {
            Proposal::ReportSilent { node, incarnation } => {
                if self.silent.len() < crate::SILENT_MAX {
                    self.silent.insert((node, incarnation));
                }
            }
            Proposal::Opinions(paritas_protocol::Opinions { unheard, unsure }) => {
                let opinions = Some(Opinions { unheard, unsure });
                let is_news = self.opinions != opinions;
                self.opinions = opinions;
                // Report a silent peer at once.
                if let Phase::Registered { nonce, .. } = self.phase
                    && is_news
                {
                    self.beat(nonce, out);
                }
            }
            Proposal::AskLive { list, position, tenure } if registered => {
                send(out, &ToCoordinator::AskLive { list, position, tenure });
            }
            Proposal::GetConfiguration { list, installed } if registered => {
                send(out, &ToCoordinator::GetConfiguration { list, installed });
            }
            Proposal::Installed(configuration) => {
                let known = self.installed.get(&configuration.list);
                if known.is_none_or(|known| configuration.epoch > known.epoch) {
                    self.installed.insert(configuration.list, *configuration);
                }
            }
            Proposal::ActiveVersion(version) => {
                if let Some(cluster) = &mut self.cluster {
                    cluster.active_version = cluster.active_version.max(version);
                }
            }
            Proposal::HandOff {
                version,
                last,
                from,
                to,
            } if registered => {
                let message = ToCoordinator::HandOff {
                    version,
                    last,
                    from,
                    to,
                };
                send(out, &message);
            }
            Proposal::Drained { list, position, tenure } if registered => {
                send(out, &ToCoordinator::Drained { list, position, tenure });
            }
            Proposal::Ask { conn, n } => {
                if let Some(n) = self.ask(now, conn, n, false, out) {
                    send(out, &ToCoordinator::Status { n });
                }
            }
            Proposal::MoveSlots { conn, n, order } => {
                if let Some(n) = self.ask(now, conn, n, true, out) {
                    send(out, &ToCoordinator::MoveSlots { n, order });
                }
            }
            Proposal::SetDuty { conn, n, node, duty } => {
                if let Some(n) = self.ask(now, conn, n, true, out) {
                    send(out, &ToCoordinator::SetDuty { n, node, duty });
                }
            }
            // The process itself handles files.
            Proposal::AskLive { .. }
            | Proposal::GetConfiguration { .. }
            | Proposal::Drained { .. }
            | Proposal::HandOff { .. }
            | Proposal::Rewrite { .. } => {}
        }
    }

    /// Records a request and returns its number. Without a coordinator it is answered at once.
    fn ask(&mut self, now: Time, conn: ConnId, n: u64, duty: bool, out: &mut impl AgentOut) -> Option<u64> {
        let until = now + LINK_TIMEOUT;
        let question = Question { conn, n, until, duty };
        if !self.is_registered() || self.questions.len() >= QUESTIONS_MAX {
            question.give_up(self.refused.as_ref(), out);
            return None;
        }
        self.asked += 1;
        self.questions.insert(self.asked, question);
        Some(self.asked)
    }
}
