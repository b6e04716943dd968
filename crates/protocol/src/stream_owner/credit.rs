//! Stripe credit (P8.2): memory that every member has set aside before a stripe is used.

use super::StreamOwner;
use super::members::Member;
use crate::context::Context;
use crate::interface::{Channel, Out};
use crate::rules::Fault;
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{Span, Stripe, Term, Time};
use paritas_wire::peer::Message;

/// The stripe credit that the owner asks for.
#[derive(Debug, Default)]
pub(super) struct Credit {
    /// When it is asked for next.
    pub(super) at: Time,
    /// Data and index stripes with smaller numbers are asked for.
    wish: (u32, u32),
    /// A member has less memory left than was asked for.
    denied: bool,
    /// Since when writes find no credit, and when one last found none.
    short: Option<(Time, Time)>,
}

impl StreamOwner {
    /// A write finds no stripe credit: whether that is so for too long to wait for more (P8.2).
    pub(crate) fn credit_refused<O: Out>(&mut self, cx: &Context<'_, O>) -> bool {
        let (now, resend) = (cx.mono(), cx.shared.parameters.resend);
        // After a long time without such a write, this is a new shortage.
        let lasting = self.credit.short.filter(|(_, seen)| now - *seen <= Span(8 * resend.0));
        let since = lasting.map_or(now, |(since, _)| since);
        self.credit.short = Some((since, now));
        now - since > Span(2 * resend.0)
    }

    /// Whether eviction gives chunks to a write without stripe credit. It does not while more credit may come, or while
    /// there are free chunks that a new member has not granted yet. The stream's share limits only credit for data.
    pub(crate) fn eviction_helps(&self, index: bool) -> bool {
        (self.credit.denied || !index && self.store.has_its_share()) && self.store.lacks_free_chunks()
    }

    /// P8.2: a member's grant.
    pub(crate) fn on_credit<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        from: Tenure,
        term: Term,
        data_end: u32,
        index_end: u32,
        window_bytes: u64,
    ) {
        if term != self.term() {
            return;
        }
        if let Some(member) = self.members.find_mut(from) {
            if data_end > member.granted.data_end || index_end > member.granted.index_end {
                self.credit.short = None;
            }
            member.granted.data_end = member.granted.data_end.max(data_end);
            member.granted.index_end = member.granted.index_end.max(index_end);
            member.granted.window_bytes = window_bytes.max(cx.shared.parameters.window_bytes.min(4096));
            self.credit.denied = data_end < self.credit.wish.0 || index_end < self.credit.wish.1;
            self.apply_credit();
            self.wake.progress = true;
        }
    }

    pub(super) fn apply_credit(&mut self) {
        let (data, index) = self.members.granted_ends();
        self.store.set_credit(data, index);
    }

    /// Asks every member that has granted less for what the store wants.
    pub(super) fn ask_credit<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        let now = cx.mono();
        if cx.rules().fault(Fault::CreditNotAwaited) {
            self.store.set_credit(Stripe::NUMBER_MAX, Stripe::NUMBER_MAX);
        }
        if let Some((data_end, index_end)) = self.store.wants_credit() {
            let wish = (data_end.max(self.credit.wish.0), index_end.max(self.credit.wish.1));
            if wish != self.credit.wish {
                self.credit.wish = wish;
                self.credit.at = now;
            }
        }
        if now < self.credit.at {
            return;
        }
        let (data_end, index_end) = self.credit.wish;
        let message = Message::CreditRequest {
            term: self.term(),
            data_end,
            index_end,
        };
        let lacking = |m: &&Member| m.granted.data_end < data_end || m.granted.index_end < index_end;
        for member in self.members.iter().filter(lacking) {
            cx.send(
                &member.tenure,
                Channel::Main,
                self.stream,
                configuration.epoch,
                &message,
            );
        }
        let any = self.members.iter().any(|m| lacking(&m));
        self.credit.at = if any {
            cx.after(cx.shared.parameters.resend)
        } else {
            Time(u64::MAX)
        };
    }
}
