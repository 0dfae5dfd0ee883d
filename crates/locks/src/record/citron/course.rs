//! What one request has and is about to have, and how its slot record says so.

use std::ops::Range;

use farlock_fabric::verb::{CHAIN_MAX, Link};
use farlock_fabric::{Addr, Endpoint, Fault, Nanos, Posted, Verb};
use smallvec::{SmallVec, smallvec};

use super::passes::Passes;
use super::split::{NODES_INLINE, Nodes};
use super::tree::{Levels, Lies, NODE_BYTES, Node, Tree};
use super::word::CALL;
use crate::lock::Tuning;
use crate::shelf::Shelf;
use crate::slot::Phase;
use crate::want::{BlockNumbers, Mode};

/// Verbs that go out with one doorbell. It lives where it is posted from: neither in the heap nor
/// in what waits for the verbs.
pub(super) type Chain = SmallVec<[Link<'static>; CHAIN_MAX]>;

/// Posts these verbs with one doorbell.
#[inline]
pub(super) fn post<E: Endpoint>(
    endpoint: &E,
    verbs: impl Iterator<Item = Verb<'static>>,
) -> Posted {
    let mut chain = Chain::new();
    chain.extend(verbs.map(Link::from));
    endpoint.post_chain(&chain)
}

/// Executes these verbs, which may be none or more than one doorbell takes.
pub(super) async fn execute<E: Endpoint>(
    endpoint: &E,
    verbs: impl Iterator<Item = Verb<'static>>,
) -> Result<(), Fault> {
    let mut verbs = verbs.peekable();
    while verbs.peek().is_some() {
        endpoint.completion(post(endpoint, verbs.by_ref().take(CHAIN_MAX))).await?;
    }
    Ok(())
}

/// The words of a node: that of writers, and, where readers share, behind it theirs. In the second
/// one the line is that of those inside, who need no turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Half {
    Writers,
    Readers,
}

impl Half {
    /// The word that counts those who want a node in this mode.
    pub(super) const fn of(mode: Mode) -> Self {
        match mode {
            Mode::Exclusive => Self::Writers,
            Mode::Shared => Self::Readers,
        }
    }
}

/// Where a request asks newcomers to wait.
pub(super) type Call = (u8, Half);

/// How the nodes of a lock are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    pub(super) tree: Tree,
    /// Where blocks lie that are not behind the lock's own words.
    pub(super) blocks: Option<Addr>,
    /// Which of them those of the request are.
    pub(super) numbers: BlockNumbers,
    /// Into how many nodes a range is split at most; `None`: into those that have its units alone.
    pub(super) nodes_max: Option<usize>,
    /// Whether a request has no units beside those that it wants in its hands while it waits.
    pub(super) refines: bool,
    /// Every how manyth level above its own a client notifies.
    pub(super) notifies: u8,
    /// Within how many levels the owner of a node looks.
    pub(super) distance: u8,
    /// For how long the owner of a node waits before it looks below, where no client looks above
    /// once more.
    pub(super) wait_ns: Option<Nanos>,
    /// Within how long a client must have claimed a node then.
    pub(super) in_time_ns: Nanos,
    /// The parameters that its lock begins with, if they may change.
    pub(super) first: Option<Tuning>,
    /// By which change it works then, as records tell them apart.
    pub(super) change: u64,
    /// Whether who claims a node above leaves takes all bits of these with it.
    pub(super) is_fast: bool,
    /// Whether nodes have a word for readers as well.
    pub(super) shares: bool,
    /// Whether requests are exempt from who occupies a node above one of theirs.
    pub(super) exempts: bool,
    /// Whether grants are counted.
    pub(super) counts: bool,
    /// How often a request gives all back for others.
    pub(super) steps_back_max: u8,
    /// How often others may come before a request that waits for units of a leaf, until it takes
    /// them one by one.
    pub(super) outrun_max: u8,
    /// Where clients of several locks write down what they hold that has no slot.
    pub(super) shelf: Option<Shelf>,
    /// Blocks of the lock's own shelf, behind its tree.
    pub(super) shelf_blocks: u16,
    /// Whether clients look at shelves before they look at slots.
    pub(super) shelf_first: bool,
    /// Whether they look again if a hold has gone from one record to others meanwhile.
    pub(super) minds_moves: bool,
    /// Whether parts of holds are counted by all above them.
    pub(super) counts_parts: bool,
    /// Whether a writer that waits for readers of a node asks newcomers at all nodes above that to
    /// wait as well.
    pub(super) calls_above: bool,
    /// Whether newcomers wait where they are asked to.
    pub(super) heeds_calls: bool,
    /// How often others are seen to have come before a waiter for a unit, until it asks newcomers
    /// to wait; `None`: it never does.
    pub(super) calls_after: Option<u8>,
}

