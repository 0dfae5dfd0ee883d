//! The requests of living clients, as their records say and as they are written down.

use farlock_fabric::verb::CHAIN_MAX;
use farlock_fabric::{Addr, Endpoint, EndpointId, Fault, Mailbox, Slot, Verb};

use super::course::{Course, Half, Plan, post};
use super::record::{NextWord, ReachWord, UnitsWord};
use super::tree::Node;
use super::word::NodeWord;
use crate::shelf::Shelved;
use crate::site::Site;
use crate::slot::{self, Phase, SlotWord};
use crate::want::Mode;

/// So many words of a record say what its client does, at which lock, and its last token.
const SAYS: usize = slot::TOKEN + 1;

/// A request of a client that lives, as its record says.
#[derive(Clone, Debug)]
pub(super) struct Living {
    pub(super) who: Mailbox,
    pub(super) course: Course,
    phase: Phase,
    /// It only clears bits of the dead.
    pub(super) cleans: bool,
    /// It tries.
    pub(super) tries: bool,
    /// It may have bits of its next node, or be counted for it.
    claims: bool,
    /// It may ask newcomers at a node above its next one to wait.
    calls: bool,
    /// It may ask newcomers to wait that want the unit for which it waits.
    calls_unit: bool,
    /// Its client has units to the left.
    behind: bool,
    /// It asks for bits of its next node that others had, and has them if those have left since.
    asks: bool,
    /// It may have all bits of leaves below its next node, if it takes leaves with that.
    takes_leaves: bool,
    /// The ticket that it has at its next node, or may have.
    ticket: Option<u16>,
    /// The token of its client's last grant by this record.
    pub(super) token: u64,
    /// The first word of its record; `None` if it is written down elsewhere.
    pub(super) state: Option<u64>,
}

impl Living {
    /// A request as the words of its record have it; `None` if they say nothing, or nothing that
    /// makes sense.
    fn decode(plan: Plan, who: Mailbox, words: [u64; SAYS], units: u64) -> Option<Self> {
        let (state, token) = (SlotWord(words[slot::STATE]), words[slot::TOKEN]);
        let phase = Phase::from_bits(state.phase()).filter(|&phase| phase != Phase::Idle)?;
        let (said, reach) = (UnitsWord(units), ReachWord(state.generation()));
        let (is_part, units) = (said.part() != 0, said.start()..said.end());
        if units.is_empty() || units.end > plan.tree.units() {
            return None;
        }
        let mode = if state.mode() == 0 { Mode::Shared } else { Mode::Exclusive };
        let mut course = Course::of(plan.as_said(said), mode, units, is_part);
        course.has = (reach.has() as usize).min(course.nodes.len());
        course.both = reach.both() != 0;
        let next = NextWord(state.ticket());
        course.leaves_of = next.leaves_of() as u8;
        if next.single() != 0 {
            course.goes_one_by_one(next.part() as u8);
        }
        // Who reads what is above a node may claim it without another word.
        let claims = reach.claims() != 0 || phase == Phase::Opening;
        let ticket = next.ticket().checked_sub(1).map(|ticket| ticket as u16);
        let (cleans, tries, calls) = (reach.cleans() != 0, reach.tries() != 0, reach.calls() != 0);
        let (behind, asks) = (reach.behind() != 0, reach.asks() != 0);
        let calls_unit = reach.calls_unit() != 0;
        let takes_leaves = next.leaves() != 0 || phase == Phase::Opening && !cleans;
        Some(Self {
            who,
            course,
            phase,
            cleans,
            tries,
            claims,
            calls,
            calls_unit,
            behind,
            asks,
            takes_leaves,
            ticket,
            token,
            state: Some(state.0),
        })
    }

    /// One that holds all that it wants, as it has written down.
    fn shelved(plan: Plan, owner: EndpointId, shelved: Shelved) -> Option<Self> {
        let said = UnitsWord(shelved.part);
        let (is_part, units) = (said.part() != 0, said.start()..said.end());
        if units.is_empty() || units.end > plan.tree.units() {
            return None;
        }
        let mut course = Course::of(plan.as_said(said), shelved.mode, units, is_part);
        course.has = course.nodes.len();
        Some(Self {
            who: Mailbox { endpoint: owner, slot: Slot(0) },
            course,
            phase: Phase::Held,
            cleans: false,
            tries: false,
            claims: false,
            calls: false,
            calls_unit: false,
            behind: false,
            asks: false,
            takes_leaves: false,
            ticket: None,
            token: shelved.token,
            state: None,
        })
    }

    /// Whether it may ask newcomers at this node to wait.
    pub(super) fn calls_at(&self, node: Node) -> bool {
        let is_above = |next: &Node| self.calls && node.is_above(*next);
        self.course.nodes.get(self.course.has).is_some_and(is_above)
            || self.unit_called_below(node).is_some()
    }

    /// The leaf below this node, and the unit there, for which it may ask newcomers to wait.
    pub(super) fn unit_called_below(&self, node: Node) -> Option<(Node, u64)> {
        let leaf = self.course.nodes.get(self.course.has).copied().filter(|_| self.calls_unit)?;
        let unit = self.course.mask().filter(|_| leaf.parent() == Some(node))?;
        Some((leaf, unit))
    }

