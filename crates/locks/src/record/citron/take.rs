//! Taking the nodes of a range, one after the other (algorithm 2), and giving them back.

use farlock_fabric::verb::{CHAIN_MAX, Link};
use farlock_fabric::{Addr, Endpoint, Fault, MaskedFaa, Posted, Verb, WideAtomics};

use super::course::{Course, Half, Plan, Stand, chain_of};
use super::repair::{Bar, Params, Until, Wanted};
use super::tree::Node;
use super::word::{self, NodeWord};
use crate::site::Site;
use crate::slot::Phase;
use crate::want::Mode;

/// Reads a node.
pub(super) fn looking(plan: Plan, lock: Addr, node: Node) -> Verb<'static> {
    Verb::Read { addr: plan.word(lock, node, Half::Writers), words: plan.halves() }
}

/// Posts reads of the next node of a request and of all above it, the lowest first.
pub(super) fn look<E: Endpoint>(site: &Site<'_, E>, course: &Course) -> Posted {
    let node = course.next();
    let looks = std::iter::once(node).chain(node.ancestors());
    site.endpoint.post_chain(&chain_of(looks.map(|node| looking(course.plan, site.lock, node))))
}

/// A node as this link of the last chain has read it: the word of writers, and that of readers.
fn read<E: Endpoint>(site: &Site<'_, E>, link: usize) -> [NodeWord; 2] {
    let old = site.endpoint.link(link).old;
    [NodeWord(old as u64), NodeWord((old >> 64) as u64)]
}

/// What the chain of [`look`] has found, for the next node of this request.
pub(super) fn seen<E: Endpoint>(site: &Site<'_, E>, course: &Course) -> View {
    if let Some(bar) = first_in_the_way(site, course, 1) {
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
        (false, true) => View::Free(writers.turn()),
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

/// How a node is to be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum View {
    /// Nobody is in the way. Of an internal node, this is the next ticket.
    Free(u16),
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
            Self::Free(ticket) => 1 << 16 | u64::from(ticket),
            Self::Taken | Self::Crowded | Self::Barred(_) => 0,
        }
    }

    /// The ticket, if the way was free.
    pub(super) fn from_bits(bits: u64) -> Option<u16> {
        (bits >> 16 != 0).then_some(bits as u16)
    }
}

/// By what a node is claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    /// Nobody is in its line. This is its next ticket.
    Free(u16),
    /// It is the turn of this ticket, which the client has.
    Turn(u16),
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

/// The verb that takes the next node, or says that it is read.
fn taking(lock: Addr, course: &Course, by: By) -> Verb<'static> {
    let addr = course.plan.word(lock, course.next(), Half::of(course.mode));
    let op = match (course.mode, course.mask(), by) {
        (Mode::Shared, ..) => return Verb::MaskedFaa64 { addr, op: word::GET_IN_LINE },
        (_, Some(mask), _) => word::take(mask),
        (_, None, By::Free(ticket)) => word::occupy_free(ticket),
        (_, None, By::Turn(ticket)) => word::occupy(ticket),
    };
    Verb::MaskedCas64 { addr, op }
}

/// Whether that verb, the first of the last chain, has; a reader of a node to which no writer has
/// come, as a link of that chain has read it.
fn has_taken<E: Endpoint>(
    site: &Site<'_, E>,
    course: &Course,
    take: &Verb<'static>,
    own: usize,
) -> bool {
    match (take, course.mask()) {
        (Verb::MaskedCas64 { op, .. }, _) => word::swapped(op, site.endpoint.link(0).old as u64),
        (_, Some(_)) => read(site, own)[0].0 == 0,
        (_, None) => read(site, own)[0].occ() == 0,
    }
}

