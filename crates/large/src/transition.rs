//! `Transition`: from one class to another (ElasticMem §4.2, Table 1).
//!
//! A transition writes new groups and then swaps the record; readers see the old or the new value's parts, both whole.
//! If both classes cut the body into equal data blocks at equal positions, the data group stays, and only the other
//! group is written. That is what makes `eor` → `ec` cheap: it writes parity alone.

use crate::{Class, Content, Group, Layout, Part, Placement, PlacementError};

/// What a transition does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transition {
    /// The placement that it leads to.
    pub to: Placement,
    /// The data group stays.
    pub keeps_data: bool,
    /// Bytes of the body that are read: all of them, once.
    pub read_bytes: u64,
    /// Bytes of parts that are written, zeros at the end of short rows included.
    pub written_bytes: u64,
}

impl Transition {
    /// Plans a transition from one placement to a class, for an owner at position `x`. The whole copy of `eor` is
    /// always there. So from `ec` to `eor` the data group stays only if its places are those of such an `eor`: the
    /// value was `eor` before.
    ///
    /// `data_is_shared`: another object names the data group too, so it must not stay (it would be freed twice).
    pub fn new(
        from: Placement,
        class: Class,
        x: u8,
        (positions, logged): (u8, u8),
        (old, new): (&Layout, &Layout),
        data_is_shared: bool,
    ) -> Result<Self, PlacementError> {
        let to = Placement::new(class, x, positions, logged)?;
        let stays = |to: Placement| {
            let is_cut = |class| !matches!(class, Class::Rep { .. });
            let same_cut = is_cut(from.class()) && is_cut(class) && from.class().data() == class.data();
            let same_places = data_of(from).eq(data_of(to));
            (same_cut && same_places && old == new && !data_is_shared).then_some(to)
        };
        // Otherwise the group that is there decides where the other one goes.
        let kept = match class {
            Class::Eor { .. } => Some(to),
            _ => Placement::at(class, from.first(), positions, to.logged()).ok(),
        };
        let kept = kept.and_then(stays);
        let (to, keeps_data) = kept.map_or((to, false), |to| (to, true));
        let written = to.parts().filter(|part| !(keeps_data && part.group == Group::Data));
        let written_bytes = written.map(|part| part_bytes(part.content, new)).sum();
        Ok(Self {
            to,
            keeps_data,
            read_bytes: old.body_bytes(),
            written_bytes,
        })
    }

    /// Bytes of input and output as Table 1 of the paper counts them.
    pub fn io_bytes(&self) -> u64 {
        self.read_bytes + self.written_bytes
    }

    /// The parts that are to be written.
    pub fn written(&self) -> impl Iterator<Item = Part> {
        let keeps_data = self.keeps_data;
        self.to
            .parts()
            .filter(move |part| !(keeps_data && part.group == Group::Data))
    }
}

fn data_of(placement: Placement) -> impl Iterator<Item = Part> {
    placement.parts().filter(|part| part.group == Group::Data)
}

