//! Taking the nodes of a range, one after the other (algorithm 2), and giving them back.

use farlock_fabric::verb::{CHAIN_MAX, Link};
use farlock_fabric::{Addr, Endpoint, Fault, MaskedFaa, Posted, Verb, WideAtomics};

use super::course::{Course, Half, Plan, Stand, chain_of};
use super::repair::{Bar, Params, Until, Wanted};
use super::tree::Node;
use super::word::{self, CountWord, NodeWord};
use crate::site::Site;
use crate::slot::Phase;
use crate::want::Mode;

/// Reads a node.
pub(super) fn looking(plan: Plan, lock: Addr, node: Node) -> Verb<'static> {
    Verb::Read { addr: plan.word(lock, node, Half::Writers), words: plan.halves() }
}

/// Reads what the owner of a node looks at, level by level.
fn looking_below(plan: Plan, lock: Addr, node: Node) -> impl Iterator<Item = Verb<'static>> {
    plan.tree.window(node, plan.distance).map(move |(first, count)| Verb::Read {
        addr: plan.word(lock, first, Half::Writers),
        words: count as u16 * plan.halves(),
    })
}

/// Posts reads of the next node of a request and of all above it, the lowest first; if the grant
/// is counted with that node, of its window below it as well.
pub(super) fn look<E: Endpoint>(site: &Site<'_, E>, course: &Course) -> Posted {
    let (node, plan, lock) = (course.next(), course.plan, site.lock);
    let up = std::iter::once(node).chain(node.ancestors()).map(|node| looking(plan, lock, node));
    let down = looking_below(plan, lock, node).skip(1).filter(|_| course.counts_next());
    site.endpoint.post_chain(&chain_of(up.chain(down)))
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
        Self { own: 0, above: 1, below: 1 + usize::from(course.next().level()) }
    }
}

/// A node as this link of the last chain has read it: the word of writers, and that of readers.
fn read<E: Endpoint>(site: &Site<'_, E>, link: usize) -> [NodeWord; 2] {
    let old = site.endpoint.link(link).old;
    [NodeWord(old as u64), NodeWord((old >> 64) as u64)]
}

/// What the chain of [`look`] has found, for the next node of this request.
pub(super) fn seen<E: Endpoint>(site: &Site<'_, E>, course: &Course) -> View {
    let links = Links::of_look(course);
    if let Some(bar) = first_in_the_way(site, course, links.above) {
        return View::Barred(bar);
    }
    let [writers, readers] = read(site, 0);
    let is_free = match course.mask() {
        // A reader is counted for all of a leaf.
        Some(mask) if course.is_exclusive() => writers.0 & mask == 0,
        Some(_) => writers.0 == 0,
        None => writers.in_line() == 0,
    };
    let is_crowded = readers.is_crowded() || course.mask().is_none() && writers.is_crowded();
    match (is_crowded, is_free) {
        (true, _) => View::Crowded,
        (false, true) => {
            View::Free(Way { ticket: writers.turn(), left: have_left(site, course, links) })
        }
        (false, false) => View::Taken,
    }
}

/// Who is at the lowest node above the next one that keeps it out, as the last chain has read them
/// from this link on.
fn first_in_the_way<E: Endpoint>(site: &Site<'_, E>, course: &Course, from: usize) -> Option<Bar> {
    let above = (from..).zip(course.next().ancestors());
    let mut above = above.filter(|&(_, node)| !course.is_exempt_from(node));
    above.find_map(|(link, node)| {
        let [writers, readers] = read(site, link);
        if writers.occ() != 0 {
            Some(Bar::Owner(node))
        } else if course.is_exclusive() && readers.in_line() > 0 {
            Some(Bar::Readers(node))
        } else {
            None
        }
    })
}

