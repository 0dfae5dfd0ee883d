//! Citron: a range lock on a segment tree, by one-sided verbs alone (Gao, Lu, Xie, Wang, Shu:
//! Citron, Distributed Range Lock Management with One-sided RDMA, FAST'23).
#![doc = include_str!("../../../../docs/protocols/citron.md")]

mod acquire;
mod attempt;
mod call;
mod change;
mod clean;
mod convert;
mod course;
mod divide;
mod fast;
mod living;
mod passes;
mod place;
mod record;
mod repair;
mod said;
pub mod split;
mod take;
pub mod tree;
mod tuning;
pub mod word;

use std::ops::Range;

use farlock_fabric::verb::CHAIN_MAX;
use farlock_fabric::word::Field;
use farlock_fabric::{Addr, Endpoint, Fault, Nanos, Patience, Posted, Verb, WideAtomics};

use crate::error::TuneError;
use crate::lock::{
    Conversion, Convert, Divide, Division, LocalFuture, Lock, Shelve, Tried, Tune, Tuning,
};
use crate::options::Setting;
use crate::promise::{Granted, LockKind, Order, Promises, Proof, TokenSource};
use crate::shelf::{Entry, Shelf, Shelved};
use crate::site::Site;
use crate::slot;
use crate::want::{BlockNumbers, Extent, Mode, Want};
use change::Change;
use course::{Course, Plan, TREE};
pub use record::UnitsWord;
use record::{NextWord, ReachWord, units_word};
use repair::Params;
use split::SPLIT_MAX;
use tree::{DISTANCE_MAX, FANOUT, LEAF_UNITS_MAX, LEVELS_MAX, NODE_BYTES, Tree};
use word::{CountWord, NodeWord};

/// The most levels of a lock that has room in a table of locks of any kind.
const TABLED_LEVELS_MAX: u8 = 4;
/// The fewest levels: a root and leaves.
const LEVELS_MIN: u8 = 2;
/// Levels, if nothing else is said.
const LEVELS: u8 = 3;
/// Nodes into which a range is split (section 4.6).
const NODES: usize = 2;
/// From those who notify to those who look (section 4.7).
const DISTANCE: u8 = 4;
/// How long an owner waits before it looks below, where it does: three round trips of 5 us each
/// (section 3.5.5).
const WAIT_NS: Nanos = 15_000;
/// The least: nobody looks above and notifies in less.
const WAIT_NS_MIN: Nanos = 1_000;
/// How often others may come before a request for several units of a leaf.
const OUTRUN: u8 = 4;
/// Of so many nodes a holder remembers the tickets.
const TICKETS_KEPT: usize = 12;
/// The most blocks of a shelf behind a tree.
const SHELF_BLOCKS_MAX: u16 = 1024;
/// The pause between two reads, in nanoseconds: a round trip.
const POLL_NS: Nanos = 1_862;

