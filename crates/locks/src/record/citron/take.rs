//! Taking a node of a range, and giving it back (algorithm 2).

use farlock_fabric::verb::{CHAIN_MAX, Link};
use farlock_fabric::{
    Addr, Endpoint, Fault, HoldBack, MaskedCas, MaskedFaa, Nanos, Posted, Verb, Wait, WideAtomics,
};

use super::course::{Chain, Course, Half, Plan, Stand, execute, post};
use super::fast::leaves_given;
use super::repair::{Bar, Params, Until, Wanted};
use super::tree::Node;
use super::tuning::{self, TuningWord};
use super::word::{self, CountWord, NodeWord};
use crate::record::bakery::DRIFT_ONE_IN;
use crate::site::Site;
use crate::slot::Phase;
use crate::want::Mode;

/// By how much two spans differ at most that two clocks tell at the same rate, in nanoseconds: each
/// of them by less than one.
const TICKS_NS: Nanos = 2;

/// Reads a node.
pub(super) fn looking(plan: Plan, lock: Addr, node: Node) -> Verb<'static> {
    Verb::Read { addr: plan.word(lock, node, Half::Writers), words: plan.halves() }
}

/// Reads what the owner of a node looks at, level by level.
fn looking_below(
    plan: Plan,
    lock: Addr,
    node: Node,
) -> impl Iterator<Item = Verb<'static>> + Clone {
    plan.tree.window(node, plan.distance).map(move |(first, count)| Verb::Read {
        addr: plan.word(lock, first, Half::Writers),
        words: count as u16 * plan.halves(),
    })
}

/// The nodes above the next one of a request, the lowest first, whose owners may keep it out. If
/// the grant is counted with that node, all: each that has left one of them counts.
fn above(course: &Course) -> impl Iterator<Item = Node> + Clone {
    let counts = course.counts_next();
    let minds = move |node| {
        !course.is_exempt_from(node)
            || course.is_exclusive() && course.plan.shares && !course.is_exempt_from_readers(node)
    };
    course.next().ancestors().filter(move |&node| counts || minds(node))
}

/// Those that are looked at before the node is claimed. What decides is what is read after, if
/// there is no time to wait: but a leaf's bits are taken only when it was seen that no cleaner
/// occupies the parent, since that one trusts that a client which says later that it may take bits
/// sees it.
fn looked_at(course: &Course) -> impl Iterator<Item = Node> + Clone {
    // One that waits for readers is to find the highest node that has some.
    let sees_all = course.counts_next() || course.plan.is_timed() || course.called.is_some();
    let most = match (sees_all, course.mask()) {
        (true, _) => usize::MAX,
        (false, Some(_)) => 1,
        (false, None) => 0,
    };
    course.next().ancestors().take(most)
}

/// Posts reads of the next node of a request and of those above it that are looked at; if the grant
/// is counted with that node, of its window below it as well.
pub(super) fn look<E: Endpoint>(site: &Site<'_, E>, course: &Course) -> Posted {
    let (node, plan, lock) = (course.next(), course.plan, site.lock);
    if plan.is_timed() {
        // Nobody whom these reads do not see has occupied a node above before.
        site.opens_at(site.endpoint.now());
    }
    let up = std::iter::once(node).chain(looked_at(course)).map(|node| looking(plan, lock, node));
    let down = looking_below(plan, lock, node).skip(1).filter(|_| course.counts_next());
    let tuning = course.is_to_tune().then(|| tuning::reading(lock));
    post(site.endpoint, up.chain(down).chain(tuning))
}

/// The parameters of the lock as the chain of [`look`] has found them, if the request is to work by
/// them and does not: then nothing else of what it found is good for it.
pub(super) fn tuned<E: Endpoint>(site: &Site<'_, E>, course: &Course) -> Option<TuningWord> {
    let link = Links::of_look(course).below;
    let found = || TuningWord(site.endpoint.link(link).old as u64);
    let found = course.is_to_tune().then(found);
    found.filter(|&found| found != tuning::remembered(site))
}

/// Which links of a chain have read the next node of a request, those above it, and its window
/// below it.
#[derive(Clone, Copy)]
struct Links {
    own: usize,
    above: usize,
    below: usize,
}

