//! A sorted list of ranges behind a server: the rival LLC of Citron (FAST'23, table 1).
#![doc = include_str!("../../../../docs/protocols/linked-list.md")]

use std::ops::Range;

use super::range_server::{RangeServer, RangeSet, meet};

/// One whose cores use the list at the same time.
pub const LINKED_LIST: RangeServer = RangeServer::new(|| Box::<LinkedList>::default(), false);

/// Behind the last entry.
const END: u32 = u32::MAX;

/// A list in which each entry knows the next one, and places that were used before.
#[derive(Debug)]
pub struct LinkedList {
    first: u32,
    entries: Vec<Entry>,
    unused: Vec<u32>,
}

#[derive(Debug)]
struct Entry {
    units: Range<u32>,
    next: u32,
}

impl Default for LinkedList {
    fn default() -> Self {
        Self { first: END, entries: Vec::new(), unused: Vec::new() }
    }
}

impl LinkedList {
    /// The place of the last entry that begins before this unit, that of the one behind it, and how
    /// many were looked at.
    fn around(&self, unit: u32) -> (Option<u32>, u32, u32) {
        let (mut before, mut next, mut steps) = (None, self.first, 0);
        while next != END {
            steps += 1;
            let entry = &self.entries[next as usize];
            if entry.units.start >= unit {
                break;
            }
            (before, next) = (Some(next), entry.next);
        }
        (before, next, steps)
    }

    fn link(&mut self, before: Option<u32>, next: u32) {
        match before {
            Some(before) => self.entries[before as usize].next = next,
            None => self.first = next,
        }
    }
}

impl RangeSet for LinkedList {
    fn enter(&mut self, units: &Range<u32>) -> (bool, u32) {
        let (before, next, steps) = self.around(units.start);
        let is_met = |place: u32| meet(&self.entries[place as usize].units, units);
        if before.is_some_and(is_met) || next != END && is_met(next) {
            return (false, steps);
        }
        let entry = Entry { units: units.clone(), next };
        let place = match self.unused.pop() {
            Some(place) => {
                self.entries[place as usize] = entry;
                place
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        self.link(before, place);
        (true, steps)
    }

    fn leave(&mut self, start: u32) -> u32 {
        let (before, place, steps) = self.around(start);
        if place != END && self.entries[place as usize].units.start == start {
            self.link(before, self.entries[place as usize].next);
            self.unused.push(place);
        }
        steps
    }

    fn is_empty(&self) -> bool {
        self.first == END
    }

    fn ranges(&self) -> Vec<Range<u32>> {
        let entry = |&place: &u32| (place != END).then(|| &self.entries[place as usize]);
        let next = |entry: &&Entry| (entry.next != END).then(|| &self.entries[entry.next as usize]);
        let all = std::iter::successors(entry(&self.first), next);
        all.map(|entry| entry.units.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_ranges() {
        super::super::range_server::tests::behaves(LINKED_LIST.make);
    }

    #[test]
    fn it_looks_at_all_before_a_range() {
        let mut list = LinkedList::default();
        for number in 0..10 {
            assert_eq!(list.enter(&(number * 4..number * 4 + 4)), (true, number));
        }
        assert_eq!(list.leave(36), 10);
    }
}