impl Params {
    /// Takes all nodes of a request, which has none. `ticket` is that of its first node, if the way
    /// to that was just seen to be free.
    pub(super) async fn acquire<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        wanted: Course,
        mut ticket: Option<u16>,
    ) -> Result<Course, Fault> {
        let (mut course, mut cleans, mut bar) = (wanted, false, None);
        loop {
            let [units, has, tickets] = course.survivors();
            let (way, at) = (ticket.map_or(u64::MAX, u64::from), Bar::code(bar));
            site.endpoint.checkpoint(&[units, has, tickets, way, at, cleans.into()]);
            if let Some(bar) = bar.take() {
                if matches!(bar, Bar::Crowd(_)) {
                    self.give_all_back(site, &mut course).await?;
                }
                if let Some(leaf) = self.wait_out(site, &course, bar).await? {
                    // Whoever holds the node above may clear bits that nobody has.
                    self.give_all_back(site, &mut course).await?;
                    let above = leaf.parent().expect("a leaf is not the root");
                    let units = self.plan.tree.units_of(above);
                    (course, cleans) = (Course::new(self.plan, Mode::Exclusive, units), true);
                    course.publish_units(site);
                }
            } else if !course.is_complete() {
                bar = self.take_next(site, &mut course, ticket.take()).await?;
            } else if cleans {
                self.clean(site, &course).await?;
                self.give_all_back(site, &mut course).await?;
                (course, cleans) = (wanted, false);
                course.publish_units(site);
            } else {
                return Ok(course);
            }
        }
    }

    /// Takes the next node, or says what it must wait for.
    async fn take_next<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        ticket: Option<u16>,
    ) -> Result<Option<Bar>, Fault> {
        let view = match ticket {
            Some(ticket) => View::Free(ticket),
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
            View::Free(ticket) => self.claim(site, course, By::Free(ticket)).await?,
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
        loop {
            site.endpoint.checkpoint(&[ticket.into(), is_its_turn.into()]);
            if !is_its_turn {
                self.wait_for_turn(site, course, ticket).await?;
                is_its_turn = true;
                continue;
            }
            let stand = Stand { phase: Phase::Claiming, claims: true, ticket: Some(ticket) };
            course.publish(site, stand);
            site.endpoint.completion(look(site, course)).await?;
            let Some(bar) = first_in_the_way(site, course, 1) else { break };
            if let (true, Bar::Owner(above)) = (self.keeps_turn, bar) {
                self.wait_with_turn(site, course, above, ticket).await?;
                continue;
            }
            course.publish(site, Stand { phase: Phase::Leaving, claims: false, ..stand });
            let op = word::vacate(ticket, false);
            site.endpoint.verb(Verb::MaskedCas64 { addr, op }).await?;
            return Ok(Claim::Undone(bar));
        }
        self.claim(site, course, By::Turn(ticket)).await
    }

    /// Takes the next node, notifies those above it, and looks at them once more, with one
    /// doorbell; at those at the node and below as well. If one above keeps it out after all, all
    /// is undone.
    async fn claim<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        by: By,
    ) -> Result<Claim, Fault> {
        let (node, number, lock) = (course.next(), course.has, site.lock);
        let (By::Free(ticket) | By::Turn(ticket)) = by;
        course.tickets[number] = ticket;
        let has_turn = matches!(by, By::Turn(_)).then_some(ticket);
        let ticket = course.ticket().or(has_turn);
        course.publish(site, Stand { phase: Phase::Claiming, claims: true, ticket });
        let take = taking(lock, course, by);
        let notify: Vec<_> = counting(lock, course, number, word::NOTIFY).collect();
        let looks_at = std::iter::once(node).filter(|_| self.plan.shares);
        let looks_at = looks_at.chain(node.ancestors());
        let looks = looks_at.map(|node| looking(self.plan, lock, node));
        let window = self.plan.tree.window(node, self.plan.distance);
        let window = window.map(|(first, count)| Verb::Read {
            addr: self.plan.word(lock, first, Half::Writers),
            words: count as u16 * self.plan.halves(),
        });
        // A reader has no more need of its turn.
        let pass = has_turn.filter(|_| !course.is_exclusive()).map(|ticket| Verb::MaskedCas64 {
            addr: self.plan.word(lock, node, Half::Writers),
            op: word::vacate(ticket, false),
        });
        let notified = notify.len();
        let verbs = std::iter::once(take).chain(notify).chain(looks).chain(window).chain(pass);
        site.endpoint.chain(&chain_of(verbs)).await?;
        let own = 1 + notified;
        let is_taken = has_taken(site, course, &take, own);
        let above = own + usize::from(self.plan.shares);
        let barred = first_in_the_way(site, course, above);
        let crowded = (1..)
            .zip(course.notified_by(number))
            .find(|&(link, _)| NodeWord(site.endpoint.link(link).old as u64).is_crowded());
        let bar = match (is_taken, barred, crowded) {
            (true, None, None) => {
                let window = above + usize::from(node.level());
                return Ok(Claim::Made(self.in_its_way(site, course, own, window)));
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

    /// For what a claim of the next node has to wait, as the last chain has read that node at one
    /// link and its window from another one on.
    fn in_its_way<E: Endpoint>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
        own: usize,
        window: usize,
    ) -> Vec<Wanted> {
        let (node, halves) = (course.next(), usize::from(self.plan.halves()));
        let mut wanted = Vec::new();
        if self.plan.shares && course.is_exclusive() && read(site, own)[1].in_line() > 0 {
            wanted.push((node, Half::Readers, Until::Unread));
        }
        let all = [Half::Writers, Half::Readers];
        // Readers do not mind readers.
        let mind = if course.is_exclusive() { &all[..halves] } else { &all[..1] };
        for (link, (first, count)) in
            (window..).zip(self.plan.tree.window(node, self.plan.distance))
        {
            let mut words = [0; 2 * super::tree::WINDOW_MAX];
            let read = site.endpoint.copy_read(link, &mut words[..count as usize * halves]);
            for (number, words) in (0..).zip(words[..read].chunks(halves)) {
                let below = mind.iter().zip(words).filter(|(_, word)| NodeWord(**word).below() > 0);
                let node = first.plus(number);
                wanted.extend(below.map(|(&half, _)| (node, half, Until::Deserted)));
            }
        }
        wanted
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
        let View::Free(ticket) = seen(site, course) else { return Ok(false) };
        match self.claim(site, course, By::Free(ticket)).await? {
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
        course.has = 0;
        course.publish(site, Stand { phase: Phase::Waiting, claims: false, ticket: None });
        Ok(())
    }
}