impl Links {
    /// Those of [`look`].
    fn of_look(course: &Course) -> Self {
        Self { own: 0, above: 1, below: 1 + looked_at(course).count() }
    }
}

/// A node as this link of the last chain has read it: the word of writers, and that of readers.
pub(super) fn read<E: Endpoint>(site: &Site<'_, E>, link: usize) -> [NodeWord; 2] {
    let old = site.endpoint.link(link).old;
    [NodeWord(old as u64), NodeWord((old >> 64) as u64)]
}

/// Whether the next node of a request is to be had, as the chain of [`look`] has found it, or what
/// keeps it out.
pub(super) fn seen<E: Endpoint>(site: &Site<'_, E>, course: &Course) -> Result<Way, Bar> {
    let (node, [writers, readers]) = (course.next(), read(site, 0));
    let way = way(site, course, writers.turn())?;
    let is_internal = course.mask().is_none();
    let is_free = match course.mask() {
        Some(mask) => writers.0 & mask == 0,
        None => writers.is_free(),
    };
    // A try is in nobody's way for long.
    let yields = is_internal && course.tries.is_none() && course.plan.heeds_calls;
    match is_free {
        _ if yields && writers.call() != 0 => Err(Bar::Called(node, Half::Writers)),
        _ if yields && readers.call() != 0 => Err(Bar::Called(node, Half::Readers)),
        _ if readers.is_crowded() => Err(Bar::Crowd(node, Half::Readers)),
        _ if is_internal && writers.is_crowded() => Err(Bar::Crowd(node, Half::Writers)),
        true => Ok(way),
        false if is_internal => Err(Bar::Line(node)),
        false => Err(Bar::Bits(node)),
    }
}

/// The parent of the leaf that is next, as the chain of [`look`] has found it.
pub(super) fn parent_seen<E: Endpoint>(site: &Site<'_, E>, course: &Course) -> Option<NodeWord> {
    let link = course.mask().map(|_| Links::of_look(course).above)?;
    (looked_at(course).next().is_some()).then(|| read(site, link)[0])
}

/// Whether that asks newcomers to wait, and this request may be one of them. One that calls itself
/// does not wait for others that do, nor does one whose client has units beside those that it
/// wants: the caller may wait for these.
pub(super) fn hears_call<E: Endpoint>(site: &Site<'_, E>, course: &Course) -> bool {
    let heeds = course.plan.calls_after.is_some() && course.plan.heeds_calls;
    let is_newcomer = course.tries.is_none() && course.whole.is_none() && !course.is_behind();
    heeds
        && is_newcomer
        && !course.passes.calls
        && parent_seen(site, course).is_some_and(|word| word.call() != 0)
}

/// Whether the way to the next node, of which it is a client's turn, is seen only after that is
/// claimed.
pub(super) fn is_seen_after(course: &Course) -> bool {
    looked_at(course).next().is_none() && !course.counts_next()
}

/// The way to the next node, if nobody above keeps it out, as the chain of [`look`] has found it.
pub(super) fn way<E: Endpoint>(
    site: &Site<'_, E>,
    course: &Course,
    ticket: u16,
) -> Result<Way, Bar> {
    let links = Links::of_look(course);
    match first_in_the_way(site, course, (links.above..).zip(looked_at(course))) {
        Some(bar) => Err(bar),
        None => Ok(Way { ticket, left: have_left(site, course, links) }),
    }
}

/// The parent of the leaf that is next, and its word as the chain of [`look`] has found it, if that
/// is occupied by an owner from which the request is exempt: it may be a cleaner, and nobody is
/// exempt from those.
pub(super) fn exempt_parent<E: Endpoint>(
    site: &Site<'_, E>,
    course: &Course,
) -> Option<(Node, NodeWord)> {
    let parent = course.next().parent().filter(|_| course.mask().is_some())?;
    let [writers, _] = read(site, Links::of_look(course).above);
    (writers.occ() != 0 && course.is_exempt_from(parent)).then_some((parent, writers))
}