/// Where the tree begins, in bytes from the word that counts grants, which has a line of its own.
pub(super) const TREE: u64 = 64;
/// Where the word lies that counts how often a hold has gone from one record to others.
const MOVES: u64 = 16;

impl Plan {
    /// Whether exclusion rests on what clocks show.
    pub(super) const fn is_timed(&self) -> bool {
        self.wait_ns.is_some()
    }

    /// How many words a node has.
    pub(super) const fn halves(&self) -> u16 {
        1 + self.shares as u16
    }

    /// Where the word lies that counts how often a hold has gone from one record to others.
    pub(super) const fn moves(lock: Addr) -> Addr {
        lock.plus(MOVES)
    }

    /// How long so many nodes are.
    const fn bytes_of(&self, nodes: u32) -> u64 {
        nodes as u64 * NODE_BYTES * self.halves() as u64
    }

    /// How long a block is.
    pub(super) const fn block_bytes(&self) -> u64 {
        self.bytes_of(self.tree.nodes_of_block()).next_multiple_of(TREE)
    }

    /// Where one of a node's words lies. Of what is in a block a client must know which one.
    #[inline]
    pub(super) fn word(&self, lock: Addr, node: Node, half: Half) -> Addr {
        let (base, behind) = match self.tree.lies(node) {
            Lies::Near(behind) => (lock.plus(TREE), behind),
            Lies::InBlock(subtree, behind) => (self.block(lock, subtree), behind),
        };
        let offset = self.bytes_of(behind);
        base.plus(offset + if matches!(half, Half::Readers) { NODE_BYTES } else { 0 })
    }

    /// Where the block of a subtree lies that is not the first.
    #[cold]
    fn block(&self, lock: Addr, subtree: u32) -> Addr {
        match self.blocks {
            None => lock.plus(self.own_end() + u64::from(subtree - 1) * self.block_bytes()),
            Some(blocks) => {
                let number = self.numbers.of(subtree).expect("a request knows its blocks");
                blocks.plus(u64::from(number) * self.block_bytes())
            }
        }
    }

    /// Where the lock's own words end.
    const fn own_end(&self) -> u64 {
        let end = TREE + self.bytes_of(self.tree.nodes_by_lock());
        if self.tree.crown == 0 { end } else { end.next_multiple_of(TREE) }
    }

    /// Where all ends that lies there.
    const fn tree_end(&self) -> u64 {
        let blocks = if self.blocks.is_none() { self.tree.blocks() } else { 0 };
        let end = self.own_end() + blocks as u64 * self.block_bytes();
        if self.shelf_blocks == 0 { end } else { end.next_multiple_of(TREE) }
    }

    /// The shelf of this lock.
    pub(super) fn shelf_of(&self, lock: Addr) -> Option<Shelf> {
        self.shelf.or_else(|| self.own_shelf_of(lock))
    }

    /// The one behind its tree, where every hold is written down.
    pub(super) fn own_shelf_of(&self, lock: Addr) -> Option<Shelf> {
        let shelf = Shelf::new(lock.plus(self.tree_end()), self.shelf_blocks);
        (self.shelf_blocks > 0).then_some(shelf)
    }

    /// Where all ends that the lock has, in bytes from its first word.
    pub(super) const fn end(&self) -> u64 {
        match self.shelf_blocks {
            0 => self.tree_end(),
            blocks => self.tree_end() + Shelf::bytes(blocks),
        }
    }

    /// Whether this asks newcomers to wait by this word of a node at this level.
    fn calls(&self, (at, by): Call, level: u8, half: Half) -> bool {
        let is_above = level < at && half == Half::Readers && self.calls_above;
        by == half && (level == at || is_above)
    }

    /// The nodes of a request for these units, or of a part of what was held before.
    fn nodes(&self, units: &Range<u64>, is_part: bool) -> Nodes {
        if is_part { self.tree.exact_cover(units) } else { self.split(units) }
    }