/// A range lock on a segment tree. Where readers do not share, nodes have one word, not two.
#[derive(Clone, Debug)]
pub struct Citron<const SHARES: bool> {
    /// How many levels the tree has.
    pub levels: u8,
    /// Units of a leaf.
    pub leaf_units: u8,
    /// How many levels fewer the near tree has, where there are two: see [`Tree`].
    pub crown: u8,
    /// Where the blocks of the far one lie, which requests name ([`Extent::lying_in`]); behind the
    /// lock's own words where `None`.
    pub blocks: Option<Addr>,
    /// Into how many nodes a range is split at most.
    pub nodes_max: usize,
    /// Whether a range is split into as many nodes as have its units and no others, instead.
    pub is_exact: bool,
    /// Whether a request that would wait with something in its hands gives that back, and begins
    /// again with the nodes that have its units and no others.
    pub refines: bool,
    /// How many levels above the lowest that it must see the owner of a node looks, and every how
    /// manyth above its own a client notifies.
    pub distance: u8,
    /// For how long the owner of a node waits before it looks below, in nanoseconds, as the paper
    /// has it: newcomers that have not notified it by then give way by their clocks. `None`: they
    /// look above once more, and no clock decides.
    pub wait_ns: Option<Nanos>,
    /// Whether these two may be changed while clients use the lock ([`Tune`]). Of a lock with
    /// clocks alone.
    pub is_tuned: bool,
    /// Whether a change of them comes into force when nobody works any more by what was before.
    pub awaits_older: bool,
    /// Whether who claims a node above leaves takes all bits of these with it: if all were free it
    /// need not wait. Of a lock with clocks alone.
    pub is_fast: bool,
    /// Whether one that was given some of these leaves gives all four back.
    pub frees_all_leaves: bool,
    /// Whether one that was given all four does not mind that it was late.
    pub fast_is_never_late: bool,
    /// Whether who occupies a node above one that a request has does not keep it from its others.
    /// The paper has no such rule: requests of two nodes deadlock there.
    pub exempts: bool,
    /// Whether a client keeps its turn at a node while it waits for who occupies one above, as the
    /// paper has it: requests of two nodes deadlock.
    pub keeps_turn: bool,
    /// Whether a token is kept that was counted before others left for whom its client waits, or
    /// who came and went meanwhile: their tokens are higher, though they came before.
    pub keeps_token: bool,
    /// Whether a writer that becomes a reader minds those that may have read one word of a node
    /// before and the other one after.
    pub minds_torn_looks: bool,
    /// Whether grants are counted, so that they have tokens.
    pub counts: bool,
    /// How often a request that waits gives all back for a while, so that others go on that wait
    /// for what it has; from 8 on without end.
    pub steps_back_max: u8,
    /// How often others may come before a request that waits for units of a leaf, until it takes
    /// them one by one.
    pub outrun_max: u8,
    /// Whether a request that finds bits taken posts what takes them all the same, as it does
    /// wherever that is held back until they are free ([`Endpoint::post_patiently`]).
    pub is_eager: bool,
    /// Where clients of several locks write down what they hold that has no slot: see
    /// [`Shelve`].
    pub shelf: Option<Shelf>,
    /// Blocks of a shelf of the lock's own, where its clients write down all that they hold.
    pub shelf_blocks: u16,
    /// Whether clients look at shelves before they look at slots: what is written down in between
    /// they see in neither.
    pub shelf_first: bool,
    /// Whether clients look again at the others, if a hold has gone from one record to others
    /// meanwhile: else they may see it in none of them.
    pub minds_moves: bool,
    /// Whether a hold that is divided is given up before its parts are taken.
    pub leaves_first: bool,
    /// Whether the owner of a node that has waited for those below looks again whether there are
    /// any: else it misses the part that is kept of a hold of which it has seen the first node
    /// alone.
    pub looks_again: bool,
    /// Whether a part of a hold is counted by all above it: a waiter there for the whole to leave
    /// may have seen that counted where no request for the part alone would be.
    pub counts_parts: bool,
    /// Whether a writer that waits for readers of a node asks newcomers at all nodes above that to
    /// wait as well: else those that come to two of them in turn keep it out for ever.
    pub calls_above: bool,
    /// Whether newcomers wait at a node where one below asks them to.
    pub heeds_calls: bool,
    /// How often others are seen to have come before a waiter for a unit of a leaf, until it asks
    /// newcomers to wait that want that unit: their tokens tell. `None`: it never does, and is not
    /// sure of its turn beside others that run while it sleeps.
    pub calls_after: Option<u8>,
    /// The pause between two reads, in nanoseconds.
    pub poll_ns: Nanos,
    /// How waits spend their time where the back end has a choice.
    pub patience: Patience,
}

/// One for exclusive holders.
pub type Exclusive = Citron<false>;
/// One whose readers share.
pub type Shared = Citron<true>;

impl<const SHARES: bool> Default for Citron<SHARES> {
    fn default() -> Self {
        Self {
            levels: LEVELS,
            leaf_units: LEAF_UNITS_MAX,
            crown: 0,
            blocks: None,
            nodes_max: NODES,
            is_exact: false,
            refines: false,
            distance: DISTANCE,
            wait_ns: None,
            is_tuned: false,
            awaits_older: true,
            is_fast: true,
            frees_all_leaves: false,
            fast_is_never_late: false,
            exempts: true,
            keeps_turn: false,
            keeps_token: false,
            minds_torn_looks: true,
            counts: true,
            steps_back_max: 0,
            outrun_max: OUTRUN,
            is_eager: false,
            shelf: None,
            shelf_blocks: 0,
            shelf_first: false,
            minds_moves: true,
            leaves_first: false,
            looks_again: true,
            counts_parts: true,
            calls_above: true,
            heeds_calls: true,
            calls_after: None,
            poll_ns: POLL_NS,
            patience: Patience::DEFAULT,
        }
    }
}