/// What is at the lowest of these nodes above the next one that keeps it out, as these links of the
/// last chain have read them. If those are readers, the highest node that has some: newcomers are
/// asked to wait at that one and above, and are not any more when it comes to those below.
fn first_in_the_way<E: Endpoint>(
    site: &Site<'_, E>,
    course: &Course,
    above: impl Iterator<Item = (usize, Node)>,
) -> Option<Bar> {
    let mut bars = above.filter_map(|(link, node)| {
        let [writers, readers] = read(site, link);
        if writers.occ() != 0 && !course.is_exempt_from(node) {
            Some(Bar::Owner(node))
        } else if course.is_exclusive()
            && readers.in_line() > 0
            && !course.is_exempt_from_readers(node)
        {
            Some(Bar::Readers(node))
        } else {
            None
        }
    });
    let first = bars.next()?;
    match first {
        Bar::Readers(_) if course.plan.calls_above => {
            Some(bars.filter(|bar| matches!(bar, Bar::Readers(_))).last().unwrap_or(first))
        }
        _ => Some(first),
    }
}

/// How many have left, of those whom a request excludes and who are counted where the last chain
/// has looked: at its next node, above, and below. If they are as many as before, nobody that it
/// excludes has come and gone between. A sum of counts that only grow comes round as each of them
/// does.
fn have_left<E: Endpoint>(site: &Site<'_, E>, course: &Course, links: Links) -> u32 {
    if !course.counts_next() {
        return 0;
    }
    let plan = course.plan;
    let readers_too = course.is_exclusive();
    let turns = |[writers, readers]: [NodeWord; 2], is_leaf: bool| {
        let of_writers = if is_leaf { 0 } else { u32::from(writers.turn()) };
        of_writers + if readers_too { u32::from(readers.turn()) } else { 0 }
    };
    let mut left = match (course.mask(), course.is_exclusive() && plan.shares) {
        // Of those who have had bits nothing is counted: see the order of a claim.
        (Some(_), false) => 0,
        (is_leaf, _) => turns(read(site, links.own), is_leaf.is_some()),
    };
    for (link, _) in (links.above..).zip(above(course)) {
        left += turns(read(site, link), false);
    }
    for_each_below(site, course, links, |_, _, word| left += word.d_cnt() as u32);
    left
}

/// Tells the words of a request's next node and of its window, as the last chain has read them,
/// that count those below whom the request excludes.
fn for_each_below<E: Endpoint>(
    site: &Site<'_, E>,
    course: &Course,
    links: Links,
    mut tell: impl FnMut(Node, Half, NodeWord),
) {
    let (plan, halves) = (course.plan, usize::from(course.plan.halves()));
    // Readers do not mind readers.
    let all = [Half::Writers, Half::Readers];
    let minded = if course.is_exclusive() { &all[..halves] } else { &all[..1] };
    let window = plan.tree.window(course.next(), plan.distance);
    let links = std::iter::once(links.own).chain(links.below..);
    for (link, (first, count)) in links.zip(window) {
        let mut words = [0; 2 * super::tree::WINDOW_MAX];
        let read = site.endpoint.copy_read(link, &mut words[..count as usize * halves]);
        for (number, words) in (0..).zip(words[..read].chunks(halves)) {
            for (&half, &word) in minded.iter().zip(words) {
                tell(first.plus(number), half, NodeWord(word));
            }
        }
    }
}

/// The way to a node that was seen to be free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Way {
    /// Of an internal node, the ticket by which it is had.
    pub(super) ticket: u16,
    /// How many had left there, where a grant is counted with the node.
    pub(super) left: u32,
}

/// By what a node is claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum By {
    /// Nobody is in its line: by the next ticket.
    Free,
    /// It is the turn of the ticket that the client has.
    Turn,
}

/// How a claim went.
pub(super) enum Claim {
    /// The node is taken, and nobody above it is in the way; at it or below it there may be some.
    /// And the way to the one behind it, if that is known.
    Made(Vec<Wanted>, Option<Way>),
    /// The same, but those below are seen only when newcomers that had seen the node vacant have
    /// had their time: see [`Params::settle`]. It has no leaves of the node.
    Early,
    /// It was undone: for what was in the way, if that was not another claim.
    Undone(Option<Bar>),
    /// It was undone, since it took longer than owners of nodes above wait.
    Late,
}

