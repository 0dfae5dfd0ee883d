//! Where a request is, as its slot remembers it from one wait to the next.

use farlock_fabric::{Endpoint, word};

use super::course::{Course, Half, Plan};
use super::record::UnitsWord;
use super::take::Way;
use crate::site::Site;
use crate::want::{BlockNumbers, Mode};
use crate::width;

word! {
    /// What a slot keeps beside the units.
    struct PlaceWord: u64 {
        /// What the request has of its next node.
        STAGE stage: 3,
        /// Whether it is exclusive.
        EXCLUSIVE exclusive: 1,
        /// How many nodes it has.
        HAS has: 8,
        /// Its ticket at the next node, or the one by which that is to be had; of one that has
        /// claimed that how many units it takes, if it takes them one by one.
        TICKET ticket: 13,
        /// Of how many nodes it has the leaves as well: the first of those above leaves.
        LEAVES_OF leaves_of: 3,
        /// How many had left where that node was seen to be free; of one that waits a [`WaitWord`].
        LEFT left: 32,
        /// One more than the level at which it asks newcomers to wait; 0 at none.
        CALLED called: 4,
    }
}

word! {
    /// What a slot keeps besides of a request that waits: nobody has counted who has left.
    struct WaitWord: u64 {
        /// How many units of its next node it has.
        PART part: 6,
        /// Whether it takes them one by one.
        SINGLE single: 1,
        /// Whether it asks newcomers to wait by the word of readers.
        READERS readers: 1,
        /// Of its block, where it begins in one that is not the first.
        FIRST_BLOCK first_block: 12,
        /// The same where it ends.
        LAST_BLOCK last_block: 12,
        /// Nothing.
        SPARE spare: 32,
    }
}

const _: () = assert!(width::NODE_TICKETS <= 13, "a slot has room for a ticket of a node");

/// What a request has of its next node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Nothing.
    Nothing,
    /// A ticket.
    Line(u16),
    /// All, but there may be others below it.
    Claimed,
}

const SEEN: u64 = 1;
const NOTHING: u64 = 2;
const LINE: u64 = 3;
const CLAIMED: u64 = 4;
/// Nothing, and it asks newcomers to wait that want the unit for which it waits.
const CALLING: u64 = 5;

/// Keeps that the way to the first node of a request is free, or that nothing is known of it.
pub(super) fn keep_way<E: Endpoint>(site: &Site<'_, E>, way: Option<Way>) {
    let word = way.map_or(PlaceWord::new(), |way| {
        PlaceWord::new()
            .with(PlaceWord::STAGE, SEEN)
            .with(PlaceWord::TICKET, way.ticket.into())
            .with(PlaceWord::LEFT, way.left.into())
    });
    site.set_position(word.0);
}

/// Keeps what a request has that is about to wait.
pub(super) fn keep<E: Endpoint>(site: &Site<'_, E>, course: &Course, stage: Stage) {
    let (stage, ticket) = match stage {
        Stage::Nothing if course.passes.calls => (CALLING, 0),
        Stage::Nothing => (NOTHING, 0),
        Stage::Line(ticket) => (LINE, ticket),
        Stage::Claimed => (CLAIMED, course.run().into()),
    };
    let called = course.called;
    let [first, last] = course.plan.numbers.numbers();
    let by_readers = called.is_some_and(|(_, half)| half == Half::Readers);
    let wait = WaitWord::new()
        .with(WaitWord::PART, course.part.into())
        .with(WaitWord::SINGLE, course.is_one_by_one().into())
        .with(WaitWord::READERS, by_readers.into())
        .with(WaitWord::FIRST_BLOCK, first.into())
        .with(WaitWord::LAST_BLOCK, last.into());
    let word = PlaceWord::new()
        .with(PlaceWord::STAGE, stage)
        .with(PlaceWord::EXCLUSIVE, course.is_exclusive().into())
        .with(PlaceWord::HAS, course.has as u64)
        .with(PlaceWord::TICKET, ticket.into())
        .with(PlaceWord::LEAVES_OF, course.leaves_of.count_ones().into())
        .with(PlaceWord::LEFT, wait.0)
        .with(PlaceWord::CALLED, called.map_or(0, |(level, _)| u64::from(level) + 1));
    site.set_position(word.0);
    // Nobody stands behind it that it would have to know.
    site.set_behind(course.units_word());
}

/// What a slot has kept.
pub(super) enum Kept {
    /// Of a request that has not waited yet: the way to its first node, if that is free.
    New(Option<Way>),
    /// Of one that has: its tickets are not known.
    Waiting(Box<Course>, Stage),
}

/// What is kept of the request of this slot.
pub(super) fn kept<E: Endpoint>(site: &Site<'_, E>, plan: Plan) -> Kept {
    let (word, said) = (PlaceWord(site.position()), UnitsWord(site.successor_bits()));
    let ticket = word.ticket() as u16;
    let stage = match word.stage() {
        SEEN => return Kept::New(Some(Way { ticket, left: word.left() as u32 })),
        NOTHING | CALLING => Stage::Nothing,
        LINE => Stage::Line(ticket),
        CLAIMED => Stage::Claimed,
        _ => return Kept::New(None),
    };
    let mode = if word.exclusive() == 0 { Mode::Shared } else { Mode::Exclusive };
    let (is_part, units) = (said.part() != 0, said.start()..said.end());
    let wait = WaitWord(word.left());
    let ends = [wait.first_block(), wait.last_block()].map(|number| number as u16);
    let numbers = BlockNumbers::of_ends(plan.tree.far_ends(&units), ends);
    let mut course = Course::of(Plan { numbers, ..plan.as_said(said) }, mode, units, is_part);
    course.has = word.has() as usize;
    course.leaves_of = (1 << word.leaves_of()) - 1;
    if wait.single() != 0 {
        course.goes_one_by_one(wait.part() as u8);
        course.takes_run(if stage == Stage::Claimed { ticket as u8 } else { 1 });
    }
    let half = if wait.readers() == 0 { Half::Writers } else { Half::Readers };
    course.called = word.called().checked_sub(1).map(|level| (level as u8, half));
    course.passes.calls = word.stage() == CALLING;
    Kept::Waiting(Box::new(course), stage)
}