impl<const SHARES: bool> Citron<SHARES> {
    const fn tree(&self) -> Tree {
        Tree { levels: self.levels, leaf_units: self.leaf_units, crown: self.crown }
    }

    /// The parameters that it begins with, if they may change.
    fn first(&self) -> Option<Tuning> {
        let tuning = |wait_ns| Tuning { distance: self.distance, wait_ns };
        self.wait_ns.map(tuning).filter(|_| self.is_tuned)
    }

    /// Of a request that lies in these blocks.
    fn plan(&self, numbers: BlockNumbers) -> Plan {
        Plan {
            tree: self.tree(),
            blocks: self.blocks,
            numbers,
            nodes_max: (!self.is_exact).then_some(self.nodes_max),
            refines: self.refines,
            notifies: self.distance,
            distance: self.distance,
            wait_ns: self.wait_ns,
            in_time_ns: self.wait_ns.unwrap_or(0),
            first: self.first(),
            change: 0,
            is_fast: self.is_fast && self.wait_ns.is_some() && !SHARES,
            shares: SHARES,
            exempts: self.exempts,
            counts: self.counts,
            steps_back_max: self.steps_back_max,
            outrun_max: self.outrun_max,
            shelf: self.shelf,
            shelf_blocks: self.shelf_blocks,
            shelf_first: self.shelf_first,
            minds_moves: self.minds_moves,
            counts_parts: self.counts_parts,
            calls_above: self.calls_above,
            heeds_calls: self.heeds_calls,
            calls_after: self.calls_after.filter(|_| self.wait_ns.is_none()),
        }
    }

    /// The same of one that works by the parameters that its slot remembers.
    fn plan_at<E: Endpoint>(&self, site: &Site<'_, E>, numbers: BlockNumbers) -> Plan {
        let plan = self.plan(numbers);
        if plan.first.is_none() { plan } else { plan.by(tuning::remembered(site)) }
    }

    fn params<E: Endpoint>(&self, site: &Site<'_, E>, want: Extent) -> Params {
        Params {
            plan: self.plan_at(site, want.blocks()),
            keeps_turn: self.keeps_turn,
            keeps_token: self.keeps_token,
            frees_all_leaves: self.frees_all_leaves,
            fast_is_never_late: self.fast_is_never_late,
            leaves_first: self.leaves_first,
            looks_again: self.looks_again,
            minds_torn_looks: self.minds_torn_looks,
            is_eager: self.is_eager,
            poll_ns: self.poll_ns,
            patience: self.patience,
        }
    }

    /// The units of the tree that are wanted. Its last one stands for all that come after as well.
    fn units(&self, want: Extent) -> Range<u64> {
        self.tree().wanted(want)
    }

    /// Of what is wanted, the subtrees at its two ends that have a block.
    pub fn far_ends(&self, want: Extent) -> [Option<u32>; 2] {
        self.tree().far_ends(&self.units(want))
    }

    /// How long a block of a subtree is.
    pub fn block_bytes(&self) -> u64 {
        self.plan(BlockNumbers::NONE).block_bytes()
    }

    /// A request that has nothing yet.
    fn course<E: Endpoint>(&self, site: &Site<'_, E>, want: Extent) -> Course {
        let plan = self.plan_at(site, want.blocks());
        let course = Course::of(plan, want.mode(), self.units(want), want.is_refined());
        course.behind(want.held_before().map(u64::from))
    }

    /// One that has all.
    fn held(&self, want: Extent, grant: Grant) -> Course {
        let plan = self.plan(want.blocks()).as_said(grant.said);
        let mut course = Course::of(plan, want.mode(), self.units(want), grant.is_part);
        course.completes(&grant.tickets);
        (course.both, course.token) = (grant.both, Some(grant.count));
        course.leaves_of = grant.leaves_of;
        course
    }