/// The verbs that give back the node with this number, of a leaf these bits, and what it was
/// counted for.
pub(super) fn leaving<'a>(
    lock: Addr,
    course: &'a Course,
    number: usize,
    bits: Option<u64>,
    notified: impl Iterator<Item = Node> + 'a,
) -> impl Iterator<Item = Verb<'static>> + 'a {
    let word = |half| course.plan.word(lock, course.nodes[number], half);
    let word = match (bits, course.mode) {
        (Some(bits), _) => {
            Verb::MaskedCas64 { addr: word(Half::Writers), op: word::give_back(bits) }
        }
        (None, Mode::Shared) => Verb::MaskedFaa64 { addr: word(Half::Readers), op: word::LEAVE },
        (None, Mode::Exclusive) => {
            let op = word::vacate(course.tickets[number], true);
            Verb::MaskedCas64 { addr: word(Half::Writers), op }
        }
    };
    std::iter::once(word).chain(counting(lock, course, notified, word::RETRACT))
}

/// The verbs that count a request at these nodes.
pub(super) fn counting<'a>(
    lock: Addr,
    course: &'a Course,
    nodes: impl Iterator<Item = Node> + 'a,
    op: MaskedFaa<u64>,
) -> impl Iterator<Item = Verb<'static>> + 'a {
    counting_at(lock, course.plan, Half::of(course.mode), nodes, op)
}

/// The same by this word of each.
pub(super) fn counting_at<'a>(
    lock: Addr,
    plan: Plan,
    half: Half,
    nodes: impl Iterator<Item = Node> + 'a,
    op: MaskedFaa<u64>,
) -> impl Iterator<Item = Verb<'static>> + 'a {
    nodes.map(move |node| Verb::MaskedFaa64 { addr: plan.word(lock, node, half), op })
}

/// The verbs that give back all that a request has, the last node first: while one of its nodes
/// keeps the owner of one above out, the others may be exempt from that.
/// What it has by the whole that it takes a part of stays with that.
pub(super) fn giving_back(lock: Addr, course: &Course) -> impl Iterator<Item = Verb<'static>> + '_ {
    let whole = course.whole.as_deref().map_or(&[][..], std::slice::from_ref);
    giving_back_beside(lock, course, whole)
}

/// The same, but for the nodes and bits that these have as well.
pub(super) fn giving_back_beside<'a>(
    lock: Addr,
    course: &'a Course,
    others: &'a [Course],
) -> impl Iterator<Item = Verb<'static>> + 'a {
    (0..course.has).rev().flat_map(move |number| {
        let all = course.bits_held(number);
        let left = all.unwrap_or(u64::MAX) & !course.beside(number, others);
        let bits = all.map(|_| left);
        let left = leaving(lock, course, number, bits, course.notified_by(number))
            .skip(usize::from(left == 0));
        let as_writer = course.notified_by(number).filter(|_| course.both);
        let as_writer = counting_at(lock, course.plan, Half::Writers, as_writer, word::RETRACT);
        let leaves = course.giving_leaves_back_beside(lock, number, others);
        leaves.chain(left).chain(as_writer)
    })
}

/// The verb that takes the next node, by this ticket if it has tickets, or says that it is read.
pub(super) fn taking(lock: Addr, course: &Course, by: By, ticket: u16) -> Verb<'static> {
    let op = match (course.bits(), course.mode, by) {
        (Some(bits), ..) => word::take(bits),
        (None, Mode::Shared, _) => return coming_to_read(lock, course),
        (None, _, By::Free) => word::occupy_free(ticket),
        (None, _, By::Turn) => word::occupy(ticket),
    };
    Verb::MaskedCas64 { addr: course.plan.word(lock, course.next(), Half::Writers), op }
}

/// The verb that says that the next node is read.
pub(super) fn coming_to_read(lock: Addr, course: &Course) -> Verb<'static> {
    let addr = course.plan.word(lock, course.next(), Half::Readers);
    Verb::MaskedFaa64 { addr, op: word::GET_IN_LINE }
}