    /// The nodes of a request for these units.
    pub(super) fn split(&self, units: &Range<u64>) -> Nodes {
        match self.nodes_max {
            Some(most) => self.tree.split(units, most),
            None => self.tree.exact_cover(units),
        }
    }
}

/// How often a client looks around that has parts of what it wants, before it gives them back for a
/// while. It looks for the second time after some 10 ms, and each time waits twice as long, or no
/// longer than 40 ms where it looks often.
const LOOKS_IN_VAIN: u8 = 2;
/// How often it waits about twice as long as the time before: up to 2.5 s.
const STEPS_BACK_MAX: u8 = 7;

/// How long a request has nothing that has stepped back, in nanoseconds: until those it kept out
/// have come in. It rests for longer, by pauses of which each is twice as long, while one waits
/// that it is to let through.
pub(super) const STEP_BACK_NS: Nanos = 1_000_000;

/// How long a request that has something of which others may have need waits for a compare that is
/// held back, in nanoseconds.
const BRIEFLY_NS: Nanos = 1_000_000;

/// How long a request that was held back in vain waits until it asks again, at first, in
/// nanoseconds: each time for twice as long.
const ASK_AGAIN_NS: Nanos = 100_000;
/// How often it does: up to 1.6 s.
const ASKED_MAX: u8 = 14;
/// After so many claims in a row that were late a request rests before it begins the next one.
const LATE_IN_A_ROW: u8 = 4;
/// How often the bound of such rests is doubled: up to 1 ms, where owners wait for 15 us.
const RESTS_DOUBLED_MAX: u8 = 6;

/// How often it pauses for those it lets through, each time for twice as long, at least.
const PAUSES_LEAST: u8 = 3;

/// Where a request stands at its next node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stand {
    pub(super) phase: Phase,
    /// Whether it may have bits of the node, or be counted for it.
    pub(super) claims: bool,
    /// The ticket of the node that it has, or is about to have.
    pub(super) ticket: Option<u16>,
}

/// The tickets of a request's nodes.
type TicketsOfNodes = SmallVec<[u16; NODES_INLINE]>;

/// A request on its way.
#[derive(Clone, Debug)]
pub(super) struct Course {
    pub(super) plan: Plan,
    pub(super) mode: Mode,
    units: (u64, u64),
    pub(super) nodes: Nodes,
    /// How many of them it has.
    pub(super) has: usize,
    /// How many units of the next one it has, if that is a leaf of which it takes one by one.
    pub(super) part: u8,
    /// Whether it does: else others could come for some of them again and again, of which it never
    /// finds all free.
    pub(super) one_by_one: bool,
    /// How many it takes next then: more than one where it has just seen them free.
    run: u8,
    /// How often others came before it, while it waited for units of the next one.
    pub(super) outrun: u8,
    /// What it has seen of them, where it waits for one.
    pub(super) passes: Passes,
    /// The tickets of those which are internal, of a writer.
    pub(super) tickets: TicketsOfNodes,
    /// Of which of its nodes above leaves, from the left on, it has all bits of these as well.
    pub(super) leaves_of: u8,
    /// Of the four leaves below its next node, those of which it has all bits, or may have.
    pub(super) leaves: u8,
    /// Whether it only clears bits of the dead below its node.
    pub(super) cleans: bool,
    /// How often an attempt has waited for others, if it is one.
    pub(super) tries: Option<u8>,
    /// Whether it has waited for bits of the next node: others come for them at the same time.
    pub(super) contends: bool,
    /// Whether it asks for bits of the next node that others had when it looked.
    pub(super) asks: bool,
    /// How often it has asked so in vain.
    asked: u8,
    /// How often it had found the living in its way, and others that wait for what it has, when it
    /// asked last.
    pub(super) in_vain: u8,
    /// At which level above its next node it asks newcomers to wait, and in which word; in that of
    /// readers at all levels above that one as well.
    pub(super) called: Option<Call>,
    /// Whether it may be both, a reader and a writer: see [`ReachWord`].
    pub(super) both: bool,
    /// Whether it is for a part of what its client held before: see [`UnitsWord::PART`].
    pub(super) is_part: bool,
    /// What it takes a part of, while its client holds that as well.
    pub(super) whole: Option<Box<Self>>,
    /// Where units end that its client holds to the left of these, by other requests, and those
    /// that it holds as a writer.
    held_before: [u64; 2],
    /// How often in a row it was late for the owners above its next node.
    late: u8,
    /// How often it has given all back for others that may wait for it.
    steps_back: u8,
    /// The count of its token, once it has one that is above those of all before it.
    pub(super) token: Option<u64>,
}