    /// Whether it may ask one that wants these units of a leaf in this mode to wait: readers do not
    /// keep each other out.
    pub(super) fn calls_for(&self, leaf: Node, (units, mode): (u64, Mode)) -> bool {
        let is_minded = mode == Mode::Exclusive || self.course.is_exclusive();
        let called = leaf.parent().and_then(|above| self.unit_called_below(above));
        is_minded && called.is_some_and(|(at, unit)| at == leaf && unit & units != 0)
    }

    /// The nodes above its next one that lie below this one.
    pub(super) fn nodes_kept_from(&self, node: Node) -> impl Iterator<Item = Node> {
        let next = self.course.nodes.get(self.course.has).copied();
        let above = next.into_iter().flat_map(|next| next.ancestors());
        above.take_while(move |above| node.is_above(*above))
    }

    /// Whether it just takes a ticket at this node.
    pub(super) fn gets_in_line(&self, node: Node) -> bool {
        self.phase == Phase::Coming && self.is_next(node)
    }

    /// Whether it is its turn at this node whose word was as `seen`, or may be.
    pub(super) fn has_turn(&self, node: Node, seen: NodeWord) -> bool {
        // A client that has left may say that it holds for a while.
        let may_hold = seen.occ() != 0 && self.course.is_exclusive();
        let holds = may_hold && self.course.held().contains(&node);
        holds || self.ticket_of(node) == Some(seen.turn())
    }

    /// The ticket by which it is in line at this node, or may be.
    pub(super) fn ticket_of(&self, node: Node) -> Option<u16> {
        self.ticket.filter(|_| self.is_next(node))
    }

    fn is_next(&self, node: Node) -> bool {
        self.course.nodes.get(self.course.has) == Some(&node)
    }

    /// Whether it is a cleaner that occupies this node, whose word was as `seen`.
    pub(super) fn cleans_below(&self, node: Node, seen: NodeWord) -> bool {
        self.cleans && self.has_turn(node, seen)
    }

    /// Whether it wants to read alone.
    pub(super) fn shares(&self) -> bool {
        !self.course.is_exclusive()
    }

    /// Whether it holds all that it wants.
    pub(super) fn holds(&self) -> bool {
        self.phase == Phase::Held
    }

    /// Whether it gives back what it has.
    pub(super) fn leaves(&self) -> bool {
        self.phase == Phase::Leaving
    }

    /// Whether what its record says changes before long, whatever others do.
    pub(super) fn is_about_to_change(&self) -> bool {
        matches!(self.phase, Phase::Opening | Phase::Coming | Phase::Leaving)
    }

    /// The nodes that it has, or may have something of.
    fn reached(&self) -> &[Node] {
        self.course.reached(self.claims).0
    }

    /// Whether it waits, or may soon, for this one, which has reached these nodes in this mode: of
    /// a leaf for some of the units that the other wants.
    pub(super) fn awaits(&self, other: &Course, (nodes, mode): (&[Node], Mode)) -> bool {
        let goes_with = mode == Mode::Shared && !self.course.is_exclusive();
        let overlaps = |leaf: Node| {
            let masks = self.course.mask_of(leaf).zip(other.mask_of(leaf));
            masks.is_none_or(|(own, its)| own & its != 0)
        };
        let meets = |own: Node, node| own.meets(node) && (own != node || overlaps(own));
        let mut missing = self.course.nodes[self.course.has..].iter();
        !goes_with && missing.any(|&own| nodes.iter().any(|&node| meets(own, node)))
    }

    /// Whether it does, and the other one is to let it through.
    pub(super) fn goes_before(&self, other: &Course, reached: (&[Node], Mode)) -> bool {
        other.lets_through(self.behind, self.course.units().start) && self.awaits(other, reached)
    }

    /// Whether it is counted by this word of this node as one below, or may be.
    pub(super) fn may_be_below(&self, node: Node, half: Half) -> bool {
        let counts = self.course.both || Half::of(self.course.mode) == half;
        counts && self.course.is_notified(self.reached(), node)
    }

    /// Whether it is counted by this node as a reader of it, or may be.
    pub(super) fn may_read(&self, node: Node) -> bool {
        // Of what it has bits it is not counted as a reader, until it claims the last of them.
        let has_bits = self.course.is_one_by_one() && self.is_next(node) && !self.claims;
        let may_read = self.course.both || self.shares();
        may_read && self.reached().contains(&node) && !has_bits
    }

    /// What it reads of this node, or may read: of a leaf these bits, of another one all.
    pub(super) fn reads(&self, node: Node) -> u64 {
        match self.may_read(node) {
            true => self.course.mask_of(node).unwrap_or(u64::MAX),
            false => 0,
        }
    }

    /// Whether it has none of the bits of this leaf that it claims, unless others have just left.
    pub(super) fn asks_for(&self, leaf: Node) -> bool {
        self.asks && self.is_next(leaf)
    }