fn part_bytes(content: Content, layout: &Layout) -> u64 {
    match content {
        Content::Whole => layout.block_bytes() * u64::from(layout.data()),
        Content::Block(_) | Content::Parity(_) => layout.block_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Input and output of a transition of a value of S bytes that is cut without a rest.
    fn io_of(from: Class, to: Class) -> u64 {
        // A multiple of every row of up to eight units.
        let size = 840 * 64;
        let positions = 32;
        let placement = Placement::new(from, 2, positions, 0).expect("it fits");
        let (old, _) = Layout::of_value(size, from.data(), 64).expect("a body");
        let (new, _) = Layout::of_value(size, to.data(), 64).expect("a body");
        Transition::new(placement, to, placement.x_of(to), (positions, 0), (&old, &new), false)
            .expect("it fits")
            .io_bytes()
    }

    proptest! {
        /// Table 1 of ElasticMem, exactly: in k-ths of S.
        #[test]
        fn bytes_read_and_written_are_those_of_table_1(k in 1u8..9, m in 1u8..4, r in 2u8..5) {
            prop_assume!(r - 1 <= k);
            let size = 840 * 64u64;
            let (ec, rep, eor) =
                (Class::Ec { data: k, parity: m }, Class::Rep { copies: r }, Class::Eor { copies: r, data: k });
            let (k, m, r) = (u64::from(k), u64::from(m), u64::from(r));
            let rep_to_ec = io_of(rep, ec);
            let eor_to_ec = io_of(eor, ec);
            let ec_to_rep = io_of(ec, rep);
            let ec_to_eor = io_of(ec, eor);
            prop_assert_eq!(rep_to_ec * k, (2 * k + m) * size);
            prop_assert_eq!(eor_to_ec * k, (k + m) * size);
            prop_assert_eq!(ec_to_rep, (r + 1) * size);
            prop_assert_eq!(ec_to_eor, r * size);
            // What is saved: k / (2k + m), and 1 / (r + 1).
            prop_assert_eq!((rep_to_ec - eor_to_ec) * (2 * k + m), rep_to_ec * k);
            prop_assert_eq!((ec_to_rep - ec_to_eor) * (r + 1), ec_to_rep);
        }
    }

    #[test]
    fn the_whole_copy_is_at_the_owner_also_after_a_transition() {
        let (eor, ec) = (Class::Eor { copies: 3, data: 4 }, Class::Ec { data: 4, parity: 2 });
        let (layout, _) = Layout::of_value(1 << 20, 4, 16 << 10).expect("a body");
        let of = |from, to| Transition::new(from, to, 1, (6, 0), (&layout, &layout), false).expect("it fits");
        let whole = |change: &Transition| {
            change
                .to
                .parts()
                .find(|part| part.content == Content::Whole)
                .map(|p| p.position)
        };
        let first = of(Placement::new(ec, 1, 6, 0).expect("it fits"), eor);
        assert_eq!((whole(&first), first.keeps_data), (Some(1), false));
        let coded = of(first.to, ec);
        assert!(coded.keeps_data);
        let again = of(coded.to, eor);
        assert_eq!((whole(&again), again.keeps_data), (Some(1), true));
    }

    #[test]
    fn ec_with_parity_0_at_the_owner_becomes_eor_by_its_copies_and_bears_every_loss_meanwhile() {
        for (data, parity, copies) in [(4, 1, 2), (4, 2, 3), (2, 2, 3), (1, 1, 2), (3, 3, 4)] {
            let (eor, ec) = (Class::Eor { copies, data }, Class::Ec { data, parity });
            let positions = data + parity;
            for x in 0..positions {
                let hot = Placement::new(eor, x, positions, 0).expect("it fits");
                let cold = Placement::new(ec, hot.first(), positions, 0).expect("it fits");
                let (layout, _) = Layout::of_value(1 << 20, data, 16 << 10).expect("a body");
                let change = Transition::new(cold, eor, x, (positions, 0), (&layout, &layout), false).expect("it fits");
                assert!(change.keeps_data && change.to == hot);
                let at_owner = |placement: Placement| placement.parts().find(|part| part.position == x);
                assert_eq!(at_owner(cold).map(|part| part.content), Some(Content::Parity(0)));
                assert_eq!(at_owner(hot).map(|part| part.content), Some(Content::Whole));
                for lost in (0u32..1 << positions).filter(|lost| lost.count_ones() <= u32::from(parity)) {
                    let is_left = |part: &Part| lost >> part.position & 1 == 0;
                    assert!(
                        cold.is_readable(is_left) && hot.is_readable(is_left),
                        "{ec} at {x} without {lost:b}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_data_group_that_another_object_names_does_not_stay() {
        let (eor, ec) = (Class::Eor { copies: 3, data: 4 }, Class::Ec { data: 4, parity: 2 });
        let from = Placement::new(eor, 1, 6, 0).expect("it fits");
        let (layout, _) = Layout::of_value(1 << 20, 4, 16 << 10).expect("a body");
        let of = |shared| Transition::new(from, ec, 1, (6, 0), (&layout, &layout), shared).expect("it fits");
        assert!(of(false).keeps_data && !of(true).keeps_data);
        assert_eq!(of(false).written_bytes, 2 << 18);
        assert_eq!(of(true).written_bytes, 6 << 18);
        let written: Vec<_> = of(false).written().map(|part| part.content).collect();
        assert_eq!(written, [Content::Parity(0), Content::Parity(1)]);
    }
}