/// How many have left, of those whom a request excludes and who are counted where the last chain
/// has looked: at its next node, above, and below. If they are as many as before, nobody that it
/// excludes has come and gone between. A sum of counts that only grow comes round as each of them
/// does.
fn have_left<E: Endpoint>(site: &Site<'_, E>, course: &Course, links: Links) -> u32 {
    if !course.counts_next() {
        return 0;
    }
    let (node, plan) = (course.next(), course.plan);
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
    for (link, _) in (links.above..).zip(node.ancestors()) {
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
    ticket: u16,
    /// How many had left there, where a grant is counted with the node.
    left: u32,
}

impl Way {
    const IS_FREE: u64 = 1 << 48;

    /// What a slot kept of its first verb, if the way was free.
    pub(super) fn from_bits(bits: u64) -> Option<Self> {
        let way = Self { ticket: bits as u16, left: (bits >> 16) as u32 };
        (bits & Self::IS_FREE != 0).then_some(way)
    }
}

/// How a node is to be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum View {
    /// Nobody is in the way.
    Free(Way),
    /// Others have it, or are in line.
    Taken,
    /// So many are that no more may come.
    Crowded,
    /// One above is occupied.
    Barred(Bar),
}

impl View {
    /// What a slot keeps of it between its first verb and the next: whether the way is free.
    pub(super) fn bits(self) -> u64 {
        match self {
            Self::Free(Way { ticket, left }) => {
                Way::IS_FREE | u64::from(left) << 16 | u64::from(ticket)
            }
            Self::Taken | Self::Crowded | Self::Barred(_) => 0,
        }
    }
}

/// By what a node is claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    /// Nobody is in its line: by the next ticket.
    Free,
    /// It is the turn of the ticket that the client has.
    Turn,
}

/// How a claim went.
enum Claim {
    /// The node is taken, and nobody above it is in the way; at it or below it there may be some.
    Made(Vec<Wanted>),
    /// It was undone.
    Undone(Bar),
}

/// The verbs that give back the node with this number, and what it was counted for.
fn leaving(lock: Addr, course: &Course, number: usize) -> impl Iterator<Item = Verb<'static>> {
    let (node, plan) = (course.nodes[number], course.plan);
    let addr = plan.word(lock, node, Half::of(course.mode));
    let word = match (course.mode, course.mask_of(node)) {
        (Mode::Shared, _) => Verb::MaskedFaa64 { addr, op: word::LEAVE },
        (_, Some(mask)) => Verb::MaskedCas64 { addr, op: word::give_back(mask) },
        (_, None) => Verb::MaskedCas64 { addr, op: word::vacate(course.tickets[number], true) },
    };
    std::iter::once(word).chain(counting(lock, course, number, word::RETRACT))
}

/// The verbs that count at all nodes that are to know of the one with this number.
fn counting(
    lock: Addr,
    course: &Course,
    number: usize,
    op: MaskedFaa<u64>,
) -> impl Iterator<Item = Verb<'static>> {
    let (plan, half) = (course.plan, Half::of(course.mode));
    let count = move |node| Verb::MaskedFaa64 { addr: plan.word(lock, node, half), op };
    course.notified_by(number).map(count)
}

/// The verbs that give back all that a request has, the last node first: while one of its nodes
/// keeps the owner of one above out, the others may be exempt from that.
pub(super) fn giving_back(lock: Addr, course: &Course) -> Vec<Link<'static>> {
    let numbers = (0..course.has).rev();
    chain_of(numbers.flat_map(|number| leaving(lock, course, number)))
}

/// The verb that takes the next node, by this ticket if it has tickets, or says that it is read.
fn taking(lock: Addr, course: &Course, by: By, ticket: u16) -> Verb<'static> {
    let addr = course.plan.word(lock, course.next(), Half::of(course.mode));
    let op = match (course.mode, course.mask(), by) {
        (Mode::Shared, ..) => return Verb::MaskedFaa64 { addr, op: word::GET_IN_LINE },
        (_, Some(mask), _) => word::take(mask),
        (_, None, By::Free) => word::occupy_free(ticket),
        (_, None, By::Turn) => word::occupy(ticket),
    };
    Verb::MaskedCas64 { addr, op }
}