impl Course {
    /// One that has nothing yet.
    pub(super) fn new(plan: Plan, mode: Mode, units: Range<u64>) -> Self {
        Self::of(plan, mode, units, false)
    }

    /// The same for a part of what is held as `whole`.
    pub(super) fn of_part(units: Range<u64>, whole: Self, numbers: BlockNumbers) -> Self {
        let plan = Plan { counts: false, numbers, ..whole.plan };
        let part = Self::of(plan, whole.mode, units, true);
        Self { whole: Some(Box::new(whole)), ..part }
    }

    /// The same, or for a part of what was held before.
    pub(super) fn of(plan: Plan, mode: Mode, units: Range<u64>, is_part: bool) -> Self {
        let nodes = plan.nodes(&units, is_part);
        let units = (units.start, units.end);
        let tickets = smallvec![0; nodes.len()];
        Self {
            plan,
            mode,
            units,
            nodes,
            has: 0,
            part: 0,
            one_by_one: false,
            run: 1,
            outrun: 0,
            passes: Passes::default(),
            tickets,
            leaves_of: 0,
            leaves: 0,
            cleans: false,
            tries: None,
            contends: false,
            asks: false,
            asked: 0,
            in_vain: 0,
            called: None,
            both: false,
            is_part,
            whole: None,
            held_before: [0; 2],
            late: 0,
            steps_back: 0,
            token: None,
        }
    }

    /// The same of a client that holds units before these until it has them.
    pub(super) fn behind(self, held_before: [u64; 2]) -> Self {
        Self { held_before, ..self }
    }

    /// Whether its client holds units to the left, which it keeps until it has these.
    pub(super) const fn is_behind(&self) -> bool {
        self.held_before[0] > 0
    }

    /// Whether one that waits for this one, and is behind others if `behind`, goes first: this one
    /// may wait for what that client holds. If both clients hold something the one that wants what
    /// lies further to the right does: of a circle of such requests one always waits for another
    /// that begins to its left.
    pub(super) const fn lets_through(&self, behind: bool, start: u64) -> bool {
        behind && (!self.is_behind() || self.units.0 < start)
    }

    /// The same that `wanted` is behind.
    pub(super) fn behind_as(self, wanted: &Self) -> Self {
        self.behind(wanted.held_before)
    }

    /// One for the same units, which has nothing yet, and takes nothing beside them.
    pub(super) fn refined(&self) -> Self {
        let (steps_back, held_before) = (self.steps_back, self.held_before);
        Self { steps_back, held_before, ..Self::of(self.plan, self.mode, self.units(), true) }
    }

    /// Whether it is to take nothing beside what it wants before it waits with some of its nodes,
    /// or with the next one if it has `claimed` that.
    pub(super) fn is_to_refine(&self, claimed: bool) -> bool {
        let has_some = claimed || self.has > 0;
        let is_exact = || *self.nodes == *self.plan.tree.exact_cover(&self.units());
        self.plan.refines && has_some && !self.is_part && !is_exact()
    }

    /// It is an attempt.
    pub(super) fn tries(&mut self) {
        self.tries = Some(0);
    }

    /// What it has, as one that has it in this mode alone.
    pub(super) fn in_mode(&self, mode: Mode) -> Self {
        Self { mode, both: false, token: None, ..self.clone() }
    }

    /// The same of one that may be both.
    pub(super) fn in_both_modes(&self) -> Self {
        Self { both: true, ..self.in_mode(Mode::Exclusive) }
    }

    /// The same, with the node of this number as the next one.
    pub(super) fn at(&self, number: usize) -> Self {
        Self { has: number, ..self.clone() }
    }

    /// The same for a cleaner.
    pub(super) fn cleaning(self) -> Self {
        Self { cleans: true, ..self }
    }

    /// It has its next node, or some more units of that, and goes on to what is behind.
    pub(super) fn takes_next(&mut self) {
        (self.contends, self.late) = (false, 0);
        match self.completes_next() {
            true => {
                self.has += 1;
                self.passes = Passes::default();
                self.begins_next();
            }
            false => self.part += self.run,
        }
    }

    /// It has nothing of its next node.
    fn begins_next(&mut self) {
        (self.part, self.one_by_one, self.run, self.outrun) = (0, false, 1, 0);
        (self.asked, self.in_vain) = (0, 0);
    }