    /// What a request has been granted, if it has all, written down where all is.
    async fn granted<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        want: Extent,
        course: Option<&Course>,
    ) -> Result<Option<Grant>, Fault> {
        let Some(grant) = course.map(Grant::of) else { return Ok(None) };
        let own_shelf = self.plan(BlockNumbers::NONE).own_shelf_of(site.lock);
        let Some(shelf) = own_shelf else { return Ok(Some(grant)) };
        let block = shelf.own_block(site.endpoint).await?;
        let entry = block.and_then(|block| shelf.entries(block).nth(site.slot().0.into()));
        let Some(entry) = entry else { return Ok(Some(grant)) };
        let shelved = self.shelved(site, want, grant, grant.count, 0);
        self.shelve(site, grant, entry, shelved).await.map(Some)
    }
}

const _: () = {
    let verbs = LEVELS_MAX as usize + 1 + FANOUT as usize;
    assert!(verbs < CHAIN_MAX, "one node is given back at once");
};

/// The verbs that give back what is held, and strike out where it is written down.
fn giving_back<'a, E: Endpoint>(
    site: &Site<'_, E>,
    course: &'a Course,
    grant: Grant,
) -> impl Iterator<Item = Verb<'static>> + 'a {
    take::giving_back(site.lock, course).chain(grant.entry.map(Entry::striking_out))
}

/// What a holder remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// What its token counts.
    count: u64,
    /// Of its first nodes; those of more are read where they are given back.
    tickets: [u16; TICKETS_KEPT],
    nodes: u8,
    /// Of which of its nodes it has the leaves as well: see [`NextWord::LEAVES_OF`].
    leaves_of: u8,
    /// Whether nodes above count it, a reader, as a writer as well.
    both: bool,
    /// Whether it is a part of what was held before.
    is_part: bool,
    /// What its record says of the parameters by which it was granted.
    said: UnitsWord,
    /// Where it is written down, if it is.
    entry: Option<Entry>,
}

impl Grant {
    fn of(course: &Course) -> Self {
        let mut tickets = [0; TICKETS_KEPT];
        let known = course.tickets.len().min(TICKETS_KEPT);
        tickets[..known].copy_from_slice(&course.tickets[..known]);
        let (count, nodes) = (course.token.unwrap_or(0), course.nodes.len() as u8);
        let (leaves_of, both, is_part) = (course.leaves_of, course.both, course.is_part);
        let said = course.plan.said(UnitsWord::new());
        Self { count, tickets, nodes, leaves_of, both, is_part, said, entry: None }
    }
}

impl Grant {
    /// Whether it has more nodes with tickets than it knows tickets of.
    fn must_read_tickets(self, course: &Course) -> bool {
        usize::from(self.nodes) > TICKETS_KEPT && course.is_exclusive()
    }
}

impl Granted for Grant {
    /// How many nodes its record is to say that it has: none of what is written down elsewhere.
    fn generation(self) -> u64 {
        let reach = ReachWord::new().with(ReachWord::HAS, self.nodes.into());
        if self.entry.is_some() { 0 } else { reach.with(ReachWord::BOTH, self.both.into()).0 }
    }

    /// Of which of these it has the leaves as well.
    fn ticket(self) -> u32 {
        let next = NextWord::new().with(NextWord::LEAVES_OF, self.leaves_of.into());
        if self.entry.is_some() { 0 } else { next.0 as u32 }
    }

    fn count(self) -> u64 {
        self.count
    }
}

impl<const SHARES: bool> LockKind for Citron<SHARES> {
    const BYTES: u64 = TREE
        + Tree { levels: TABLED_LEVELS_MAX, ..Tree::LARGEST }.near_nodes() as u64
            * NODE_BYTES
            * (1 + SHARES as u64);
    const SHARES: bool = SHARES;
    const FIELDS: &'static [Field] = CountWord::FIELDS;
    const TOKENS: TokenSource = TokenSource::Word;

