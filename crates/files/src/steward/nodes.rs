//! Numbers for the names of nodes.

use crate::Node;
use std::collections::BTreeMap;

/// Most nodes that are told apart. Further ones count as never slow.
const NODES_MAX: usize = 4096;

#[derive(Clone, Default, Debug)]
pub(super) struct Nodes {
    // The names come from clients, so a hash map with a fixed hash could be made slow.
    numbers: BTreeMap<String, Node>,
    names: Vec<String>,
}

impl Nodes {
    /// The number of a name; a new one gets the next. `None` if there are too many.
    pub(super) fn number(&mut self, name: &str) -> Option<Node> {
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        if self.names.len() >= NODES_MAX {
            return None;
        }
        let number = self.names.len() as Node;
        self.numbers.insert(name.to_owned(), number);
        self.names.push(name.to_owned());
        Some(number)
    }

    pub(super) fn name(&self, node: Node) -> &str {
        self.names.get(node as usize).map_or("", String::as_str)
    }

    pub(super) fn count(&self) -> usize {
        self.names.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_numbers_up_to_a_limit() {
        let mut nodes = Nodes::default();
        for n in 0..NODES_MAX {
            assert_eq!(nodes.number(&format!("n{n}:9866")), Some(n as Node));
        }
        assert_eq!(nodes.number("one-more:9866"), None);
        assert_eq!(nodes.number("n7:9866"), Some(7));
        assert_eq!(nodes.name(7), "n7:9866");
    }
}