    /// It has asked in vain for bits that others have, which was held back or not.
    pub(super) fn asked_in_vain(&mut self, was_held_back: bool) {
        self.asked = (self.asked + u8::from(was_held_back)).min(ASKED_MAX);
    }

    /// How long it waits for those that have them until it asks again, in nanoseconds.
    pub(super) const fn asks_again_ns(&self) -> Nanos {
        ASK_AGAIN_NS << self.asked
    }

    /// How long what takes bits for it is held back at most: while it is the request gives nothing
    /// back for others.
    pub(super) fn patience_ns(&self) -> Nanos {
        let has_nothing = self.reached(false).0.is_empty() && !self.is_behind();
        if has_nothing { Nanos::MAX } else { BRIEFLY_NS }
    }

    /// It has nothing any more.
    pub(super) fn has_given_back(&mut self) {
        (self.has, self.leaves_of, self.token) = (0, 0, None);
        self.begins_next();
    }

    /// Whether others may come before it again and again: it takes several units of a leaf at once.
    pub(super) fn can_be_outrun(&self) -> bool {
        self.mask().is_some_and(|mask| mask.count_ones() > 1)
    }

    /// The node above its next one.
    pub(super) fn next_parent(&self) -> Option<Node> {
        self.nodes.get(self.has)?.parent()
    }

    /// The word of that by which those are asked to wait that come for units of its next leaf.
    pub(super) fn word_above_leaf(&self, lock: Addr) -> Addr {
        let above = self.next_parent().expect("a leaf is not the root");
        self.plan.word(lock, above, Half::Writers)
    }

    /// The units of its next leaf that it takes next, and how it is to have them.
    pub(super) fn units_to_take(&self) -> (u64, Mode) {
        (self.mask().expect("a leaf has units"), self.mode)
    }

    /// Whether it waits for one unit of its next node, if it waits for units.
    fn waits_for_one(&self) -> bool {
        self.one_by_one || self.units_wanted() == 1
    }

    /// It has looked around while it waits for units, which one holds by this token. Whether one
    /// has come before it though it calls: others may have taken its call back.
    pub(super) fn looks_for_passes(&mut self, holder: Option<u64>) -> bool {
        holder.is_some_and(|token| self.passes.sees(token)) && self.passes.calls
    }

    /// Whether it has seen others come before it often enough to ask newcomers to wait.
    fn is_passed(&self) -> bool {
        let is_enough = |after| self.passes.are_enough(after);
        self.whole.is_none() && self.plan.calls_after.is_some_and(is_enough)
    }

    /// Whether it is to ask those newcomers to wait that want the unit for which it waits, where it
    /// waits for one.
    pub(super) fn is_to_call_for_unit(&self) -> bool {
        self.waits_for_one() && self.is_passed()
    }

    /// Whether it is to take units one by one, so that it waits for one.
    pub(super) fn is_passed_at_several(&self) -> bool {
        !self.waits_for_one() && self.is_passed()
    }

    /// Whether it takes the units of its next node one by one.
    pub(super) const fn is_one_by_one(&self) -> bool {
        self.one_by_one
    }

    /// It takes the units of the next node one by one from now on, of which it may have some.
    pub(super) fn goes_one_by_one(&mut self, part: u8) {
        (self.one_by_one, self.part, self.run, self.outrun) = (true, part, 1, 0);
    }

    /// It takes so many units of its next node next, if it takes those one by one.
    pub(super) const fn takes_run(&mut self, units: u8) {
        self.run = units;
    }

    /// It takes all units next that it has not, if it takes those one by one, and has not waited
    /// for the first of them: others would come for some of the others again and again.
    pub(super) fn takes_the_rest(&mut self) {
        if self.one_by_one && !self.contends {
            self.run = self.units_wanted() as u8 - self.part;
        }
    }

    /// It takes as many of them as are free where the word is as `seen`. Whether there are some.
    pub(super) fn takes_the_free(&mut self, seen: u64) -> bool {
        let Some(bits) = self.bits().filter(|_| self.one_by_one) else { return false };
        let free = (seen & bits).trailing_zeros() - bits.trailing_zeros();
        self.run = (free as u8).clamp(1, self.run);
        free > 0
    }

    /// How many units of its next node it takes next, if it takes those one by one.
    pub(super) const fn run(&self) -> u8 {
        self.run
    }