    fn fields_at(offset: u64) -> &'static [Field] {
        if offset < TREE { CountWord::FIELDS } else { NodeWord::FIELDS }
    }

    #[inline(always)]
    fn counts_grants(&self) -> bool {
        self.counts
    }

    fn bytes(&self) -> u64 {
        Self::BYTES.max(self.plan(BlockNumbers::NONE).end())
    }

    fn units(&self) -> Option<u64> {
        Some(self.tree().last_unit() + 1)
    }

    /// `levels=COUNT` of the tree, `leaf=COUNT` units of a leaf, behind that `space=COUNT` for as
    /// many levels as so many units need, `crown=COUNT` of these that a tree of the first
    /// units has not, `k=COUNT` nodes at most for a range, `exact=yes` for as
    /// many as have its units alone, `refine=yes` for that where a request would wait with
    /// something in its hands, `m=COUNT` levels between clients that meet; `wait=NANOS` before the
    /// owner of a node looks below, where clocks decide, of a lock without readers, and with it
    /// `tuned=yes` where both may be changed while clients use the lock, and
    /// `fast=no` where that one does not take the leaves of its node as well; `tokens=no`
    /// where nobody needs any; `back=COUNT` steps back of a request at most; `outrun=COUNT` others
    /// that come before a request takes units of a leaf one by one, `call=COUNT` that come before a
    /// waiter for one unit until it asks newcomers to wait; `eager=yes` where it asks for
    /// units that it has found taken, as where a server waits with that; `shelf=BLOCKS` behind the
    /// tree, where all holds are written down; `poll=NANOS` between two reads, `spins=COUNT`,
    /// `yields=COUNT`.
    fn option(&mut self, name: &str) -> Option<Setting<'_>> {
        match name {
            "levels" => {
                let least = LEVELS_MIN + self.crown;
                Some(Setting::count(&mut self.levels, least..=LEVELS_MAX))
            }
            "space" => {
                let (tree, levels) = (self.tree(), &mut self.levels);
                Some(Setting::space(move |space| {
                    let has_room = |&levels: &u8| Tree { levels, ..tree }.last_unit() + 1 >= space;
                    let least = (LEVELS_MIN + tree.crown..=LEVELS_MAX).find(has_room);
                    least.inspect(|&least| *levels = least).is_some()
                }))
            }
            "leaf" => Some(Setting::count(&mut self.leaf_units, 1..=LEAF_UNITS_MAX)),
            "crown" => Some(Setting::count(&mut self.crown, 0..=self.levels - LEVELS_MIN)),
            "k" => Some(Setting::count(&mut self.nodes_max, 1..=SPLIT_MAX)),
            "exact" => Some(Setting::yes_or_no(&mut self.is_exact)),
            "refine" => Some(Setting::yes_or_no(&mut self.refines)),
            "m" => Some(Setting::count(&mut self.distance, 1..=DISTANCE_MAX)),
            "wait" if !SHARES => {
                Some(Setting::nanos(self.wait_ns.get_or_insert(WAIT_NS), WAIT_NS_MIN))
            }
            "tuned" if !SHARES => Some(Setting::yes_or_no(&mut self.is_tuned)),
            "fast" if !SHARES => Some(Setting::yes_or_no(&mut self.is_fast)),
            "tokens" => Some(Setting::yes_or_no(&mut self.counts)),
            "back" => Some(Setting::count(&mut self.steps_back_max, 0..=u8::MAX)),
            "outrun" => Some(Setting::count(&mut self.outrun_max, 0..=u8::MAX)),
            "call" => Some(Setting::count(self.calls_after.get_or_insert(0), 0..=u8::MAX)),
            "eager" => Some(Setting::yes_or_no(&mut self.is_eager)),
            "shelf" => Some(Setting::count(&mut self.shelf_blocks, 1..=SHELF_BLOCKS_MAX)),
            "poll" => Some(Setting::nanos(&mut self.poll_ns, 1)),
            _ => Setting::patience(&mut self.patience, name),
        }
    }

    fn conflict(&self) -> Option<(&'static str, &'static str)> {
        match self.wait_ns {
            None if self.is_tuned => Some(("tuned", "only with a time to wait")),
            Some(wait_ns) if self.is_tuned && wait_ns > tuning::WAIT_NS_MAX => {
                Some(("wait", "at most 1048575 with tuned"))
            }
            _ => None,
        }
    }

    fn promises(&self) -> Promises {
        let proof = Proof {
            patient: "poll=2500000",
            hurried: "poll=50000",
            // A unit, the rest of its node, one of two nodes, and one of all.
            in_parts: match (self.leaf_units, self.is_tuned) {
                (LEAF_UNITS_MAX, _) => &[0, 1, 64, 320, 1024],
                (_, false) => &[0, 1, 4, 8, 16],
                // The root above a unit: they meet by m alone.
                (_, true) => &[0, 1, 4, 5, 16],
            },
            has_many_verbs: true,
            // Of a lock without readers alone.
            larger: if SHARES { &[] } else { &["wait=15000", "wait=15000:tuned=yes"] },
            ..Proof::SLEEPER
        };
        // Twice for each level it waits for readers, with four doorbells each time.
        let rounds_before_writer = SHARES.then(|| 8 * u16::from(self.levels) - 4);
        Promises {
            order: Order { rounds_before_writer, ..Order::NONE },
            tries_tell_truth: true,
            withdraws: true,
            acts_on_memory: self.is_tuned,
            waits_out_ns: self.wait_ns,
            proof,
            ..Promises::EXCLUSION
        }
    }

    /// All units of its nodes, which cover one interval. A leaf is had by the unit.
    fn covers(&self, units: Range<u32>) -> Range<u32> {
        let (plan, wanted) =
            (self.plan(BlockNumbers::NONE), self.units(Extent::new(Mode::Exclusive, units)));
        let (tree, nodes) = (plan.tree, plan.split(&wanted));
        let (first, last) = (nodes[0], nodes[nodes.len() - 1]);
        let is_leaf = |node| tree.is_leaf(node);
        let start = if is_leaf(first) { wanted.start } else { tree.units_of(first).start };
        let end = if is_leaf(last) { wanted.end } else { tree.units_of(last).end };
        start as u32..end as u32
    }

    fn near_wrap(&self, steps: u16) -> u128 {
        CountWord::before(steps).0.into()
    }

    /// Of the root's words, or of the root and its first child.
    fn near_wrap_behind(&self, steps: u16) -> Vec<(u64, u64)> {
        let before = u64::from(steps.wrapping_neg());
        let word = NodeWord::new()
            .with(NodeWord::T_CNT, before)
            .with(NodeWord::T_MAX, before)
            .with(NodeWord::D_CNT, before)
            .with(NodeWord::D_MAX, before);
        let second = SHARES || self.levels > 2;
        (0..1 + u64::from(second)).map(|number| (TREE + number * NODE_BYTES, word.0)).collect()
    }
}