/// The verb that counts the grant of a request, or reads how many there were for one that shares.
fn counting_grant(lock: Addr, course: &Course) -> Verb<'static> {
    match course.mode {
        Mode::Exclusive => Verb::MaskedFaa64 { addr: lock, op: word::COUNT_GRANT },
        Mode::Shared => Verb::Read { addr: lock, words: 1 },
    }
}

/// The count of a request's token, if that verb has found this.
fn token(course: &Course, found: u128) -> u64 {
    let word = CountWord(found as u64);
    if course.is_exclusive() { word.exclusive() } else { word.shared() }
}

/// The verbs that claim a node, with one doorbell.
struct Chain {
    verbs: Vec<Link<'static>>,
    links: Links,
    /// The link that counts the grant, if this node is the last.
    grant: Option<usize>,
}

/// Claims the next node.
///
/// What is read comes after what counts, notifies and takes: so whoever was granted what excludes
/// this request, and has left, has counted that before, or is seen to have left. Of a leaf's bits
/// nobody sees who had them; they are looked at by an atomic, before a reader reads the count.
fn claiming(lock: Addr, course: &Course, by: By, ticket: u16) -> Chain {
    let (node, plan, counts) = (course.next(), course.plan, course.counts_next());
    let own = plan.word(lock, node, Half::Writers);
    let mut verbs = vec![taking(lock, course, by, ticket)];
    verbs.extend(counting(lock, course, course.has, word::NOTIFY));
    let mut links = Links { own: verbs.len(), above: 0, below: 0 };
    let is_leaf = course.mask().is_some();
    if is_leaf && plan.shares {
        let sees_bits = counts && !course.is_exclusive();
        verbs.push(match sees_bits {
            true => Verb::MaskedFaa64 { addr: own, op: word::STAY },
            false => looking(plan, lock, node),
        });
    }
    let grant = counts.then_some(verbs.len());
    verbs.extend(counts.then(|| counting_grant(lock, course)));
    links.above = verbs.len();
    verbs.extend(node.ancestors().map(|node| looking(plan, lock, node)));
    if !is_leaf {
        links.own = verbs.len();
    }
    links.below = verbs.len() + 1;
    verbs.extend(looking_below(plan, lock, node));
    if by == By::Turn && !course.is_exclusive() {
        // A reader has no more need of its turn.
        verbs.push(Verb::MaskedCas64 { addr: own, op: word::vacate(ticket, false) });
    }
    Chain { verbs: chain_of(verbs.into_iter()), links, grant }
}

/// Whether the chain that claims the next node has taken it, or its reader has come to a node that
/// no writer has.
fn has_taken<E: Endpoint>(site: &Site<'_, E>, course: &Course, chain: &Chain) -> bool {
    match (&chain.verbs[0].verb, course.mask()) {
        (Verb::MaskedCas64 { op, .. }, _) => word::swapped(op, site.endpoint.link(0).old as u64),
        (_, Some(_)) => read(site, chain.links.own)[0].0 == 0,
        (_, None) => read(site, chain.links.own)[0].occ() == 0,
    }
}

/// For what a claim of the next node has to wait, as the last chain has seen it.
fn in_its_way<E: Endpoint>(site: &Site<'_, E>, course: &Course, links: Links) -> Vec<Wanted> {
    let (node, mut wanted) = (course.next(), Vec::new());
    let has_readers = || read(site, links.own)[1].in_line() > 0;
    if course.plan.shares && course.is_exclusive() && has_readers() {
        wanted.push((node, Half::Readers, Until::Unread));
    }
    for_each_below(site, course, links, |node, half, word| {
        if word.below() > 0 {
            wanted.push((node, half, Until::Deserted));
        }
    });
    wanted
}

