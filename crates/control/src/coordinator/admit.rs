//! What is refused whatever the records say: messages of who may not say them, and registrations that contradict the
//! plan.

use super::{ADDRESS_BYTES_MAX, CoordinatorOut, Note, send};
use crate::message::{Refusal, Registration, ToAgent, ToCoordinator};
use crate::plan::{ClusterPlan, domain_is_valid};
use crate::rights::{Speaker, forbids};
use paritas_base::configuration::NodeRole;
use paritas_protocol::LinkId;

/// P10.19: whether the speaker may say this. If not, an order is answered, and another message ends the link.
pub(crate) fn admits(link: LinkId, by: Speaker, message: &ToCoordinator, out: &mut impl CoordinatorOut) -> bool {
    let Some(what) = forbids(by, message) else {
        return true;
    };
    out.note(Note::Forbidden { link, by, what });
    let why = || {
        "orders are accepted from an operator who has the cluster's secret, or on the coordinator's own machine: give \
         the secret by --secret-file, or give the order there"
            .to_owned()
    };
    match message {
        ToCoordinator::Order { n, .. } => send(
            out,
            link,
            &ToAgent::Said {
                n: *n,
                answer: Err(why()),
            },
        ),
        ToCoordinator::SetDuty { n, .. } | ToCoordinator::MoveSlots { n, .. } => {
            let refused = Some(why());
            send(out, link, &ToAgent::Ordered { n: *n, refused });
        }
        _ => out.close(link),
    }
    false
}

/// Why a registration is refused: it exceeds a limit or contradicts the plan.
pub(crate) fn static_refusal(plan: &ClusterPlan, registration: &Registration) -> Option<Refusal> {
    let addresses = [
        &registration.client_address,
        &registration.cluster_address,
        &registration.peer_address,
    ];
    if addresses.iter().any(|a| a.len() > ADDRESS_BYTES_MAX) {
        return Some(Refusal::Limit(format!(
            "an address has at most {ADDRESS_BYTES_MAX} bytes"
        )));
    }
    if registration.domain.as_ref().is_some_and(|d| !domain_is_valid(d)) {
        return Some(Refusal::Limit("a failure domain has 1 to 64 bytes".into()));
    }
    let planned = plan.all().find(|n| n.id == registration.node).map(|n| &n.domain);
    if let (Some(planned), Some(claimed)) = (planned, &registration.domain)
        && planned != claimed
    {
        return Some(Refusal::WrongDomain {
            planned: planned.clone(),
        });
    }
    wrong_role(plan, registration).map(|why| Refusal::WrongRole { why })
}

/// A planned node must register in its planned role. A node beyond the plan is a spare or a log node.
fn wrong_role(plan: &ClusterPlan, registration: &Registration) -> Option<String> {
    let node = registration.node;
    let is_log = registration.role == NodeRole::Log;
    let planned = plan.all().any(|n| n.id == node);
    let planned_log = plan.log_nodes.iter().any(|n| n.id == node);
    if planned && planned_log && !is_log {
        Some(format!(
            "{node} is planned as a log node: set log_dir (--log-dir) in its settings"
        ))
    } else if planned && !planned_log && is_log {
        Some(format!(
            "{node} is not planned as a log node: leave log_dir (--log-dir) out of its settings"
        ))
    } else if registration.role == NodeRole::Spare && plan.nodes.iter().any(|n| n.id == node) {
        Some(format!(
            "{node} is planned as a member and cannot wait as a spare: leave spare (--spare) out of its \
             settings, or give it an id beyond the planned ones"
        ))
    } else if is_log && plan.logged == 0 {
        let scheme = plan.scheme();
        Some(format!(
            "{node} is a log node, and {scheme} logs no parity: leave log_dir (--log-dir) out of its settings"
        ))
    } else {
        None
    }
}