impl<E: WideAtomics, const SHARES: bool> Lock<E> for Citron<SHARES> {
    type Want = Extent;
    type Grant = Grant;

    fn tuning(&self) -> Option<&dyn Tune<E>> {
        self.is_tuned.then_some(self)
    }

    fn conversion(&self) -> Option<&dyn Conversion<E, Extent, Grant>> {
        SHARES.then_some(self)
    }

    fn division(&self) -> Option<&dyn Division<E, Extent, Grant>> {
        Some(self)
    }

    fn begin(&self, site: &Site<'_, E>, want: Extent) -> u32 {
        let plan = self.plan_at(site, want.blocks());
        let units = plan.said(units_word(&self.units(want), want.is_refined())).0;
        site.endpoint.publish(site.slot(), slot::PART, units);
        site.forget_position();
        0
    }

    fn opening(&self, site: &Site<'_, E>, want: Extent) -> Verb<'static> {
        take::looking(self.plan(want.blocks()), site.lock, self.course(site, want).next())
    }

    /// Looks at the first node and those above it, which changes nothing.
    fn open(&self, site: &Site<'_, E>, want: Extent) -> Posted {
        take::look(site, &self.course(site, want))
    }

    /// It is never all. What was seen is kept for the next verbs.
    fn opened(&self, site: &Site<'_, E>, want: Extent, _: u128) -> Option<Grant> {
        let course = self.course(site, want);
        let is_vague = take::hears_call(site, &course) || take::tuned(site, &course).is_some();
        let way = take::seen(site, &course).ok().filter(|_| !is_vague);
        place::keep_way(site, way);
        None
    }

    async fn wait_in_line(
        &self,
        site: &Site<'_, E>,
        want: Extent,
        old: u128,
    ) -> Result<Grant, Fault> {
        let granted = self.wait_or_leave(site, want, Some(old)).await?;
        Ok(granted.expect("who does not withdraw stays until it is granted"))
    }

    async fn wait_or_leave(
        &self,
        site: &Site<'_, E>,
        want: Extent,
        _: Option<u128>,
    ) -> Result<Option<Grant>, Fault> {
        let mut course = self.course(site, want);
        let has_all = self.params(site, want).acquire(site, &mut course).await?;
        self.granted(site, want, has_all.then_some(&course)).await
    }

    fn closing(&self, site: &Site<'_, E>, want: Extent, grant: Grant) -> Option<Verb<'static>> {
        let course = self.held(want, grant);
        if grant.must_read_tickets(&course) {
            return None;
        }
        take::giving_back(site.lock, &course).next()
    }

    /// Gives all back, as many nodes as go out with one doorbell.
    fn close(&self, site: &Site<'_, E>, want: Extent, grant: Grant) -> Option<Posted> {
        let course = self.held(want, grant);
        if grant.must_read_tickets(&course) {
            return None;
        }
        let verbs = giving_back(site, &course, grant);
        Some(course::post(site.endpoint, verbs.take(CHAIN_MAX)))
    }

    /// Nothing depends on what the verbs find, but for tickets that are not known.
    fn close_unasked(&self, site: &Site<'_, E>, want: Extent, grant: Grant) -> bool {
        let course = self.held(want, grant);
        let knows_all = !grant.must_read_tickets(&course);
        if knows_all {
            site.endpoint.post_all_unsignalled(giving_back(site, &course, grant));
        }
        knows_all
    }

    fn closed(&self, site: &Site<'_, E>, want: Extent, grant: Grant, _: u128) -> bool {
        // One node and all above it fit, counted once.
        grant.nodes == 1 && !grant.both
            || giving_back(site, &self.held(want, grant), grant).count() <= CHAIN_MAX
    }

    /// What did not go out with the first doorbell, or all where there was none.
    async fn hand_over(
        &self,
        site: &Site<'_, E>,
        want: Extent,
        grant: Grant,
        _: Option<u128>,
    ) -> Result<(), Fault> {
        let mut course = self.held(want, grant);
        let gone = match grant.must_read_tickets(&course) {
            true => {
                self.params(site, want).read_tickets(site, &mut course, false).await?;
                0
            }
            false => CHAIN_MAX,
        };
        course::execute(site.endpoint, giving_back(site, &course, grant).skip(gone)).await
    }

    fn trying(&self, _: &Site<'_, E>, _: Extent, _: Option<u128>) -> Option<Verb<'static>> {
        None
    }

    fn tried(&self, _: &Site<'_, E>, _: Extent, _: Option<u128>, _: u128) -> Tried<Grant> {
        unreachable!("no verb alone is an attempt")
    }

    async fn attempt(&self, site: &Site<'_, E>, want: Extent) -> Result<Option<Grant>, Fault> {
        let mut course = self.course(site, want);
        let has_all = self.params(site, want).attempt(site, &mut course).await?;
        self.granted(site, want, has_all.then_some(&course)).await
    }

    async fn try_beside(
        &self,
        site: &Site<'_, E>,
        want: Extent,
        _: u128,
    ) -> Result<Option<Grant>, Fault> {
        let mut course = self.course(site, want);
        let has_all = self.params(site, want).attempt_past_the_dead(site, &mut course).await?;
        self.granted(site, want, has_all.then_some(&course)).await
    }
}

impl<const SHARES: bool> Citron<SHARES> {
    /// What is held, to be converted. What is written down elsewhere is not: those that look around
    /// read slots first, and would find it in neither if it went from there to a slot.
    async fn to_convert<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        want: Extent,
        grant: Grant,
    ) -> Result<Option<Course>, Fault> {
        if !SHARES || grant.entry.is_some() {
            return Ok(None);
        }
        self.held_with_tickets(site, (want, grant)).await.map(Some)
    }

    /// What is held, with all its tickets.
    async fn held_with_tickets<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        (want, grant): (Extent, Grant),
    ) -> Result<Course, Fault> {
        let mut held = self.held(want, grant);
        if grant.must_read_tickets(&held) {
            self.params(site, want).read_tickets(site, &mut held, false).await?;
        }
        Ok(held)
    }
}

impl<E: WideAtomics, const SHARES: bool> Convert<E> for Citron<SHARES> {
    async fn downgrade(
        &self,
        site: &Site<'_, E>,
        want: Extent,
        grant: Grant,
    ) -> Result<Option<Grant>, Fault> {
        let Some(mut held) = self.to_convert(site, want, grant).await? else { return Ok(None) };
        let is_shared = self.params(site, want).make_shared(site, &mut held).await?;
        Ok(is_shared.then(|| Grant::of(&held)))
    }

