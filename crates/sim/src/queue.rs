//! Pending events, earliest first, and those of one instant in the order they were pushed.
//!
//! Nearly every event lies within a few microseconds, so there is a wheel with one slot per
//! nanosecond and a bitmap over it: pushing and popping take constant time. What lies beyond the
//! wheel waits in a heap and is popped from there; it is never moved. Memory grows with the number
//! of pending events alone and is reused.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use farlock_fabric::Nanos;

/// Until when an endpoint is paused that is stopped for good.
pub(crate) const FOR_GOOD: Nanos = Nanos::MAX;

/// Something that will happen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Event {
    /// This flight reaches its node.
    Arrive(u32),
    /// It is the turn of this link of a chain, held back by its fence until now.
    Turn(u32),
    /// This flight, or a piece of it, is served.
    Serve(u32),
    /// The completion of this flight reaches its endpoint.
    Complete(u32),
    /// The interval of this wait has passed, if the wait still has this generation.
    Timer(u32, u32),
    /// This wait is given the time for which it would wait at most.
    Elapse(u32),
    /// This task is polled.
    Wake(u32),
    /// This packet reaches what is outside.
    Reach(u32),
    /// The death of the endpoint with these bits becomes known.
    Announce(u32),
}

impl Event {
    /// Whether time passes for it: the end of a wait or of a pause.
    pub(crate) const fn is_of_time(self) -> bool {
        matches!(self, Self::Timer(..) | Self::Elapse(_) | Self::Wake(_))
    }
}

/// Slots of the wheel: nanoseconds ahead that it covers. A power of two.
const SLOTS: usize = 8192;
const MASK: u64 = SLOTS as u64 - 1;
const WORDS: usize = SLOTS / 64;
const NONE: u32 = u32::MAX;

/// An event in one word: what it is, then an index, then the rest. A word is kept and found in a
/// register; the enum would be built in memory, and waited for there.
#[derive(Clone, Copy)]
struct Packed(u64);

/// Bits of a packed event that say what it is, and those before its upper half.
const KIND_BITS: u32 = 4;
const INDEX_BITS: u32 = 28;

impl Packed {
    #[inline(always)]
    fn new(event: Event) -> Self {
        let word = |kind: u64, index: u32, rest: u32| {
            assert!(index >> INDEX_BITS == 0, "there are fewer than 2^28 of anything");
            Self(kind | u64::from(index) << KIND_BITS | u64::from(rest) << 32)
        };
        match event {
            Event::Arrive(flight) => word(0, flight, 0),
            Event::Turn(flight) => word(1, flight, 0),
            Event::Serve(flight) => word(2, flight, 0),
            Event::Complete(flight) => word(3, flight, 0),
            Event::Timer(watch, generation) => word(4, watch, generation),
            Event::Elapse(watch) => word(5, watch, 0),
            Event::Wake(task) => word(6, task, 0),
            Event::Reach(packet) => word(7, packet, 0),
            Event::Announce(endpoint) => word(8, 0, endpoint),
        }
    }

    #[inline(always)]
    fn event(self) -> Event {
        let index = (self.0 >> KIND_BITS) as u32 & ((1 << INDEX_BITS) - 1);
        let rest = (self.0 >> 32) as u32;
        match self.0 & ((1 << KIND_BITS) - 1) {
            0 => Event::Arrive(index),
            1 => Event::Turn(index),
            2 => Event::Serve(index),
            3 => Event::Complete(index),
            4 => Event::Timer(index, rest),
            5 => Event::Elapse(index),
            6 => Event::Wake(index),
            7 => Event::Reach(index),
            _ => Event::Announce(rest),
        }
    }
}

struct Node {
    event: Packed,
    /// The next node of the slot's ring; the newest one's next is the oldest.
    next: u32,
}

pub(crate) struct Queue {
    /// The newest node of each slot.
    slots: Box<[u32]>,
    /// Which slots have nodes.
    bits: [u64; WORDS],
    /// Which words of `bits` are not zero.
    summary: [u64; WORDS / 64],
    nodes: Vec<Node>,
    free: u32,
    far: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    far_pushed: u64,
}

impl Queue {
    /// A queue; one that is `used`, since most of its price is its slots.
    pub(crate) fn new(used: bool) -> Self {
        Self {
            slots: vec![NONE; if used { SLOTS } else { 0 }].into(),
            bits: [0; WORDS],
            summary: [0; WORDS / 64],
            nodes: Vec::new(),
            free: NONE,
            far: BinaryHeap::new(),
            far_pushed: 0,
        }
    }

    /// Lets `event` happen at `time`, which is not before `now`. Inlined, so that an event is made
    /// where it is kept.
    #[inline(always)]
    pub(crate) fn push(&mut self, now: Nanos, time: Nanos, event: Event) {
        debug_assert!(time >= now, "nothing happens in the past");
        if time - now >= SLOTS as u64 {
            self.push_far(time, event);
            return;
        }
        let slot = (time & MASK) as usize;
        let newest = self.slots[slot];
        let node = self.node(event);
        if newest == NONE {
            self.nodes[node as usize].next = node;
            self.bits[slot / 64] |= 1 << (slot % 64);
            self.summary[slot / 4096] |= 1 << (slot / 64 % 64);
        } else {
            let oldest = std::mem::replace(&mut self.nodes[newest as usize].next, node);
            self.nodes[node as usize].next = oldest;
        }
        self.slots[slot] = node;
    }

