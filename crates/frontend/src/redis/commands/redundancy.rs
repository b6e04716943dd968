//! PARITAS.REDUNDANCY tells or changes the redundancy of a large value (P14.10). PARITAS.SET writes a value with it.

use super::{LargeValue, Operation, Seen, Stop};
use paritas_protocol::{Out, class_of};
use paritas_wire::resp::{encode, errors};

const NOT_LARGE: &str = "ERR the value is stored in stripes with others, by the scheme of the cluster: only a value \
                         that is larger than one object has redundancy of its own";

impl<O: Out> Operation<'_, '_, O> {
    pub(crate) fn redundancy(&mut self) -> Result<(), Stop> {
        match self.count() {
            2 => self.tell_redundancy(),
            3 => self.change_redundancy(),
            _ => Err(Stop::Error("ERR usage: PARITAS.REDUNDANCY key [class]")),
        }
    }

    fn tell_redundancy(&mut self) -> Result<(), Stop> {
        let (proto, scheme) = (self.proto(), self.access.scheme());
        self.look_string(1, |object, reply| {
            match object {
                None => encode::null(reply, proto),
                Some(object) => {
                    let class = object.record().map_or(Some(scheme), class_of);
                    // A damaged object may be repaired.
                    encode::bulk(reply, class.ok_or(Stop::Wait)?.to_string().as_bytes());
                }
            }
            Ok(())
        })
    }

    /// PARITAS.SET class key value [options of SET].
    pub(crate) fn set_with_class(&mut self) -> Result<(), Stop> {
        let class = self.class(self.job.args.arg(1))?;
        let scheme = self.access.scheme();
        let small_max = self.access.small_bytes_max();
        // A value that was sent ahead is long.
        let is_small = !self.job.is_staged && self.job.args.arg(3).len() <= small_max;
        if is_small && class.tolerance() > scheme.tolerance() {
            return Err(self.refuse(|out| {
                let text = format!(
                    "ERR {class} survives {} losses, but a value of at most {small_max} bytes has the redundancy of \
                     the scheme of the cluster, {scheme}",
                    class.tolerance()
                );
                encode::error(out, &text);
            }));
        }
        self.access.give_class(class);
        self.set(2)
    }

    fn change_redundancy(&mut self) -> Result<(), Stop> {
        let class = self.class(self.job.args.arg(2))?;
        let large = self.look_string(1, |object, _| {
            let object = object.ok_or(Stop::Error(errors::NO_SUCH_KEY))?;
            LargeValue::of(object).ok_or(Stop::Error(NOT_LARGE))
        })?;
        if class_of(&large.record) != Some(class) {
            let (key, hash) = (self.job.args.arg(1), self.hash_of(1));
            let tail = Seen::with(Some(&large.seen), &large.tail);
            self.access
                .change_class(self.job.ticket, hash, key, class, &large.record, tail)?;
        }
        encode::ok(self.reply);
        Ok(())
    }
}
