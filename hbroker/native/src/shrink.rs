//! Gives back memory of which nearly all is unused. A queue grows with a burst, and would by itself keep that size for ever.

use std::collections::VecDeque;

/// So few elements are not worth a new allocation.
const FEW: usize = 1_024;

/// Shrinks a queue to twice what is in it, where that is less than half of what it has room for. The elements that went since
/// it grew pay for those that are moved.
pub fn shrink<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() > FEW && queue.len() < queue.capacity() / 4 {
        queue.shrink_to((2 * queue.len()).max(FEW / 2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_paid_for_once() {
        let mut queue: VecDeque<u64> = (0..100_000).collect();
        let (mut moved, mut capacity) = (0, queue.capacity());
        while queue.pop_front().is_some() {
            shrink(&mut queue);
            if queue.capacity() != capacity {
                capacity = queue.capacity();
                moved += queue.len();
            }
            assert!(queue.capacity() <= (4 * queue.len()).max(FEW) + 4);
        }
        assert!(moved < 100_000);
    }
}
