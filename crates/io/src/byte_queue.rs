//! Bytes that are added at the back and taken from the front.

/// A queue of bytes in one piece. A cursor takes bytes from the front: moving the rest each time would cost the square
/// of the length.
#[derive(Default, Debug)]
pub(crate) struct ByteQueue {
    /// The queue lies at `taken..end`. What is behind it is room that is initialised, so that a socket can be read into
    /// it, and is used again without being cleared.
    bytes: Vec<u8>,
    taken: usize,
    end: usize,
}

impl ByteQueue {
    pub(crate) fn len(&self) -> usize {
        self.end - self.taken
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.taken..self.end]
    }

    /// Bytes of memory.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len());
        let there = bytes.len().min(self.bytes.len() - self.end);
        let (over, behind) = bytes.split_at(there);
        self.bytes[self.end..self.end + there].copy_from_slice(over);
        self.bytes.extend_from_slice(behind);
        self.end += bytes.len();
    }

    /// This number of bytes behind the queue, to be filled. [`Self::add`] makes them a part of it.
    pub(crate) fn room(&mut self, count: usize) -> &mut [u8] {
        self.make_room(count);
        if self.bytes.len() < self.end + count {
            self.bytes.resize(self.end + count, 0);
        }
        &mut self.bytes[self.end..self.end + count]
    }

    fn make_room(&mut self, count: usize) {
        if self.bytes.capacity() - self.end < count {
            self.compact();
        }
    }

    /// Adds the first bytes of the room to the queue.
    pub(crate) fn add(&mut self, count: usize) {
        self.end += count;
        debug_assert!(self.end <= self.bytes.len(), "more is added than there was room for");
    }

    /// Adds bytes to a queue that may become long: its memory grows by an eighth at most, not to twice its length.
    pub(crate) fn push_to_long(&mut self, bytes: &[u8]) {
        if self.bytes.capacity() - self.end < bytes.len() {
            self.compact();
            self.bytes.truncate(self.end);
            self.bytes.reserve_exact(bytes.len().max(self.end / 8));
        }
        self.push(bytes);
    }

    /// Exchanges its memory with that of `with`, if it is empty. Its bytes are then those of `with`, which is empty.
    pub(crate) fn fill_from(&mut self, with: &mut Vec<u8>) {
        debug_assert!(self.is_empty(), "bytes would be lost");
        std::mem::swap(&mut self.bytes, with);
        (self.taken, self.end) = (0, self.bytes.len());
        with.clear();
    }

    pub(crate) fn take_front(&mut self, count: usize) {
        self.taken += count;
        debug_assert!(self.taken <= self.end, "more is taken than is there");
        if self.is_empty() {
            (self.taken, self.end) = (0, 0);
        } else if self.taken * 2 > self.end {
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
        self.bytes.truncate(self.end);
        self.bytes.shrink_to_fit();
    }

    fn compact(&mut self) {
        self.bytes.copy_within(self.taken..self.end, 0);
        (self.taken, self.end) = (0, self.len());
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
