//! The word of a node, and the verbs on it (section 3.4, figure 3); and that which counts grants.

use farlock_fabric::{MaskedCas, MaskedFaa, word};

use crate::width;

word! {
    /// The word of an internal node. Zero is free. That of a leaf has a bit for each unit.
    pub struct NodeWord: u64 {
        /// Whether it is occupied: newcomers below wait.
        OCC occ: 1,
        /// Whether a request for a node below waits until this one is left, and asks newcomers to
        /// wait for it.
        CALL call: 1,
        /// Whether tickets in line may be those of clients that have left: a waiter there looks.
        LOST lost: 1,
        /// Changes whenever a client leaves its ticket in line.
        STIR stir: 1,
        /// Tickets of this node given back.
        T_CNT t_cnt: 13 => width::NODE_TICKETS,
        /// Tickets of this node taken.
        T_MAX t_max: 13 => width::NODE_TICKETS,
        /// Of those below, how many have left.
        D_CNT d_cnt: 17 => width::NODE_COUNT,
        /// Of those below, how many have come.
        D_MAX d_max: 17 => width::NODE_COUNT,
    }
}

word! {
    /// The word that counts exclusive grants, in a line of its own in front of the tree.
    pub struct CountWord: u64 {
        /// Twice as many as there were, and claims that were undone.
        COUNT count: 48 => width::COUNT,
        /// Nothing.
        SPARE spare: 16,
    }
}

/// From one exclusive grant to the next. Between their tokens there is room for that of readers.
const GRANT: u64 = 2;

impl CountWord {
    /// The token of the exclusive grant that has added to this word.
    pub(super) const fn exclusive(self) -> u64 {
        self.count().wrapping_add(1) & Self::COUNT.max()
    }

    /// The token of a shared grant that has read this word.
    pub(super) const fn shared(self) -> u64 {
        self.count()
    }

    /// Which wraps after so many exclusive grants.
    pub(super) const fn before(grants: u16) -> Self {
        Self::new().with(Self::COUNT, (grants as u64 * GRANT).wrapping_neg())
    }
}

/// Counts an exclusive grant.
pub(super) const COUNT_GRANT: MaskedFaa<u64> = MaskedFaa {
    add: CountWord::new().with(CountWord::COUNT, GRANT).0,
    boundary: CountWord::BOUNDARY,
};

/// As many are in line at a node and those that come wait: so counts stay far enough apart to tell,
/// whatever was added at the same time.
const LINE_CROWD: u16 = 1 << (width::NODE_TICKETS - 1);
/// The same of those below it.
const CROWD_BELOW: u32 = 1 << (width::NODE_COUNT - 1);

/// The largest ticket. Tickets wrap.
const TICKET_MAX: u16 = NodeWord::T_MAX.max() as u16;

/// The next ticket.
pub(super) const fn after(ticket: u16) -> u16 {
    ticket.wrapping_add(1) & TICKET_MAX
}

const fn bits(mask: u128) -> u64 {
    mask as u64
}

pub(super) const OCC: u64 = bits(NodeWord::OCC.mask());
pub(super) const CALL: u64 = bits(NodeWord::CALL.mask());
pub(super) const LOST: u64 = bits(NodeWord::LOST.mask());
const STIRRED: u64 = bits(NodeWord::STIR.mask());
pub(super) const T_CNT: u64 = bits(NodeWord::T_CNT.mask());
pub(super) const T_MAX: u64 = bits(NodeWord::T_MAX.mask());
pub(super) const D_CNT: u64 = bits(NodeWord::D_CNT.mask());
const D_MAX: u64 = bits(NodeWord::D_MAX.mask());

/// What tells of the line, if tickets in it may be lost.
pub(super) const LINE: u64 = T_CNT | T_MAX | LOST | STIRRED;

/// This bit of the turn.
pub(super) const fn turn_bit(bit: u32) -> u64 {
    NodeWord::new().with(NodeWord::T_CNT, 1 << bit).0
}

impl NodeWord {
    /// The ticket whose turn it is.
    pub(super) const fn turn(self) -> u16 {
        self.t_cnt() as u16
    }

    /// The next ticket.
    pub(super) const fn next_ticket(self) -> u16 {
        self.t_max() as u16
    }

    /// How many have a ticket.
    pub(super) const fn in_line(self) -> u16 {
        self.before(self.t_max() as u16)
    }

