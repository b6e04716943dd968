//! Bytes that are added at the back and taken from the front.

/// A queue of bytes in one piece. A cursor takes bytes from the front: moving the rest each time would cost the square
/// of the length.
#[derive(Default, Debug)]
pub(crate) struct ByteQueue {
    bytes: Vec<u8>,
    /// Number of bytes of `bytes` that were already taken.
    taken: usize,
}

impl ByteQueue {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// Bytes of memory.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds bytes to a queue that may become long: its memory grows by an eighth at most, not to twice its length.
    pub(crate) fn push_to_long(&mut self, bytes: &[u8]) {
        if self.bytes.capacity() - self.bytes.len() < bytes.len() {
            self.compact();
            self.bytes.reserve_exact(bytes.len().max(self.bytes.len() / 8));
        }
        self.push(bytes);
    }

    /// Exchanges its memory with that of `with`, if it is empty. Its bytes are then those of `with`, which is empty.
    pub(crate) fn fill_from(&mut self, with: &mut Vec<u8>) {
        debug_assert!(self.is_empty(), "bytes would be lost");
        std::mem::swap(&mut self.bytes, with);
        self.taken = 0;
        with.clear();
    }

    pub(crate) fn take_front(&mut self, count: usize) {
        self.taken += count;
        debug_assert!(self.taken <= self.bytes.len(), "more is taken than is there");
        if self.is_empty() {
            self.bytes.clear();
            self.taken = 0;
        } else if self.taken * 2 > self.bytes.len() {
            self.compact();
        }
    }

    /// Memory that holds no bytes of the queue.
    pub(crate) fn spare_bytes(&self) -> usize {
        self.capacity() - self.len()
    }

    /// Frees that memory.
    pub(crate) fn fit(&mut self) {
        self.compact();
        self.bytes.shrink_to_fit();
    }

    fn compact(&mut self) {
        self.bytes.drain(..std::mem::take(&mut self.taken));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_the_order_in_which_they_came() {
        let mut queue = ByteQueue::default();
        let mut model = std::collections::VecDeque::new();
        for round in 0..400_usize {
            let fresh: Vec<u8> = (0..round * 7 % 31).map(|n| (round + n) as u8).collect();
            queue.push(&fresh);
            model.extend(fresh);
            let count = (round * 13 % 29).min(queue.len());
            queue.take_front(count);
            model.drain(..count);
            if round % 50 == 49 {
                queue.fit();
            }
            assert_eq!(queue.as_slice(), Vec::from(model.clone()));
        }
    }

    /// A client that sends 20 MB before it reads has them taken a few bytes at a time.
    #[test]
    fn taking_a_long_queue_in_small_steps_moves_each_byte_a_few_times_only() {
        const BYTES: usize = 1 << 20;
        let mut queue = ByteQueue::default();
        queue.push(&vec![7; BYTES]);
        let mut moved = 0;
        while !queue.is_empty() {
            let before = queue.taken;
            queue.take_front(16);
            if queue.taken < before + 16 {
                moved += queue.len();
            }
        }
        assert!(moved <= 2 * BYTES, "{moved} bytes moved");
    }
}