impl Params {
    /// Takes all nodes of a request, which has none. There is a `way` to its first node if that was
    /// just seen to be free.
    pub(super) async fn acquire<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        wanted: Course,
        mut way: Option<Way>,
    ) -> Result<Course, Fault> {
        let (mut course, mut cleans, mut bar) = (wanted, false, None);
        loop {
            let [units, has, tickets, token] = course.survivors();
            let seen = way.map_or(0, |way| View::Free(way).bits());
            let at = Bar::code(bar) << 1 | u64::from(cleans);
            site.endpoint.checkpoint(&[units, has, tickets, token, seen, at]);
            if let Some(bar) = bar.take() {
                if matches!(bar, Bar::Crowd(_)) {
                    self.give_all_back(site, &mut course).await?;
                }
                if let Some(leaf) = self.wait_out(site, &course, bar).await? {
                    // Whoever holds the node above may clear bits that nobody has.
                    self.give_all_back(site, &mut course).await?;
                    let above = leaf.parent().expect("a leaf is not the root");
                    let units = self.plan.tree.units_of(above);
                    let plan = Plan { counts: false, ..self.plan };
                    (course, cleans) = (Course::new(plan, Mode::Exclusive, units), true);
                    course.publish_units(site);
                }
            } else if !course.is_complete() {
                bar = self.take_next(site, &mut course, way.take()).await?;
            } else if cleans {
                self.clean(site, &course).await?;
                self.give_all_back(site, &mut course).await?;
                (course, cleans) = (wanted, false);
                course.publish_units(site);
            } else {
                self.count(site, &mut course).await?;
                return Ok(course);
            }
        }
    }

    /// Counts the grant of a request that has all its nodes, if it was not counted with the last.
    async fn count<E: WideAtomics>(
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

    /// Takes the next node, or says what it must wait for.
    async fn take_next<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        way: Option<Way>,
    ) -> Result<Option<Bar>, Fault> {
        let view = match way {
            Some(way) => View::Free(way),
            None => {
                course.publish(site, Stand { phase: Phase::Opening, claims: true, ticket: None });
                site.endpoint.completion(look(site, course)).await?;
                seen(site, course)
            }
        };
        let is_leaf = course.mask().is_some();
        let claim = match view {
            View::Barred(bar) => return Ok(Some(bar)),
            View::Crowded => return Ok(Some(Bar::Crowd(course.next()))),
            View::Taken if is_leaf => return Ok(Some(Bar::Bits(course.next()))),
            View::Taken => self.stand_in_line(site, course).await?,
            View::Free(way) => self.claim(site, course, By::Free, way).await?,
        };
        let below = match claim {
            Claim::Undone(bar) => return Ok(Some(bar)),
            Claim::Made(below) => below,
        };
        for (left, wanted) in (0..below.len() as u64).rev().zip(below) {
            site.endpoint.checkpoint(&[left]);
            self.wait_below(site, course, wanted).await?;
        }
        course.has += 1;
        Ok(None)
    }

    /// Takes a ticket of the next node, waits for its turn, and claims the node.
    ///
    /// A ticket whose turn it is never waits for those above (the paper has it wait): if one is in
    /// the way it is given back, so that whoever is behind in line waits for nobody but those
    /// before it in line. A reader gives it back in any case, as soon as it has claimed the node.
    async fn stand_in_line<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
    ) -> Result<Claim, Fault> {
        let addr = self.plan.word(site.lock, course.next(), Half::Writers);
        course.publish(site, Stand { phase: Phase::Coming, claims: false, ticket: None });
        site.endpoint.verb(Verb::MaskedFaa64 { addr, op: word::GET_IN_LINE }).await?;
        let ticket = NodeWord(site.endpoint.old() as u64).next_ticket();
        let mut is_its_turn = false;
        let way = loop {
            site.endpoint.checkpoint(&[ticket.into(), is_its_turn.into()]);
            if !is_its_turn {
                self.wait_for_turn(site, course, ticket).await?;
                is_its_turn = true;
                continue;
            }
            let stand = Stand { phase: Phase::Claiming, claims: true, ticket: Some(ticket) };
            course.publish(site, stand);
            site.endpoint.completion(look(site, course)).await?;
            let links = Links::of_look(course);
            let Some(bar) = first_in_the_way(site, course, links.above) else {
                break Way { ticket, left: have_left(site, course, links) };
            };
            if let (true, Bar::Owner(above)) = (self.keeps_turn, bar) {
                self.wait_with_turn(site, course, above, ticket).await?;
                continue;
            }
            course.publish(site, Stand { phase: Phase::Leaving, claims: false, ..stand });
            let op = word::vacate(ticket, false);
            site.endpoint.verb(Verb::MaskedCas64 { addr, op }).await?;
            return Ok(Claim::Undone(bar));
        };
        self.claim(site, course, By::Turn, way).await
    }

    /// Takes the next node, notifies those above it, and looks at them once more, with one
    /// doorbell; at those at the node and below as well. If one above keeps it out after all, all
    /// is undone.
    async fn claim<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        by: By,
        way: Way,
    ) -> Result<Claim, Fault> {
        let (number, lock) = (course.has, site.lock);
        course.tickets[number] = way.ticket;
        let has_turn = (by == By::Turn).then_some(way.ticket);
        let ticket = course.ticket().or(has_turn);
        course.publish(site, Stand { phase: Phase::Claiming, claims: true, ticket });
        let chain = claiming(lock, course, by, way.ticket);
        site.endpoint.chain(&chain.verbs).await?;
        let is_taken = has_taken(site, course, &chain);
        let barred = first_in_the_way(site, course, chain.links.above);
        let crowded = (1..)
            .zip(course.notified_by(number))
            .find(|&(link, _)| NodeWord(site.endpoint.link(link).old as u64).is_crowded());
        let bar = match (is_taken, barred, crowded) {
            (true, None, None) => {
                let below = in_its_way(site, course, chain.links);
                let have_left = have_left(site, course, chain.links) != way.left;
                let is_void = have_left || !below.is_empty();
                let counted = chain.grant.filter(|_| !is_void || self.keeps_token);
                course.token = counted.map(|link| token(course, site.endpoint.link(link).old));
                return Ok(Claim::Made(below));
            }
            (_, Some(bar), _) => bar,
            (_, _, Some((_, above))) => Bar::Crowd(above),
            (false, None, None) => Bar::Nothing,
        };
        let ticket = course.ticket();
        course.publish(site, Stand { phase: Phase::Leaving, claims: true, ticket });
        let undo = match is_taken || !course.is_exclusive() {
            true => chain_of(leaving(lock, course, number)),
            false => chain_of(counting(lock, course, number, word::RETRACT)),
        };
        if !undo.is_empty() {
            site.endpoint.chain(&undo).await?;
        }
        Ok(Claim::Undone(bar))
    }

    /// Takes all nodes of a request if that needs no waiting; else none.
    pub(super) async fn attempt<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        mut course: Course,
    ) -> Result<Option<Course>, Fault> {
        while !course.is_complete() {
            if !self.attempt_next(site, &mut course).await? {
                self.give_all_back(site, &mut course).await?;
                return Ok(None);
            }
        }
        self.count(site, &mut course).await?;
        Ok(Some(course))
    }

    /// Takes the next node if that needs no waiting; whether it could, and nobody is below.
    async fn attempt_next<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
    ) -> Result<bool, Fault> {
        course.publish(site, Stand { phase: Phase::Opening, claims: true, ticket: None });
        site.endpoint.completion(look(site, course)).await?;
        let View::Free(way) = seen(site, course) else { return Ok(false) };
        match self.claim(site, course, By::Free, way).await? {
            Claim::Undone(_) => Ok(false),
            Claim::Made(below) => {
                course.has += 1;
                Ok(below.is_empty())
            }
        }
    }

    /// Gives back all that a request has.
    async fn give_all_back<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
    ) -> Result<(), Fault> {
        let chain = giving_back(site.lock, course);
        if chain.is_empty() {
            return Ok(());
        }
        course.publish(site, Stand { phase: Phase::Leaving, claims: false, ticket: None });
        for part in chain.chunks(CHAIN_MAX) {
            site.endpoint.chain(part).await?;
        }
        (course.has, course.token) = (0, None);
        course.publish(site, Stand { phase: Phase::Waiting, claims: false, ticket: None });
        Ok(())
    }
}
