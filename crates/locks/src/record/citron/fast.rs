//! Taking the leaves of a node with it, so that its owner need not wait (section 3.8).
//!
//! With clocks the owner of a node waits until newcomers that saw it vacant have notified it or
//! given way. One whose node has leaves alone below it posts, with the chain of its claim, what
//! takes all bits of all four. If each of them was free nobody has anything below, nor comes to
//! have anything there before these bits are given back. If not, it gives back the bits of exactly
//! those leaves that it was given: nothing in them says whose they are, and all bits of a leaf may
//! be those of a request for its units. Its record says which it has or may have, before they are
//! posted and until they are given back.

use farlock_fabric::{Addr, Endpoint, Fault, Verb, WideAtomics};

use super::course::{Course, Half, Stand, execute};
use super::repair::Params;
use super::tree::{FANOUT, Node};
use super::word;
use crate::site::Site;
use crate::slot::Phase;

/// So many of a request's nodes at most are had with their leaves. A tree has no more of them for
/// one range.
const NODES_MAX: usize = 6;

/// All leaves below a node.
const ALL: u8 = (1 << FANOUT) - 1;

impl Course {
    /// By which bit of `leaves_of` it says that it has the leaves of its node with this number; of
    /// a node that has others below it by none.
    fn bit_of(&self, number: usize) -> Option<u8> {
        let is_above_leaves = |node: &&Node| self.plan.tree.is_above_leaves(**node);
        let (before, own) = (&self.nodes[..number], self.nodes.get(number)?);
        if !self.plan.is_fast || !is_above_leaves(&own) {
            return None;
        }
        let before = before.iter().filter(is_above_leaves).count();
        (before < NODES_MAX).then_some(1 << before)
    }

    /// Of the leaves below its next node those that it is to take with that: none, if it had to
    /// wait for a node before all the same. So what a slot remembers of it is a number.
    pub(super) fn leaves_to_take(&self) -> u8 {
        let takes = self.is_exclusive() && self.bit_of(self.has) == Some(self.leaves_of + 1);
        if takes { ALL } else { 0 }
    }

    /// Whether it can have all that it has not without waiting for time: by units of leaves, and by
    /// nodes that it takes with theirs.
    pub(super) fn needs_no_time(&self) -> bool {
        let is_leaf = |number: usize| self.plan.tree.is_leaf(self.nodes[number]);
        (self.has..self.nodes.len()).all(|number| is_leaf(number) || self.bit_of(number).is_some())
    }

    /// It has all leaves of its next node.
    fn keeps_leaves(&mut self) {
        self.leaves_of |= self.bit_of(self.has).expect("only such a node has leaves alone below");
    }

    /// It has its next node as its client does already, by what it takes a part of.
    pub(super) fn inherits_leaves(&mut self) {
        let (next, whole) = (self.next(), self.whole.as_deref());
        if whole.is_some_and(|whole| whole.has_leaves_of(next)) {
            self.keeps_leaves();
        }
    }

    /// Whether it has this node with its leaves.
    fn has_leaves_of(&self, node: Node) -> bool {
        let has = |number| self.bit_of(number).is_some_and(|bit| self.leaves_of & bit != 0);
        self.leaves_of != 0 && self.held().iter().position(|&held| held == node).is_some_and(has)
    }

    /// Whether it has this leaf by the node above that.
    pub(super) fn has_leaf(&self, leaf: Node) -> bool {
        let above = leaf.parent().filter(|_| self.plan.tree.is_leaf(leaf));
        above.is_some_and(|above| self.has_leaves_of(above))
    }

    /// The bits of this node that it wants, or has by the node above: of an internal node all or
    /// none.
    pub(super) fn bits_at(&self, node: Node) -> u64 {
        match self.nodes.contains(&node) {
            true => self.mask_of(node).unwrap_or(u64::MAX),
            false if self.has_leaf(node) => self.plan.tree.all_bits(),
            false => 0,
        }
    }

    /// The verbs that take the leaves below its next node that it is to have with that.
    pub(super) fn taking_leaves(&self, lock: Addr) -> impl Iterator<Item = Verb<'static>> + '_ {
        let op = word::take(self.plan.tree.all_bits());
        self.words_of(lock, self.has, self.leaves)
            .map(move |(_, addr)| Verb::MaskedCas64 { addr, op })
    }

    /// The verbs that give back the leaves below its next node that it was given.
    pub(super) fn giving_leaves_back(
        &self,
        lock: Addr,
    ) -> impl Iterator<Item = Verb<'static>> + '_ {
        let op = word::give_back(self.plan.tree.all_bits());
        self.words_of(lock, self.has, self.leaves)
            .map(move |(_, addr)| Verb::MaskedCas64 { addr, op })
    }