    async fn try_upgrade(
        &self,
        site: &Site<'_, E>,
        want: Extent,
        grant: Grant,
    ) -> Result<Option<Grant>, Fault> {
        let Some(mut held) = self.to_convert(site, want, grant).await? else { return Ok(None) };
        let is_alone = self.params(site, want).make_exclusive(site, &mut held).await?;
        Ok(is_alone.then(|| Grant::of(&held)))
    }
}

impl<E: WideAtomics, const SHARES: bool> Divide<E> for Citron<SHARES> {
    async fn take_part(
        &self,
        site: &Site<'_, E>,
        want: Extent,
        whole: (Extent, Grant),
    ) -> Result<Option<Grant>, Fault> {
        let (units, all) = (self.units(want), self.units(whole.0));
        if want.mode() != whole.0.mode() || units.start < all.start || all.end < units.end {
            return Ok(None);
        }
        let held = self.held_with_tickets(site, whole).await?;
        let mut part = Course::of_part(units, held, want.blocks());
        if part.plan.first.is_some() {
            let word = tuning::read(site.endpoint, site.lock).await?;
            part.plan = part.plan.going_on_by(word);
        }
        let has_all = self.params(site, want).take_part(site, &mut part).await?;
        part.token = Some(whole.1.count);
        self.granted(site, want, has_all.then_some(&part)).await
    }