    /// Whether nobody has a ticket. An owner has one: where there is none, what occupies the node
    /// was written by no client, and is found to be nobody's by those that wait for it.
    pub(super) const fn is_free(self) -> bool {
        self.0 & OCC == 0 && self.in_line() == 0
    }

    /// Whether it is the turn of this ticket, whose owner has not occupied the node.
    pub(super) const fn is_turn_of(self, ticket: u16) -> bool {
        self.0 & OCC == 0 && self.turn() == ticket
    }

    /// How many in line have one before this.
    pub(super) const fn before(self, ticket: u16) -> u16 {
        ticket.wrapping_sub(self.turn()) & TICKET_MAX
    }

    /// The line. It changes with the turn, and with each lost ticket.
    pub(super) const fn line(self) -> u64 {
        self.0 & LINE
    }

    /// The line, if tickets in it may be lost.
    pub(super) const fn line_of_lost(self) -> Option<u64> {
        if self.lost() == 0 { None } else { Some(self.line()) }
    }

    /// How many below it have come and not left.
    pub(super) const fn below(self) -> u32 {
        (self.d_max().wrapping_sub(self.d_cnt()) & Self::D_MAX.max()) as u32
    }

    /// Whether so many are in line or below it that no more may come.
    pub(super) const fn is_crowded(self) -> bool {
        self.is_line_crowded() || self.below() >= CROWD_BELOW
    }

    /// The same of those in line alone.
    pub(super) const fn is_line_crowded(self) -> bool {
        self.in_line() >= LINE_CROWD
    }

    const fn with_turn(self, ticket: u16) -> Self {
        self.with(Self::T_CNT, ticket as u64)
    }
}

/// Takes the bits of a leaf, if all of them are free.
pub(super) const fn take(mask: u64) -> MaskedCas<u64> {
    MaskedCas { compare: 0, compare_mask: mask, swap: mask, swap_mask: mask }
}

/// Gives the bits of a leaf back, if all of them are taken.
pub(super) const fn give_back(mask: u64) -> MaskedCas<u64> {
    MaskedCas { compare: mask, compare_mask: mask, swap: 0, swap_mask: mask }
}

/// Takes this ticket and occupies the node, if nobody has a ticket. So none is lost.
pub(super) const fn occupy_free(ticket: u16) -> MaskedCas<u64> {
    let free = NodeWord::new().with_turn(ticket).with(NodeWord::T_MAX, ticket as u64);
    let swap = NodeWord::new().with(NodeWord::T_MAX, after(ticket) as u64).with(NodeWord::OCC, 1);
    MaskedCas {
        compare: free.0,
        compare_mask: T_CNT | T_MAX | OCC,
        swap: swap.0,
        swap_mask: T_MAX | OCC | LOST,
    }
}

/// Occupies the node, if it is this ticket's turn.
pub(super) const fn occupy(ticket: u16) -> MaskedCas<u64> {
    let turn = NodeWord::new().with_turn(ticket);
    MaskedCas { compare: turn.0, compare_mask: T_CNT | OCC, swap: OCC, swap_mask: OCC }
}

/// Gives back the ticket whose turn it is, and what it has occupied.
pub(super) const fn vacate(ticket: u16, occupied: bool) -> MaskedCas<u64> {
    let turn = NodeWord::new().with_turn(ticket).with(NodeWord::OCC, occupied as u64);
    let swap = NodeWord::new().with_turn(after(ticket));
    let mask = T_CNT | OCC;
    MaskedCas { compare: turn.0, compare_mask: mask, swap: swap.0, swap_mask: mask }
}

/// Gives back all tickets before this `next` one, if nobody has taken or given back any since the
/// word was as `seen`.
pub(super) const fn pass_to(seen: NodeWord, next: u16) -> MaskedCas<u64> {
    let swap = NodeWord::new().with_turn(next);
    let compare_mask = T_CNT | T_MAX | OCC;
    MaskedCas { compare: seen.0, compare_mask, swap: swap.0, swap_mask: T_CNT | OCC }
}

/// Counts those below as left for whom `living` are still there, if nobody has come or left since
/// the word was as `seen`.
pub(super) const fn recount(seen: NodeWord, living: u32) -> MaskedCas<u64> {
    let swap = NodeWord::new().with(NodeWord::D_CNT, seen.d_max().wrapping_sub(living as u64));
    MaskedCas { compare: seen.0, compare_mask: D_CNT | D_MAX, swap: swap.0, swap_mask: D_CNT }
}

