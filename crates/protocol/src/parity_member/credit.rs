//! What a parity member grants to the owners of its list (P8.2).

use super::ParityMember;
use super::table::EarlierStripes;
use crate::context::Context;
use crate::interface::{Channel, Out};
use crate::mark::Mark;
use paritas_base::configuration::Configuration;
use paritas_base::{Position, StreamId, Term};
use paritas_wire::peer::Message;

impl ParityMember {
    /// P8.2: memory for stripes below these ends, shared by all streams of the list.
    pub(crate) fn on_credit_request<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        stream: StreamId,
        term: Term,
        data_end: u32,
        index_end: u32,
    ) {
        let Some(owner) = configuration.tenure(stream.x) else {
            return;
        };
        let wanted = (data_end, index_end);
        let earlier = self.earlier_stripes(configuration, stream.x, wanted);
        let granted = self.table.grant(cx.shared, wanted, earlier);
        let Some(log) = self.logs.get_mut(stream.x.index()) else {
            return;
        };
        log.granted.0 = log.granted.0.max(granted.0.min(wanted.0));
        log.granted.1 = log.granted.1.max(granted.1.min(wanted.1));
        let is_less = log.granted.0 < wanted.0 || log.granted.1 < wanted.1;
        log.wish = is_less.then_some((term, wanted));
        if is_less {
            cx.out.mark(Mark::CreditRefused);
        }
        let window_bytes = cx.shared.parameters.window_bytes;
        let (data_end, index_end) = (log.granted.0, log.granted.1);
        let reply = Message::Credit {
            term,
            data_end,
            index_end,
            window_bytes,
        };
        cx.send(&owner, Channel::Main, stream, configuration.epoch, &reply);
    }

    /// What this member knows of stripes that were in use before it joined. The owner at `asks` asks for `wanted`.
    fn earlier_stripes(&self, configuration: &Configuration, asks: Position, wanted: (u32, u32)) -> EarlierStripes {
        if let Some(backlog) = self.refill.backlog(&self.table) {
            return EarlierStripes::Known { backlog };
        }
        let (mut wished, mut all) = (wanted, true);
        // A vacant position asks for nothing, and writes to the others do not wait for it.
        let held = |x: &Position| configuration.tenure(*x).is_some();
        for x in configuration.data_positions().filter(|x| *x != asks && held(x)) {
            let log = &self.logs[x.index()];
            let (data, index) = log.wish.map_or((0, 0), |(_, wish)| wish);
            let of_it = (data.max(log.granted.0), index.max(log.granted.1));
            all &= of_it != (0, 0);
            wished = (wished.0.max(of_it.0), wished.1.max(of_it.1));
        }
        EarlierStripes::Unknown { wished, all }
    }

    /// Grants more, if possible now, to owners that were granted less than they asked for.
    pub(crate) fn grant_more<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        for x in configuration.data_positions() {
            let log = self.logs.get_mut(x.index());
            if let Some((term, (data_end, index_end))) = log.and_then(|log| log.wish.take()) {
                let stream = StreamId { list: self.list, x };
                self.on_credit_request(cx, configuration, stream, term, data_end, index_end);
            }
        }
    }
}