    async fn leave_to(
        &self,
        site: &Site<'_, E>,
        whole: (Extent, Grant),
        parts: &[(Extent, Grant)],
    ) -> Result<(), Fault> {
        let (all, want) = (self.held_with_tickets(site, whole).await?, whole.0);
        let parts: Vec<Course> =
            parts.iter().map(|&(want, grant)| self.held(want, grant)).collect();
        self.params(site, want).leave_to(site, &all, &parts, whole.1.entry).await
    }
}

impl<E: WideAtomics, const SHARES: bool> Tune<E> for Citron<SHARES> {
    fn tune<'a>(
        &'a self,
        endpoint: &'a E,
        lock: Addr,
        to: Tuning,
    ) -> LocalFuture<'a, Result<(), TuneError>> {
        Box::pin(async move {
            let first = self.first().ok_or(TuneError::Fixed)?;
            let can_be = (1..=DISTANCE_MAX).contains(&to.distance)
                && (WAIT_NS_MIN..=tuning::WAIT_NS_MAX).contains(&to.wait_ns);
            if !can_be {
                return Err(TuneError::OutOfBounds);
            }
            let plan = self.plan(BlockNumbers::NONE);
            let (awaits_older, patience) = (self.awaits_older, self.patience);
            let change = Change { plan, first, to, awaits_older, patience };
            Ok(change.make(endpoint, lock).await?)
        })
    }
}

impl<E: WideAtomics, const SHARES: bool> Shelve<E> for Citron<SHARES> {
    fn shelved(
        &self,
        site: &Site<'_, E>,
        want: Extent,
        grant: Grant,
        token: u64,
        since_us: u64,
    ) -> Shelved {
        let plan = self.plan(want.blocks()).as_said(grant.said);
        let part = plan.said(units_word(&self.units(want), grant.is_part)).0;
        let mode = want.mode();
        Shelved { lock: site.lock, part, mode, token, since_us }
    }

    async fn shelve(
        &self,
        site: &Site<'_, E>,
        grant: Grant,
        entry: Entry,
        shelved: Shelved,
    ) -> Result<Grant, Fault> {
        entry.put(site.endpoint, shelved).await?;
        Ok(Grant { entry: Some(entry), ..grant })
    }
}
