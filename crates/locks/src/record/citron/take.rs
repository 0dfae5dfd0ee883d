//! Taking the nodes of a range, one after the other (algorithm 2), and giving them back.

use farlock_fabric::verb::{CHAIN_MAX, Link};
use farlock_fabric::{Addr, Endpoint, Fault, MaskedCas, Posted, Verb, WideAtomics};

use super::course::{Course, Stand, addr, chain_of};
use super::repair::{Bar, Params};
use super::tree::Node;
use super::word::{self, NodeWord};
use crate::site::Site;
use crate::slot::Phase;

/// Reads a node.
pub(super) fn looking(lock: Addr, node: Node) -> Verb<'static> {
    Verb::Read { addr: addr(lock, node), words: 1 }
}

/// Reads a node and all above it, the lowest first.
fn looks(lock: Addr, node: Node) -> impl Iterator<Item = Verb<'static>> {
    std::iter::once(node).chain(node.ancestors()).map(move |node| looking(lock, node))
}

/// Posts reads of a node and all above it.
pub(super) fn look<E: Endpoint>(site: &Site<'_, E>, node: Node) -> Posted {
    site.endpoint.post_chain(&chain_of(looks(site.lock, node)))
}

/// What the chain of [`look`] has found, for the next node of this request.
pub(super) fn seen<E: Endpoint>(site: &Site<'_, E>, course: &Course) -> View {
    if let Some(above) = first_in_the_way(site, course, 1) {
        return View::Barred(above);
    }
    let old = site.endpoint.link(0).old as u64;
    match course.mask() {
        Some(mask) if old & mask == 0 => View::Free(0),
        Some(_) => View::Taken,
        None => match NodeWord(old) {
            node if node.is_crowded() => View::Crowded,
            node if node.in_line() > 0 => View::Taken,
            node => View::Free(node.turn()),
        },
    }
}

/// The lowest node above the next one that keeps it out, as the last chain has read them from this
/// link on.
fn first_in_the_way<E: Endpoint>(site: &Site<'_, E>, course: &Course, from: usize) -> Option<Node> {
    let above = (from..).zip(course.next().ancestors());
    let occupied =
        above.filter(|&(link, _)| NodeWord(site.endpoint.link(link).old as u64).occ() != 0);
    occupied.map(|(_, node)| node).find(|&node| !course.is_exempt_from(node))
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
    Barred(Node),
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

/// How a claim went.
enum Claim {
    /// The node is taken, and nobody above it is in the way; below it there may be some.
    Made(Vec<Node>),
    /// It was undone.
    Undone(Bar),
}

/// The verbs that give back the node with this number, and what it was counted for.
fn leaving(lock: Addr, course: &Course, number: usize) -> impl Iterator<Item = Verb<'static>> {
    let node = course.nodes[number];
    let op = match course.mask_of(node) {
        Some(mask) => word::give_back(mask),
        None => word::vacate(course.tickets[number], true),
    };
    let word = Verb::MaskedCas64 { addr: addr(lock, node), op };
    std::iter::once(word).chain(retracting(lock, course, number))
}

fn retracting(lock: Addr, course: &Course, number: usize) -> impl Iterator<Item = Verb<'static>> {
    let retract = move |node| Verb::MaskedFaa64 { addr: addr(lock, node), op: word::RETRACT };
    course.notified_by(number).map(retract)
}