    /// How many units of its next node it wants.
    fn units_wanted(&self) -> u32 {
        self.mask_of(self.next()).map_or(0, u64::count_ones)
    }

    /// Whether it has its next node when it has taken what it takes next.
    #[inline]
    fn completes_next(&self) -> bool {
        !self.one_by_one || u32::from(self.part) + u32::from(self.run) == self.units_wanted()
    }

    /// It was late for the owners above its next node. For how long it rests then at most, in
    /// nanoseconds, if that was so several times: where all are late, since they are many, fewer
    /// are to go on.
    pub(super) fn comes_late(&mut self) -> Option<Nanos> {
        self.late = self.late.saturating_add(1);
        let doublings = self.late.checked_sub(LATE_IN_A_ROW)?.min(RESTS_DOUBLED_MAX);
        self.plan.wait_ns.map(|wait_ns| wait_ns << doublings)
    }

    /// It has given all back, so that others go on that wait for it, and for which it waits.
    pub(super) fn steps_back(&mut self) {
        self.steps_back = (self.steps_back + 1).min(STEPS_BACK_MAX);
    }

    /// How long it then pauses at most, in nanoseconds, while others are to be let through: the
    /// longer the oftener it was in their way.
    pub(super) const fn rest_ns_max(&self) -> Nanos {
        STEP_BACK_NS << (PAUSES_LEAST + self.steps_back)
    }

    /// Whether it may give back what it has for others.
    pub(super) const fn may_step_back(&self) -> bool {
        self.steps_back < self.plan.steps_back_max
    }

    /// Whether it is to, after it has looked around so often and found the living in its way: the
    /// later the oftener it has done so already.
    pub(super) const fn is_to_step_back(&self, looks: u8, often: bool) -> bool {
        // Which takes as long: so many times 40 ms more, or so many times twice as long as before.
        let more = if often { (1 << self.steps_back) / 2 } else { self.steps_back };
        self.may_step_back() && looks >= LOOKS_IN_VAIN + more
    }

    /// Whether it may give back what it has, or `claims`, for others that wait for that.
    pub(super) fn may_be_awaited(&self, claims: bool) -> bool {
        self.may_step_back() && !self.reached(claims).0.is_empty()
    }

    /// Whether one that wants this may go on with what this one has: for the same units, and none
    /// beside them if it is to have none.
    pub(super) fn serves(&self, wanted: &Self) -> bool {
        let is_same = (self.units, self.mode) == (wanted.units, wanted.mode);
        is_same && (self.is_part || !wanted.is_part)
    }

    /// It has all of them, by tickets of which these are the first.
    pub(super) fn completes(&mut self, tickets: &[u16]) {
        self.has = self.nodes.len();
        let known = self.has.min(tickets.len());
        self.tickets[..known].copy_from_slice(&tickets[..known]);
    }

    pub(super) fn units(&self) -> Range<u64> {
        self.units.0..self.units.1
    }

    pub(super) fn is_exclusive(&self) -> bool {
        self.mode == Mode::Exclusive
    }

    /// Where it goes on to ask newcomers to wait while it waits at its next node.
    pub(super) fn kept_call(&self) -> Option<Call> {
        self.called.filter(|call| self.plan.calls_above && call.1 == Half::Readers)
    }

    /// The words of nodes above its next one by which this asks newcomers to wait, and `beside`
    /// does not.
    pub(super) fn words_called(
        &self,
        lock: Addr,
        call: Option<Call>,
        beside: Option<Call>,
    ) -> impl Iterator<Item = Addr> + Clone {
        let (next, plan) = (self.next(), self.plan);
        let half = call.map_or(Half::Writers, |call| call.1);
        let calls = move |by: Option<Call>, level| by.is_some_and(|by| plan.calls(by, level, half));
        let levels = (0..next.level()).filter(move |&at| calls(call, at) && !calls(beside, at));
        levels.map(move |level| plan.word(lock, next.at_level(level), half))
    }

    /// Whether it asks newcomers to wait by this word of this node.
    pub(super) fn calls_by(&self, node: Node, half: Half) -> bool {
        let calls = |by: Call| self.plan.calls(by, node.level(), half);
        self.called.is_some_and(calls) && node.is_above(self.next())
    }