    /// The bits of this leaf that it has, or may have.
    pub(super) fn bits(&self, leaf: Node) -> u64 {
        if self.may_have_with_node(leaf) {
            return self.course.plan.tree.all_bits();
        }
        match self.takes_bits_of(leaf) && self.reached().contains(&leaf) {
            true if self.is_next(leaf) && !self.claims => self.course.mask_of_part(),
            true => self.course.plan.tree.mask(leaf, &self.course.units()),
            false => 0,
        }
    }

    /// Whether it has this leaf with the node above, or may have.
    fn may_have_with_node(&self, leaf: Node) -> bool {
        let takes = self.takes_leaves && self.course.plan.tree.is_leaf(leaf);
        let above = leaf.parent().filter(|_| takes && self.course.leaves_to_take() != 0);
        above.is_some_and(|above| self.is_next(above)) || self.course.has_leaf(leaf)
    }

    /// Whether it takes bits of this leaf, if it wants it at all.
    fn takes_bits_of(&self, leaf: Node) -> bool {
        self.course.is_exclusive() || self.course.is_one_by_one() && self.is_next(leaf)
    }
}

/// Every request of a living client at this lock but this slot's own, in its slot or on the shelf;
/// one that is just written down may be there twice. Costs two reads for each slot of every
/// endpoint there, with a doorbell for sixteen, one for each block that clients have of the shelf,
/// and one at last. A word of the tree that was read before was as these say, or it has changed
/// since.
///
/// A hold that goes from one record to others meanwhile may be seen in none of them: its holder
/// says so in between, and this looks again.
pub(super) async fn living<E: Endpoint>(
    site: &Site<'_, E>,
    plan: Plan,
    lock: Addr,
) -> Result<Vec<Living>, Fault> {
    beside(site.endpoint, Some(site.me), plan, lock).await
}

/// The same of all slots but this one.
pub(super) async fn beside<E: Endpoint>(
    endpoint: &E,
    me: Option<Mailbox>,
    plan: Plan,
    lock: Addr,
) -> Result<Vec<Living>, Fault> {
    let mut moves = 0;
    loop {
        let found = look_around(endpoint, me, plan, lock).await?;
        if !plan.minds_moves {
            return Ok(found);
        }
        endpoint.read64(Plan::moves(lock)).await?;
        let now = endpoint.old() as u64;
        if now == moves {
            return Ok(found);
        }
        moves = now;
    }
}

/// The slots of all endpoints that live, but for this one.
fn others<E: Endpoint>(endpoint: &E, me: Option<Mailbox>, plan: Plan) -> Vec<Mailbox> {
    // In which order they are read must not matter.
    let (slots, from_last) = (endpoint.slots(), !plan.minds_moves);
    let slots = (0..slots).map(|slot| Slot(if from_last { slots - 1 - slot } else { slot }));
    let living = endpoint.occupied().filter_map(|index| endpoint.occupant(index));
    let all = living.flat_map(|endpoint| slots.clone().map(move |slot| Mailbox { endpoint, slot }));
    all.filter(|who| Some(*who) != me).collect()
}

/// The same, where no hold goes from one record to others.
async fn look_around<E: Endpoint>(
    endpoint: &E,
    me: Option<Mailbox>,
    plan: Plan,
    lock: Addr,
) -> Result<Vec<Living>, Fault> {
    let mut found = Vec::new();
    if plan.shelf_first {
        on_shelf(endpoint, plan, lock, &mut found).await?;
    }
    // What is read with one doorbell is seldom overtaken: those that do not mind it, to show what
    // it does, read one by one.
    let at_once = if plan.minds_moves { CHAIN_MAX / 2 } else { 1 };
    for others in others(endpoint, me, plan).chunks(at_once) {
        let record = |who: &Mailbox| endpoint.record(who.endpoint.index, who.slot);
        let reads = others.iter().flat_map(|who| {
            let state = Verb::Read { addr: record(who), words: SAYS as u16 };
            // If it has gone on to other units since, it has nothing any more of what it had.
            let units = Verb::Read { addr: record(who).plus(8 * slot::PART as u64), words: 1 };
            [state, units]
        });
        endpoint.completion(post(endpoint, reads)).await?;
        for (number, &who) in others.iter().enumerate() {
            let mut words = [0; SAYS];
            endpoint.copy_read(2 * number, &mut words);
            let units = endpoint.link(2 * number + 1).old as u64;
            if words[slot::LOCK] == lock.bits() && SlotWord(words[slot::STATE]).phase() != 0 {
                found.extend(Living::decode(plan, who, words, units));
            }
        }
    }
    if !plan.shelf_first {
        on_shelf(endpoint, plan, lock, &mut found).await?;
    }
    Ok(found)
}

/// Those whose holds are written down.
async fn on_shelf<E: Endpoint>(
    endpoint: &E,
    plan: Plan,
    lock: Addr,
    found: &mut Vec<Living>,
) -> Result<(), Fault> {
    let Some(shelf) = plan.shelf_of(lock) else { return Ok(()) };
    let tell = |owner, shelved: Shelved| {
        let is_here = shelved.lock == lock;
        found.extend(is_here.then(|| Living::shelved(plan, owner, shelved)).flatten());
    };
    shelf.for_each(endpoint, tell).await
}