/// Counts readers of the node as left for whom `living` are still there, if none has come or left
/// since the word was as `seen`.
pub(super) const fn recount_here(seen: NodeWord, living: u16) -> MaskedCas<u64> {
    let swap = NodeWord::new().with(NodeWord::T_CNT, seen.t_max().wrapping_sub(living as u64));
    MaskedCas { compare: seen.0, compare_mask: T_CNT | T_MAX, swap: swap.0, swap_mask: T_CNT }
}

/// Says that a ticket in line is lost.
pub(super) const LOSE: MaskedCas<u64> =
    MaskedCas { compare: 0, compare_mask: 0, swap: LOST, swap_mask: LOST };

/// Asks newcomers to wait.
pub(super) const CALL_OUT: MaskedCas<u64> =
    MaskedCas { compare: 0, compare_mask: 0, swap: CALL, swap_mask: CALL };
/// Asks them no more.
pub(super) const HUSH: MaskedCas<u64> =
    MaskedCas { compare: 0, compare_mask: 0, swap: 0, swap_mask: CALL };

/// Whether a compare that found this word has swapped it.
pub(super) const fn swapped(op: &MaskedCas<u64>, old: u64) -> bool {
    (old ^ op.compare) & op.compare_mask == 0
}

const fn adding(word: NodeWord) -> MaskedFaa<u64> {
    MaskedFaa { add: word.0, boundary: NodeWord::BOUNDARY }
}

/// Nothing more. What comes after it in a chain takes effect after it.
pub(super) const STAY: MaskedFaa<u64> = adding(NodeWord::new());
/// One more in line; of readers, one more here.
pub(crate) const GET_IN_LINE: MaskedFaa<u64> = adding(NodeWord::new().with(NodeWord::T_MAX, 1));
/// A ticket in line was lost.
pub(super) const STIR: MaskedFaa<u64> = adding(NodeWord::new().with(NodeWord::STIR, 1));
/// A reader has left.
pub(super) const LEAVE: MaskedFaa<u64> = adding(NodeWord::new().with(NodeWord::T_CNT, 1));
/// One more below.
pub(crate) const NOTIFY: MaskedFaa<u64> = adding(NodeWord::new().with(NodeWord::D_MAX, 1));
/// One below has come and left.
pub(super) const COME_AND_GO: MaskedFaa<u64> =
    adding(NodeWord::new().with(NodeWord::D_CNT, 1).with(NodeWord::D_MAX, 1));
/// One below has left.
pub(crate) const RETRACT: MaskedFaa<u64> = adding(NodeWord::new().with(NodeWord::D_CNT, 1));

#[cfg(test)]
mod tests {
    use farlock_fabric::verb::{masked_cas64, masked_faa64};

    use super::*;

    #[test]
    fn a_ticket_is_taken_occupies_and_is_given_back_across_the_wrap() {
        let last = TICKET_MAX;
        let mut word = NodeWord::new().with_turn(last).with(NodeWord::T_MAX, last.into());
        for ticket in [last, 0] {
            word = NodeWord(masked_cas64(word.0, &occupy_free(ticket)).expect("it is free"));
            assert_eq!((word.occ(), word.in_line()), (1, 1));
            assert_eq!(masked_cas64(word.0, &occupy_free(word.next_ticket())), None);
            word = NodeWord(masked_faa64(word.0, &GET_IN_LINE));
            assert_eq!(word.in_line(), 2);
            assert_eq!(masked_cas64(word.0, &occupy(after(ticket))), None, "not its turn");
            word = NodeWord(masked_cas64(word.0, &vacate(ticket, true)).expect("it has it"));
            word = NodeWord(masked_cas64(word.0, &occupy(after(ticket))).expect("its turn"));
            word = NodeWord(masked_cas64(word.0, &vacate(after(ticket), true)).expect("its turn"));
            assert_eq!((word.occ(), word.in_line()), (0, 0));
            word = word.with_turn(0).with(NodeWord::T_MAX, 0);
        }
    }

    #[test]
    fn those_below_are_recounted_unless_somebody_came_meanwhile() {
        let three = (0..3).fold(0, |word, _| masked_faa64(word, &NOTIFY));
        let one_left = NodeWord(masked_faa64(three, &RETRACT));
        assert_eq!(one_left.below(), 2);
        let recounted = masked_cas64(one_left.0, &recount(one_left, 1)).expect("as seen");
        assert_eq!(NodeWord(recounted).below(), 1);
        let came = masked_faa64(one_left.0, &NOTIFY);
        assert_eq!(masked_cas64(came, &recount(one_left, 1)), None);
    }
}