    /// The bits of this word that it minds because it has asked newcomers there to wait: others may
    /// take that back.
    pub(super) fn minded_by_caller(&self, node: Node, half: Half) -> u64 {
        if self.calls_by(node, half) { CALL } else { 0 }
    }

    /// The ticket by which a writer has the next node, if that is internal.
    pub(super) fn ticket(&self) -> Option<u16> {
        let has_one = self.is_exclusive() && self.mask().is_none();
        has_one.then(|| self.tickets[self.has])
    }

    pub(super) fn is_complete(&self) -> bool {
        self.has == self.nodes.len()
    }

    /// Whether the node that it is about to have is its last, with which its grant is counted. Not
    /// with a time to wait: a claim reads nothing then by which a token could be told to be void.
    pub(super) fn counts_next(&self) -> bool {
        self.plan.counts
            && !self.plan.is_timed()
            && self.has + 1 == self.nodes.len()
            && self.completes_next()
    }

    /// The nodes that it has.
    pub(super) fn held(&self) -> &[Node] {
        &self.nodes[..self.has]
    }

    /// The nodes that it has, and the next one if it `claims` that or has some of it. And in which
    /// mode: bits that it has keep readers out.
    pub(super) fn reached(&self, claims: bool) -> (&[Node], Mode) {
        let has_next = claims || self.part > 0;
        let reached = (self.has + usize::from(has_next)).min(self.nodes.len());
        let mode = if self.part > 0 { Mode::Exclusive } else { self.mode };
        (&self.nodes[..reached], mode)
    }

    /// The node that it is about to have.
    pub(super) fn next(&self) -> Node {
        self.nodes[self.has]
    }

    /// The node behind that one, if it is had with it.
    pub(super) fn behind_next(&self) -> Option<Node> {
        self.nodes.get(self.has + 1).copied().filter(|_| self.completes_next())
    }

    /// The bits of the node that it is about to have, if that is a leaf.
    #[inline]
    pub(super) fn mask(&self) -> Option<u64> {
        let all = self.mask_of(self.next())?;
        let run = || u64::MAX >> (u64::BITS - u32::from(self.run));
        let first = || all.trailing_zeros() + u32::from(self.part);
        Some(if self.one_by_one { run() << first() } else { all })
    }

    /// The bits by which it is about to have that node, if it is by bits.
    #[inline]
    pub(super) fn bits(&self) -> Option<u64> {
        let takes_bits = self.is_exclusive() || self.one_by_one;
        self.mask().filter(|_| takes_bits)
    }

    /// The bits by which it has one of its nodes, if it has that by bits.
    pub(super) fn bits_held(&self, number: usize) -> Option<u64> {
        self.mask_of(self.nodes[number]).filter(|_| self.is_exclusive())
    }

    /// The bits of its next node, if it reads that and has all of them with the next.
    pub(super) fn bits_to_change(&self) -> Option<u64> {
        let changes = !self.is_exclusive() && self.one_by_one && self.completes_next();
        self.mask_of(self.next()).filter(|_| changes)
    }

    /// Those that it has already.
    pub(super) fn mask_of_part(&self) -> u64 {
        let all = self.nodes.get(self.has).and_then(|&next| self.mask_of(next));
        let first = all.map_or(0, u64::trailing_zeros);
        ((1 << self.part) - 1) << first
    }

    /// The bits that it wants of this one of its nodes, if that is a leaf.
    #[inline]
    pub(super) fn mask_of(&self, node: Node) -> Option<u64> {
        let tree = self.plan.tree;
        tree.is_leaf(node).then(|| tree.mask(node, &self.units()))
    }

    /// Whether nobody who occupies this node above the next one can come to hold it before this
    /// request has left: its client has a node below it, for which that one waits.
    pub(super) fn is_exempt_from(&self, ancestor: Node) -> bool {
        let [held_to, _] = self.held_before;
        self.has_below(ancestor) || self.plan.exempts && self.begins_before(ancestor, held_to)
    }

    /// The same of those that read it: they wait for a writer alone.
    pub(super) fn is_exempt_from_readers(&self, ancestor: Node) -> bool {
        let [_, written_to] = self.held_before;
        self.has_below(ancestor) || self.plan.exempts && self.begins_before(ancestor, written_to)
    }

    /// Whether the request itself has a node below this one.
    fn has_below(&self, ancestor: Node) -> bool {
        let has = &self.nodes[..self.has + usize::from(self.part > 0)];
        self.whole.is_some() || self.plan.exempts && has.iter().any(|&node| ancestor.is_above(node))
    }