/// The verbs that give back all that a request has, the last node first: while one of its nodes
/// keeps the owner of one above out, the others may be exempt from that.
pub(super) fn giving_back(lock: Addr, course: &Course) -> Vec<Link<'static>> {
    let numbers = (0..course.has).rev();
    chain_of(numbers.flat_map(|number| leaving(lock, course, number)))
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
                    (course, cleans) = (Course::new(self.plan, units), true);
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
                site.endpoint.completion(look(site, course.next())).await?;
                seen(site, course)
            }
        };
        let is_leaf = course.mask().is_some();
        let claim = match view {
            View::Barred(above) => return Ok(Some(Bar::Owner(above))),
            View::Crowded => return Ok(Some(Bar::Crowd(course.next()))),
            View::Taken if is_leaf => return Ok(Some(Bar::Bits(course.next()))),
            View::Taken => self.stand_in_line(site, course).await?,
            View::Free(ticket) => {
                course.tickets[course.has] = ticket;
                self.claim(site, course, word::occupy_free(ticket)).await?
            }
        };
        let below = match claim {
            Claim::Undone(bar) => return Ok(Some(bar)),
            Claim::Made(below) => below,
        };
        for node in below {
            site.endpoint.checkpoint(&[node.index().into()]);
            self.wait_below(site, course, node).await?;
        }
        course.has += 1;
        Ok(None)
    }

    /// Takes a ticket of the next node, waits for its turn, and claims the node.
    ///
    /// A ticket whose turn it is never waits for those above (the paper has it wait): if one is in
    /// the way it is given back, so that whoever is behind in line waits for nobody but those
    /// before it in line.
    async fn stand_in_line<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
    ) -> Result<Claim, Fault> {
        let node = course.next();
        course.publish(site, Stand { phase: Phase::Coming, claims: false, ticket: None });
        let verb = Verb::MaskedFaa64 { addr: addr(site.lock, node), op: word::GET_IN_LINE };
        site.endpoint.verb(verb).await?;
        let ticket = NodeWord(site.endpoint.old() as u64).next_ticket();
        course.tickets[course.has] = ticket;
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
            site.endpoint.completion(look(site, node)).await?;
            let Some(above) = first_in_the_way(site, course, 1) else { break };
            if self.keeps_turn {
                self.wait_with_turn(site, course, above, ticket).await?;
                continue;
            }
            course.publish(site, Stand { phase: Phase::Leaving, claims: false, ..stand });
            let op = word::vacate(ticket, false);
            site.endpoint.verb(Verb::MaskedCas64 { addr: addr(site.lock, node), op }).await?;
            return Ok(Claim::Undone(Bar::Owner(above)));
        }
        self.claim(site, course, word::occupy(ticket)).await
    }

    /// Takes the next node, notifies those above it, and looks at them once more, with one
    /// doorbell; at those below as well. If one above keeps it out after all, all is undone.
    async fn claim<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
        occupy: MaskedCas<u64>,
    ) -> Result<Claim, Fault> {
        let (node, lock, number) = (course.next(), site.lock, course.has);
        let ticket = course.mask().is_none().then_some(course.tickets[number]);
        course.publish(site, Stand { phase: Phase::Claiming, claims: true, ticket });
        let op = course.mask().map_or(occupy, word::take);
        let take = std::iter::once(Verb::MaskedCas64 { addr: addr(lock, node), op });
        let notify = |node| Verb::MaskedFaa64 { addr: addr(lock, node), op: word::NOTIFY };
        let notify = course.notified_by(number).map(notify);
        let notified = notify.clone().count();
        let above = node.ancestors().map(|node| looking(lock, node));
        let window = self.plan.tree.window(node, self.plan.distance);
        let below = window
            .clone()
            .map(|(first, count)| Verb::Read { addr: addr(lock, first), words: count as u16 });
        let chain = chain_of(take.chain(notify).chain(above).chain(below));
        site.endpoint.chain(&chain).await?;
        let is_taken = word::swapped(&op, site.endpoint.link(0).old as u64);
        let barred = first_in_the_way(site, course, 1 + notified);
        let crowded = (1..)
            .zip(course.notified_by(number))
            .find(|&(link, _)| NodeWord(site.endpoint.link(link).old as u64).is_crowded());
        let bar = match (is_taken, barred, crowded) {
            (true, None, None) => {
                let first = 1 + notified + usize::from(node.level());
                return Ok(Claim::Made(self.those_below(site, window, first)));
            }
            (_, Some(above), _) => Bar::Owner(above),
            (_, _, Some((_, above))) => Bar::Crowd(above),
            (false, None, None) => Bar::Nothing,
        };
        course.publish(site, Stand { phase: Phase::Leaving, claims: true, ticket });
        let undo = match is_taken {
            true => chain_of(leaving(lock, course, number)),
            false => chain_of(retracting(lock, course, number)),
        };
        if !undo.is_empty() {
            site.endpoint.chain(&undo).await?;
        }
        Ok(Claim::Undone(bar))
    }

    /// Of the nodes that the last chain has read from this link on, those below which somebody is.
    fn those_below<E: Endpoint>(
        &self,
        site: &Site<'_, E>,
        window: impl Iterator<Item = (Node, u32)>,
        from: usize,
    ) -> Vec<Node> {
        let mut below = Vec::new();
        for (link, (first, count)) in (from..).zip(window) {
            let mut words = [0; super::tree::WINDOW_MAX];
            let read = site.endpoint.copy_read(link, &mut words[..count as usize]);
            let nodes = (0..).map(|number| first.plus(number));
            let seen = words[..read].iter().zip(nodes);
            below.extend(seen.filter(|(word, _)| NodeWord(**word).below() > 0).map(|(_, n)| n));
        }
        below
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
        site.endpoint.completion(look(site, course.next())).await?;
        let View::Free(ticket) = seen(site, course) else { return Ok(false) };
        course.tickets[course.has] = ticket;
        match self.claim(site, course, word::occupy_free(ticket)).await? {
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