/// The verb that counts the grant of a request, or reads how many there were for one that shares.
pub(super) fn counting_grant(lock: Addr, course: &Course) -> Verb<'static> {
    match course.mode {
        Mode::Exclusive => Verb::MaskedFaa64 { addr: lock, op: word::COUNT_GRANT },
        Mode::Shared => Verb::Read { addr: lock, words: 1 },
    }
}

/// The count of a request's token, if that verb has found this.
pub(super) fn token(course: &Course, found: u128) -> u64 {
    let word = CountWord(found as u64);
    if course.is_exclusive() { word.exclusive() } else { word.shared() }
}

/// A claim of a node on its way, with one doorbell.
struct Claiming {
    /// `None`: of a leaf beside another node of the request there may be nobody left to tell or to
    /// see.
    posted: Option<Posted>,
    links: Links,
    /// What takes the node, if it is a compare.
    takes: Option<MaskedCas<u64>>,
    /// Whether the bits were taken before.
    has_bits: bool,
    /// The link that reads the node behind, if one does.
    behind: Option<usize>,
    /// The first link that notifies.
    notified: usize,
    /// The first link that takes a leaf below the node, if some do.
    leaves: usize,
    /// The link that counts the grant, if this node is the last.
    grant: Option<usize>,
}

/// Claims the next node.
///
/// What is read comes after what counts, notifies and takes: so a client that was granted what
/// excludes this request, and has left, has counted that grant before, or is seen to have left. Of
/// a leaf's bits nobody sees who had them; they are looked at by an atomic, before a reader reads
/// the count.
fn claiming<E: Endpoint>(
    site: &Site<'_, E>,
    course: &Course,
    by: By,
    ticket: u16,
    has_bits: bool,
) -> Claiming {
    let lock = site.lock;
    let (node, plan, counts) = (course.next(), course.plan, course.counts_next());
    let own = plan.word(lock, node, Half::Writers);
    let taking = (!has_bits).then(|| taking(lock, course, by, ticket));
    let takes = match taking {
        Some(Verb::MaskedCas64 { op, .. }) => Some(op),
        _ => None,
    };
    let mut verbs = Chain::new();
    verbs.extend(taking.map(Link::from));
    let notified = verbs.len();
    verbs.extend(counting(lock, course, course.notified_next(), word::NOTIFY).map(Link::from));
    let leaves = verbs.len();
    let mut links = Links { own: leaves, above: 0, below: 0 };
    let is_leaf = course.mask().is_some();
    if plan.is_timed() {
        // What is above was read before, and what is below is read later.
        verbs.extend(course.taking_leaves(lock).map(Link::from));
        let posted = (!verbs.is_empty()).then(|| site.endpoint.post_chain(&verbs));
        let (grant, behind) = (None, None);
        return Claiming { posted, links, takes, grant, leaves, has_bits, notified, behind };
    }
    if is_leaf && plan.shares {
        let sees_bits = counts && !course.is_exclusive();
        verbs.push(Link::from(match sees_bits {
            true => Verb::MaskedFaa64 { addr: own, op: word::STAY },
            false => looking(plan, lock, node),
        }));
    }
    let grant = counts.then_some(verbs.len());
    verbs.extend(counts.then(|| counting_grant(lock, course).into()));
    links.above = verbs.len();
    verbs.extend(above(course).map(|node| looking(plan, lock, node).into()));
    links.below = verbs.len();
    verbs.extend(looking_below(plan, lock, node).skip(1).map(Link::from));
    if !is_leaf {
        // Last: what a hold below keeps while it is divided is counted here first.
        links.own = verbs.len();
        verbs.push(looking(plan, lock, node).into());
    }
    if by == By::Turn && !course.is_exclusive() {
        // A reader has no more need of its turn.
        let op = word::vacate(ticket, false);
        verbs.push(Verb::MaskedCas64 { addr: own, op }.into());
    }
    let behind = node_behind(course).map(|node| {
        verbs.push(looking(plan, lock, node).into());
        verbs.len() - 1
    });
    let posted = (!verbs.is_empty()).then(|| site.endpoint.post_chain(&verbs));
    Claiming { posted, links, takes, grant, leaves, has_bits, notified, behind }
}