    /// Whether some of what is held up to there lies below this node, which reaches as far as this
    /// request at least.
    fn begins_before(&self, ancestor: Node, held_to: u64) -> bool {
        self.plan.tree.units_of(ancestor).start < held_to
    }

    /// Whether its client has this one of its nodes already, or these bits of it, by what it takes
    /// a part of.
    pub(super) fn inherits(&self, number: usize) -> bool {
        let has = |whole: &Self| whole.bits_at(self.nodes[number]) != 0;
        self.whole.as_deref().is_some_and(has)
    }

    /// Whether it occupies this node, as a writer that has it.
    pub(super) fn occupies(&self, node: Node) -> bool {
        self.is_exclusive() && self.held().contains(&node)
    }

    /// The ticket by which the whole has its next node; of a leaf, or of a reader, none.
    pub(super) fn ticket_of_whole(&self) -> u16 {
        let whole = self.whole.as_deref().expect("it takes a part of something");
        let number = whole.nodes.iter().position(|&node| node == self.next());
        number.map_or(0, |number| whole.tickets[number])
    }

    /// The bits of one of its nodes that these have as well: of an internal node all or none. A
    /// reader is counted for itself.
    pub(super) fn beside(&self, number: usize, others: &[Self]) -> u64 {
        let bits = others.iter().map(|other| other.bits_at(self.nodes[number]));
        if self.is_exclusive() { bits.fold(0, |all, bits| all | bits) } else { 0 }
    }

    /// The levels at which ancestors of one of its nodes count it. Who looked from above when the
    /// whole was counted waits until nobody is below where it was; so a part is counted wherever
    /// the whole may have been.
    #[inline]
    fn levels_notified(&self, node: Node) -> Levels {
        match self.is_part && self.plan.counts_parts {
            true => Levels::above(node.level()),
            false => self.plan.tree.notified(node, self.plan.notifies),
        }
    }

    /// Whether one of these nodes, which it has, notifies this one.
    pub(super) fn is_notified(&self, nodes: &[Node], by: Node) -> bool {
        let notifies = |node: &Node| self.levels_notified(*node).contains(by.level());
        nodes.iter().any(|node| by.is_above(*node) && notifies(node))
    }

    /// The nodes that count this request for one of its nodes, and for none before.
    pub(super) fn notified_by(&self, number: usize) -> impl Iterator<Item = Node> + Clone {
        let (before, own) = (&self.nodes[..number], self.nodes[number]);
        let all = self.levels_notified(own).map(move |level| own.at_level(level));
        all.filter(move |&node| {
            // Those below it are the last of them.
            let others = before.iter().rposition(|other| !node.is_above(*other));
            let below = &before[others.map_or(0, |last| last + 1)..];
            !self.is_notified(below, node)
        })
    }

    /// The nodes that are to count it for what it takes next: for a leaf with its first unit.
    pub(super) fn notified_next(&self) -> impl Iterator<Item = Node> + Clone {
        self.notified_by(self.has).filter(|_| self.part == 0)
    }

    /// What an explorer has to tell apart.
    pub(super) fn survivors(&self) -> [u64; 5] {
        let tickets = self.tickets[..self.has].iter();
        let tickets = tickets.fold(0, |sum: u64, &ticket| sum.rotate_left(15) ^ u64::from(ticket));
        let token = self.token.map_or(0, |token| token + 1);
        let steps = u64::from(self.steps_back) << 8 | u64::from(self.contends) << 16;
        let steps = steps | u64::from(self.in_vain) << 17;
        let tries = self.tries.map_or(0, |waits| u64::from(waits) + 1);
        let called =
            self.called.map_or(0, |(level, half)| 1 | u64::from(level) << 1 | (half as u64) << 5);
        let leaf = u64::from(self.part) << 1 | u64::from(self.one_by_one);
        let leaf = leaf | u64::from(self.outrun) << 8 | u64::from(self.run) << 16;
        let steps = self.has as u64 | steps | tries << 24 | called << 32 | leaf << 40;
        let waits = u64::from(self.late) << 48 | u64::from(self.asked) << 56;
        let token = token ^ waits ^ self.passes.survivors();
        let leaves = u64::from(self.leaves_of) | self.plan.survivors() << u8::BITS;
        [self.units_word(), steps, tickets, token, leaves]
    }
}