    #[cold]
    fn push_far(&mut self, time: Nanos, event: Event) {
        self.far_pushed += 1;
        self.far.push(Reverse((time, self.far_pushed, event)));
    }

    /// Takes the next event, if there is one not after `limit`. The caller's clock moves to its
    /// time, or stays where it is.
    #[inline(always)]
    pub(crate) fn pop(&mut self, now: Nanos, limit: Nanos) -> Option<(Nanos, Event)> {
        let near = self.nearest(now);
        // Of two events at one time the far one was pushed earlier, when that time was still far.
        let far = self.far.peek().map(|Reverse((time, ..))| *time);
        match (near, far) {
            (Some(near), far) if far.is_none_or(|far| near < far) => {
                (near <= limit).then(|| (near, self.take((near & MASK) as usize)))
            }
            (_, Some(far)) if far <= limit => {
                self.far.pop().map(|Reverse((time, _, event))| (time, event))
            }
            _ => None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.summary == [0; WORDS / 64] && self.far.is_empty()
    }

    #[inline(always)]
    fn node(&mut self, event: Event) -> u32 {
        if self.free == NONE {
            self.extend();
        }
        let index = self.free;
        let node = &mut self.nodes[index as usize];
        self.free = node.next;
        node.event = Packed::new(event);
        index
    }

    /// One free node more.
    #[cold]
    fn extend(&mut self) {
        self.free = self.nodes.len() as u32;
        self.nodes.push(Node { event: Packed(0), next: NONE });
    }

    /// The time of the earliest event on the wheel.
    #[inline]
    fn nearest(&self, now: Nanos) -> Option<Nanos> {
        let start = (now & MASK) as usize;
        let rest = self.bits[start / 64] >> (start % 64);
        if rest != 0 {
            return Some(now + u64::from(rest.trailing_zeros()));
        }
        let word = self.next_word(start / 64)?;
        let slot = word * 64 + self.bits[word].trailing_zeros() as usize;
        Some(now + ((slot as u64).wrapping_sub(now) & MASK))
    }

    /// The next word of `bits` after this one that is not zero, going round; the word itself last.
    #[inline]
    fn next_word(&self, word: usize) -> Option<usize> {
        let (own, bit) = (word / 64, word % 64);
        let later = self.summary[own] & !(u64::MAX >> (63 - bit));
        if later != 0 {
            return Some(own * 64 + later.trailing_zeros() as usize);
        }
        // The rest of the ring, this summary word once more at its end.
        (1..=self.summary.len()).map(|i| (own + i) % self.summary.len()).find_map(|i| {
            let bits = self.summary[i];
            (bits != 0).then(|| i * 64 + bits.trailing_zeros() as usize)
        })
    }

    #[inline(always)]
    fn take(&mut self, slot: usize) -> Event {
        let newest = self.slots[slot];
        let oldest = self.nodes[newest as usize].next;
        let node = &mut self.nodes[oldest as usize];
        let (event, next) = (node.event, std::mem::replace(&mut node.next, self.free));
        self.free = oldest;
        if oldest == newest {
            self.slots[slot] = NONE;
            self.bits[slot / 64] &= !(1 << (slot % 64));
            if self.bits[slot / 64] == 0 {
                self.summary[slot / 4096] &= !(1 << (slot / 64 % 64));
            }
        } else {
            self.nodes[newest as usize].next = next;
        }
        event.event()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_in_the_order_they_were_pushed() {
        // Against the definition: a sorted list. Distances around the wheel's size matter most.
        let (mut queue, mut model, mut now, mut x) = (Queue::new(true), Vec::new(), 0, 1_u64);
        for pushed in 0..200_000_u32 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let ahead = match x >> 60 {
                0..8 => x >> 33 & 0xff,
                8..14 => x >> 33 & 0x1fff,
                _ => x >> 33 & 0xffff,
            };
            queue.push(now, now + ahead, Event::Wake(pushed));
            model.push((now + ahead, pushed));
            if x >> 32 & 1 == 0 || model.len() > 100 {
                let first = *model.iter().min().expect("just pushed");
                model.retain(|event| *event != first);
                assert_eq!(queue.pop(now, Nanos::MAX), Some((first.0, Event::Wake(first.1))));
                now = first.0;
            }
        }
    }

    #[test]
    fn an_event_survives_its_word() {
        for index in [0, 1, (1 << 28) - 1] {
            let events = [Event::Arrive, Event::Turn, Event::Serve, Event::Complete];
            let more = [Event::Elapse, Event::Wake, Event::Reach];
            for event in events.into_iter().chain(more).map(|event| event(index)) {
                assert_eq!(Packed::new(event).event(), event);
            }
            for rest in [0, 7, u32::MAX] {
                for event in [Event::Timer(index, rest), Event::Announce(rest)] {
                    assert_eq!(Packed::new(event).event(), event);
                }
            }
        }
    }

    #[test]
    fn nothing_is_popped_beyond_the_limit() {
        let mut queue = Queue::new(true);
        queue.push(0, 100, Event::Wake(0));
        queue.push(0, 1_000_000, Event::Wake(1));
        assert_eq!(queue.pop(0, 99), None);
        assert_eq!(queue.pop(0, 100), Some((100, Event::Wake(0))));
        assert_eq!(queue.pop(100, 999_999), None);
        assert_eq!(queue.pop(100, 1_000_000), Some((1_000_000, Event::Wake(1))));
    }
}