/// The node behind the next one of a request, if all that must be known of it before it is claimed
/// is its line.
fn node_behind(course: &Course) -> Option<Node> {
    let behind = course.behind_next()?;
    let is_last = course.plan.counts && course.has + 2 == course.nodes.len();
    (!is_last && course.is_exclusive() && course.mask_of(behind).is_none()).then_some(behind)
}

/// The way to it, as this link has read it, if nobody is in its line.
fn way_behind<E: Endpoint>(site: &Site<'_, E>, link: Option<usize>) -> Option<Way> {
    let [writers, readers] = read(site, link?);
    let is_called = writers.call() != 0 || readers.call() != 0;
    let is_crowded = writers.is_crowded() || readers.is_crowded();
    let is_free = writers.is_free() && !is_crowded && !is_called;
    is_free.then(|| Way { ticket: writers.turn(), left: 0 })
}

/// Whether the chain that claims the next node has taken it, or its reader has come to a node that
/// no writer has.
fn has_taken<E: Endpoint>(site: &Site<'_, E>, course: &Course, chain: &Claiming) -> bool {
    if chain.has_bits {
        return true;
    }
    match (&chain.takes, course.mask()) {
        (Some(op), _) => word::swapped(op, site.endpoint.link(0).old as u64),
        (_, Some(mask)) => read(site, chain.links.own)[0].0 & mask == 0,
        (_, None) => read(site, chain.links.own)[0].occ() == 0,
    }
}

/// Whether the chain that claims the next node has counted a reader there after a client below had
/// asked newcomers to wait.
fn is_called_meanwhile<E: Endpoint>(site: &Site<'_, E>, course: &Course, chain: &Claiming) -> bool {
    let heeds = course.plan.calls_above && course.plan.heeds_calls && course.tries.is_none();
    let comes_to_read = course.mask().is_none() && chain.takes.is_none();
    heeds && comes_to_read && NodeWord(site.endpoint.link(0).old as u64).call() != 0
}

/// For what a claim of the next node has to wait, as the last chain has seen it.
fn in_its_way<E: Endpoint>(site: &Site<'_, E>, course: &Course, links: Links) -> Vec<Wanted> {
    let (node, mut wanted) = (course.next(), Vec::new());
    let has_readers = || read(site, links.own)[1].in_line() > 0;
    if course.plan.shares && course.is_exclusive() && has_readers() {
        wanted.push((node, Half::Readers, Until::unread_by(course)));
    }
    for_each_below(site, course, links, |node, half, word| {
        if word.below() > 0 {
            wanted.push((node, half, Until::Deserted));
        }
    });
    wanted
}

/// Whether a claim has taken so long, since those above were looked at, that the owner of one of
/// them may have looked below already: it may have occupied that as soon as it was seen vacant.
/// By this client's clock, which may go so much slower than that one's.
fn is_too_late<E: Endpoint>(site: &Site<'_, E>, course: &Course) -> bool {
    // Where there is nobody above whom it minds nobody above waits for it.
    if !course.plan.is_timed() || above(course).next().is_none() {
        return false;
    }
    let passed_ns = site.endpoint.now().saturating_sub(site.opened_at());
    let in_time_ns = course.plan.in_time_ns;
    let apart_ns = in_time_ns.div_ceil(DRIFT_ONE_IN) + TICKS_NS;
    passed_ns > in_time_ns.saturating_sub(apart_ns)
}

