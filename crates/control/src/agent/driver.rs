//! The interface between an agent and its driver.

use crate::message::{MessageError, Refusal};
use crate::status::{ShardProgress, Status};
use paritas_base::configuration::{ClusterRecord, Configuration, NodeRecord, Tenure};
use paritas_base::{ConnId, Incarnation, ListId, Position};
use paritas_protocol::Proposal;

/// What happens to an agent.
#[derive(Debug)]
pub enum AgentEvent<'a> {
    /// The dial succeeded.
    Connected,
    /// The dial failed, or the link has ended. Not given for a link that the agent closed.
    Disconnected,
    /// One whole frame, as `message::split` found it.
    Message(&'a [u8]),
    /// A shard has a request.
    Proposal(Proposal),
    /// A shard reports its progress, at least once per heartbeat.
    Progress(ShardProgress),
    /// The process is asked to end: it serves until a coordinator permits it (P10.20).
    Leave,
    /// The shard has written its last byte, and does nothing more.
    Stopped,
    /// `next_deadline` has passed, or the process starts.
    Timer,
}

/// What a driver offers its agent.
pub trait AgentOut {
    /// Connect to the coordinator with this index in the settings.
    fn dial(&mut self, coordinator: usize);
    /// Close the link, or stop the dial. Drop bytes that were not read.
    fn hang_up(&mut self);
    /// Send a whole frame.
    fn send(&mut self, bytes: &[u8]);
    /// A message is too long, and was not sent.
    fn unsent(&mut self, _: MessageError) {}
    /// A frame cannot be read. The agent hangs up and dials again.
    fn unread(&mut self, _: MessageError) {}
    /// The cluster is known: create the node. Called once, before anything else is delivered.
    fn cluster(&mut self, cluster: &ClusterRecord);
    /// The cluster's record has changed. Only times may change.
    fn cluster_changed(&mut self, _: &ClusterRecord) {}
    /// The newest records of all nodes, for every shard.
    fn nodes(&mut self, nodes: &[NodeRecord]);
    /// A newer configuration of a list, for every shard.
    fn configuration(&mut self, configuration: &Configuration);
    /// The answer to `Proposal::Ask`, or why there is none.
    fn status(&mut self, conn: ConnId, n: u64, status: Result<&Status, &str>);
    /// The answer to `Proposal::SetDuty`, or why nothing was done.
    fn duty_set(&mut self, conn: ConnId, n: u64, refused: Option<&str>);
    /// The owner of a position, if it is a shard here, is asked to drain.
    fn drain(&mut self, list: ListId, position: Position, tenure: Tenure);
    /// A coordinator has refused this process for a reason that the operator should know. The agent tries again.
    fn refused(&mut self, refusal: &Refusal);
    /// This incarnation may not continue: end the process.
    fn ended(&mut self, refusal: &Refusal);
    /// A coordinator has committed the end of this incarnation of the node: it need not be said again.
    fn exit_noted(&mut self, _: Incarnation) {}
    /// What a process that is to end waits for.
    fn leave_waits(&mut self, _: &str) {}
    /// The process may end: stop the shard, then give `AgentEvent::Stopped`.
    fn may_leave(&mut self) {}
}