    /// The verbs that give back the leaves that it has with the node of this number, but for what
    /// these have of them as well.
    pub(super) fn giving_leaves_back_beside<'a>(
        &'a self,
        lock: Addr,
        number: usize,
        others: &'a [Self],
    ) -> impl Iterator<Item = Verb<'static>> + 'a {
        let node = self.nodes[number];
        let leaves = if self.has_leaves_of(node) { ALL } else { 0 };
        self.words_of(lock, number, leaves).filter_map(move |(leaf, addr)| {
            let kept = others.iter().fold(0, |bits, other| match other.nodes.contains(&node) {
                true => u64::MAX,
                false => bits | other.bits_at(leaf),
            });
            let bits = self.plan.tree.all_bits() & !kept;
            (bits != 0).then(|| Verb::MaskedCas64 { addr, op: word::give_back(bits) })
        })
    }

    /// These leaves below the node of this number, and their words.
    fn words_of(
        &self,
        lock: Addr,
        number: usize,
        leaves: u8,
    ) -> impl Iterator<Item = (Node, Addr)> + Clone {
        let (node, plan) = (self.nodes[number], self.plan);
        let numbers = (0..FANOUT).filter(move |number| leaves >> number & 1 != 0);
        numbers.map(move |number| {
            let leaf = node.child(number);
            (leaf, plan.word(lock, leaf, Half::Writers))
        })
    }
}

/// Of the leaves below the next node of a request those that the last chain has given it, which
/// took all of them from this link on if any.
pub(super) fn leaves_given<E: Endpoint>(site: &Site<'_, E>, course: &Course, first: usize) -> u8 {
    let op = word::take(course.plan.tree.all_bits());
    let is_given = |link| word::swapped(&op, site.endpoint.link(link).old as u64);
    let given = |(number, link)| u8::from(is_given(link)) << number;
    let leaves = (0..FANOUT).zip(first..).filter(|_| course.leaves != 0);
    leaves.map(given).fold(0, |all, one| all | one)
}

impl Params {
    /// Whether a request has the next node, which it has claimed in time: a leaf, or one of whose
    /// leaves it was given all. If it was given some of them, those are given back.
    pub(super) async fn needs_no_more_time<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
    ) -> Result<bool, Fault> {
        if course.leaves == ALL {
            course.keeps_leaves();
        } else if course.mask().is_none() {
            if self.frees_all_leaves && course.leaves != 0 {
                course.leaves = ALL;
            }
            if course.leaves != 0 {
                execute(site.endpoint, course.giving_leaves_back(site.lock)).await?;
            }
            course.leaves = 0;
            let (phase, ticket) = (Phase::Claiming, course.ticket());
            course.publish(site, Stand { phase, claims: true, ticket });
            return Ok(false);
        }
        Ok(true)
    }

    /// Whether a request may have come too late, though it was given all leaves of its next node.
    pub(super) fn minds_that_it_is_late(&self, course: &Course) -> bool {
        !(self.fast_is_never_late && course.leaves == ALL)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::super::Exclusive;
    use super::*;
    use crate::want::{BlockNumbers, Mode};

    const LOCK: Addr = Addr::from_bits(0);

    fn timed() -> Exclusive {
        Exclusive { leaf_units: 1, wait_ns: Some(15_000), ..Exclusive::default() }
    }

    fn course(lock: &Exclusive, units: Range<u64>, is_part: bool) -> Course {
        Course::of(lock.plan(BlockNumbers::NONE), Mode::Exclusive, units, is_part)
    }

    /// It takes its next node with all leaves.
    fn takes_next_with_leaves(course: &mut Course) {
        course.leaves = course.leaves_to_take();
        assert_eq!(course.taking_leaves(LOCK).count(), 4);
        course.keeps_leaves();
        course.leaves = 0;
        course.takes_next();
    }

    #[test]
    fn leaves_are_given_back_but_for_what_parts_have_of_them() {
        let mut whole = course(&timed(), 4..8, false);
        takes_next_with_leaves(&mut whole);
        for (units, back) in [(5..6, 3), (5..7, 2), (4..8, 0), (0..0, 4)] {
            let part = (!units.is_empty()).then(|| course(&timed(), units.clone(), true));
            let parts = part.as_slice();
            let given = whole.giving_leaves_back_beside(LOCK, 0, parts).count();
            assert_eq!(given, back, "{units:?}");
        }
    }

    #[test]
    fn who_was_not_given_all_leaves_of_a_node_takes_none_of_a_later_one() {
        let mut one = course(&timed(), 0..8, false);
        assert_eq!((one.nodes.len(), one.leaves_to_take()), (2, ALL));
        one.takes_next();
        assert_eq!(one.leaves_to_take(), 0);
        let mut other = course(&timed(), 0..8, false);
        takes_next_with_leaves(&mut other);
        assert_eq!(other.leaves_to_take(), ALL);
        takes_next_with_leaves(&mut other);
        assert_eq!((other.leaves_of, other.has_leaf(other.nodes[1].child(3))), (0b11, true));
    }

    #[test]
    fn leaves_are_taken_where_clocks_decide_and_with_the_node_above_them_alone() {
        for (lock, units, leaves) in [
            (Exclusive { wait_ns: None, ..timed() }, 4..8, 0),
            (Exclusive { is_fast: false, ..timed() }, 4..8, 0),
            (timed(), 0..16, 0),
            (timed(), 5..6, 0),
            (Exclusive { levels: 4, crown: 1, ..timed() }, 4..8, ALL),
            (Exclusive { levels: 4, crown: 1, ..timed() }, 20..24, 0),
        ] {
            assert_eq!(course(&lock, units.clone(), false).leaves_to_take(), leaves, "{units:?}");
        }
    }
}