impl Params {
    /// Counts the grant of a request that has all its nodes, if it was not counted with the last.
    pub(super) async fn count<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
    ) -> Result<(), Fault> {
        if self.plan.counts && course.token.is_none() {
            course.publish(site, Stand { phase: Phase::Claiming, claims: false, ticket: None });
            site.endpoint.verb(counting_grant(site.lock, course)).await?;
            course.token = Some(token(course, site.endpoint.old()));
        }
        Ok(())
    }

    /// Takes the next node, notifies those above it, and looks at them once more, with one
    /// doorbell; at those at the node and below as well. If one above keeps it out after all, all
    /// is undone.
    pub(super) async fn claim<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        by: By,
        way: Way,
    ) -> Result<Claim, Fault> {
        course.tickets[course.has] = way.ticket;
        let has_turn = (by == By::Turn).then_some(way.ticket);
        let ticket = course.ticket().or(has_turn);
        let stand = Stand { phase: Phase::Claiming, claims: true, ticket };
        let comes_for_bits = course.contends && course.bits().is_some();
        if comes_for_bits && !self.take_bits(site, course, stand).await? {
            return Ok(Claim::Undone(Some(Bar::Bits(course.next()))));
        }
        course.leaves = course.leaves_to_take();
        course.publish(site, stand);
        let chain = claiming(site, course, by, way.ticket, comes_for_bits);
        if let Some(posted) = chain.posted {
            site.endpoint.completion(posted).await?;
        }
        course.leaves = leaves_given(site, course, chain.leaves);
        let claim = self.judge(site, course, &chain, way).await?;
        course.leaves = 0;
        Ok(claim)
    }

    /// What came of a claim that this chain has made, of which all is undone if the request is not
    /// to have its next node.
    async fn judge<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        chain: &Claiming,
        way: Way,
    ) -> Result<Claim, Fault> {
        let is_taken = has_taken(site, course, chain);
        let is_late = is_too_late(site, course) && self.minds_that_it_is_late(course);
        let barred = match course.plan.is_timed() {
            false => first_in_the_way(site, course, (chain.links.above..).zip(above(course))),
            true => None,
        };
        let crowded = (chain.notified..)
            .zip(course.notified_next())
            .find(|&(link, _)| NodeWord(site.endpoint.link(link).old as u64).is_crowded());
        let is_called = is_called_meanwhile(site, course, chain);
        let barred = is_called.then_some(Bar::Called(course.next(), Half::Readers)).or(barred);
        let bar = match (is_taken, barred, crowded) {
            (true, None, None) if is_late => {
                self.undo_claim(site, course).await?;
                return Ok(Claim::Late);
            }
            (true, None, None) if course.plan.is_timed() => {
                return Ok(match self.needs_no_more_time(site, course).await? {
                    true => Claim::Made(Vec::new(), None),
                    false => Claim::Early,
                });
            }
            (true, None, None) => {
                let below = in_its_way(site, course, chain.links);
                let have_left = have_left(site, course, chain.links) != way.left;
                let is_void = have_left || !below.is_empty();
                let counted = chain.grant.filter(|_| !is_void || self.keeps_token);
                course.token = counted.map(|link| token(course, site.endpoint.link(link).old));
                return Ok(Claim::Made(below, way_behind(site, chain.behind)));
            }
            (_, Some(bar), _) => Some(bar),
            (_, _, Some((_, above))) => Some(Bar::Crowd(above, Half::of(course.mode))),
            (false, None, None) => None,
        };
        match is_taken || chain.takes.is_none() {
            true => self.undo_claim(site, course).await?,
            false => self.undo_notes(site, course).await?,
        }
        Ok(Claim::Undone(bar))
    }

    /// Takes back what counts the request for its next node, which it has not taken.
    async fn undo_notes<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
    ) -> Result<(), Fault> {
        let notes = counting(site.lock, course, course.notified_next(), word::RETRACT);
        self.undo(site, course, course.giving_leaves_back(site.lock).chain(notes)).await
    }

    /// Whether what takes bits for a request may be held back until they are free; of a reader if
    /// it takes bits. Where clocks decide it would be late.
    pub(super) fn is_patient<E: Endpoint>(&self, site: &Site<'_, E>, course: &Course) -> bool {
        let is_held_back = self.is_eager || site.endpoint.holds_back();
        is_held_back && course.whole.is_none() && !course.plan.is_timed()
    }

    /// Waits until newcomers that saw the next node vacant before it was claimed have notified it
    /// or given way, and looks at it and below. If the wait is dropped it begins anew.
    pub(super) async fn settle<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
    ) -> Result<Vec<Wanted>, Fault> {
        let (interval, patience) = (course.plan.wait_ns, self.patience);
        site.endpoint.wait(Wait { interval, patience, ..Wait::default() }).await;
        self.look_below(site, course).await
    }

    /// Takes the bits of the next node and nothing else: where others come for the same ones, most
    /// do so in vain, and would have counted what they then take back. Whether it has them.
    async fn take_bits<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        stand: Stand,
    ) -> Result<bool, Fault> {
        let op = word::take(course.bits().expect("a leaf has bits"));
        let addr = course.plan.word(site.lock, course.next(), Half::Writers);
        let verb = Verb::MaskedCas64 { addr, op };
        course.asks = self.is_patient(site, course);
        course.publish(site, stand);
        let posted = match course.asks {
            true => {
                // Else one that is stopped before it hears the answer would keep bits of the dead.
                let waits = Stand { phase: Phase::Waiting, claims: false, ticket: stand.ticket };
                let otherwise = Some(course.says(site, waits, false));
                let hold = HoldBack { at_most: course.patience_ns(), otherwise };
                site.endpoint.post_patiently(verb, hold)
            }
            false => site.endpoint.post(verb),
        };
        let completed = site.endpoint.completion(posted).await;
        course.asks = false;
        completed?;
        Ok(word::swapped(&op, site.endpoint.old() as u64))
    }

    /// Gives back the next node, which the request has claimed and does not hold.
    pub(super) async fn undo_claim<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
    ) -> Result<(), Fault> {
        let (bits, notified) = (course.bits(), course.notified_next());
        let node = leaving(site.lock, course, course.has, bits, notified);
        self.undo(site, course, course.giving_leaves_back(site.lock).chain(node)).await
    }

    async fn undo<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
        verbs: impl Iterator<Item = Verb<'static>>,
    ) -> Result<(), Fault> {
        let ticket = course.ticket();
        course.publish(site, Stand { phase: Phase::Leaving, claims: true, ticket });
        execute(site.endpoint, verbs).await
    }

    /// Has a request read its next node, of which it has taken all units that it wants by these
    /// bits: it is counted as a reader first, and gives the bits back after, so that no writer
    /// comes between.
    pub(super) async fn change_bits<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
        bits: u64,
    ) -> Result<(), Fault> {
        let addr = course.plan.word(site.lock, course.next(), Half::Writers);
        let back = Verb::MaskedCas64 { addr, op: word::give_back(bits) };
        execute(site.endpoint, [coming_to_read(site.lock, course), back].into_iter()).await
    }

    /// Looks once more at what a request is in the way of that has claimed its next node.
    pub(super) async fn look_below<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
    ) -> Result<Vec<Wanted>, Fault> {
        let (node, plan, lock) = (course.next(), course.plan, site.lock);
        let below = looking_below(plan, lock, node).skip(1);
        let own = below.clone().count();
        let verbs = below.chain(std::iter::once(looking(plan, lock, node)));
        site.endpoint.completion(post(site.endpoint, verbs)).await?;
        Ok(in_its_way(site, course, Links { own, above: 0, below: 0 }))
    }

    /// The tickets of the nodes that a request has, or has claimed: the turns there.
    pub(super) async fn read_tickets<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        claimed: bool,
    ) -> Result<(), Fault> {
        let nodes = &course.nodes[..course.has + usize::from(claimed)];
        let read = |&node: &Node| looking(course.plan, site.lock, node);
        let tickets = course.tickets.chunks_mut(CHAIN_MAX);
        for (nodes, tickets) in nodes.chunks(CHAIN_MAX).zip(tickets) {
            site.endpoint.completion(post(site.endpoint, nodes.iter().map(read))).await?;
            for (number, ticket) in tickets[..nodes.len()].iter_mut().enumerate() {
                *ticket = self::read(site, number)[0].turn();
            }
        }
        Ok(())
    }

    /// Gives back all that a request has.
    pub(super) async fn give_all_back<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
    ) -> Result<(), Fault> {
        if course.reached(false).0.is_empty() {
            return Ok(());
        }
        course.publish(site, Stand { phase: Phase::Leaving, claims: false, ticket: None });
        if course.part > 0 {
            let (bits, notified) = (course.mask_of_part(), course.notified_by(course.has));
            let part = leaving(site.lock, course, course.has, Some(bits), notified);
            execute(site.endpoint, part).await?;
        }
        execute(site.endpoint, giving_back(site.lock, course)).await?;
        course.has_given_back();
        course.publish(site, Stand { phase: Phase::Waiting, claims: false, ticket: None });
        Ok(())
    }
}
