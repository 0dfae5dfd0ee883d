//! Waiting for others, and what is done for those among them who are dead.
//!
//! A word is read first, and the records of the living after. So what the word says and no living
//! client's record bears out belongs to the dead, or the word has changed since; and whoever mends
//! it compares what it saw. That goes for tickets and for counts, which never come back to a value.
//! Bits do: they are cleared only by whoever holds the node above, of whom there is one. Those who
//! may take bits below it while it holds have said so before they could see it ([`Params::clean`]).

use farlock_fabric::{EndpointId, Fault, Nanos, Patience, Verb, WideAtomics};

use super::course::{Course, Half, Living, Plan, Stand, chain_of, living};
use super::tree::{FANOUT, Node};
use super::word::{self, NodeWord};
use crate::event::Event;
use crate::record::bakery::Doubt;
use crate::site::Site;
use crate::slot::Phase;

/// What a client must know besides what it wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Params {
    pub(super) plan: Plan,
    /// Whether a client keeps its turn while it waits for who occupies a node above.
    pub(super) keeps_turn: bool,
    /// Whether it keeps a token that is void.
    pub(super) keeps_token: bool,
    /// The pause between two reads, in nanoseconds.
    pub(super) poll_ns: Nanos,
    /// How waits spend their time where the back end has a choice.
    pub(super) patience: Patience,
}

/// What a client must wait for before it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bar {
    /// Nothing: it looks again.
    Nothing,
    /// That whoever occupies this node leaves.
    Owner(Node),
    /// That the readers of this node leave.
    Readers(Node),
    /// That bits of the leaf are free.
    Bits(Node),
    /// That fewer are at this node and below it.
    Crowd(Node),
}

impl Bar {
    /// A number for what an explorer has to tell apart.
    pub(super) fn code(bar: Option<Self>) -> u64 {
        let (kind, node) = match bar {
            None => return 0,
            Some(Self::Nothing) => (1, Node::ROOT),
            Some(Self::Owner(node)) => (2, node),
            Some(Self::Bits(node)) => (3, node),
            Some(Self::Crowd(node)) => (4, node),
            Some(Self::Readers(node)) => (5, node),
        };
        kind << 32 | u64::from(node.index())
    }
}

/// A word of a node, and what is waited for there.
pub(super) type Wanted = (Node, Half, Until);

/// What a client waits for at a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Until {
    /// That it is this ticket's turn.
    Turn(u16),
    /// That the node is not occupied.
    Vacant,
    /// That no reader is there.
    Unread,
    /// That nobody is below it.
    Deserted,
    /// That fewer are below it and in its line.
    Roomy,
    /// That these bits are free.
    Free(u64),
}

impl Until {
    /// Whether that is so.
    fn is_met(self, seen: u64) -> bool {
        let node = NodeWord(seen);
        match self {
            Self::Turn(ticket) => node.turn() == ticket,
            Self::Vacant => node.occ() == 0,
            Self::Unread => node.in_line() == 0,
            Self::Deserted => node.below() == 0,
            Self::Roomy => !node.is_crowded(),
            Self::Free(mask) => seen & mask == 0,
        }
    }

    /// Whether it waits for this client, when the word was as `seen`.
    fn waits_for(self, living: &Living, (node, half): (Node, Half), seen: NodeWord) -> bool {
        match self {
            Self::Turn(_) | Self::Vacant => {
                living.gets_in_line(node) || living.has_ticket(node, seen.turn())
            }
            Self::Unread => living.may_read(node),
            Self::Deserted | Self::Roomy => living.may_be_below(node, half),
            Self::Free(mask) => living.bits(node) & mask != 0,
        }
    }
}

/// What came of looking around.
enum Found {
    /// Those it waits for live.
    Living,
    /// The word was mended, or has changed.
    Mended,
    /// Bits that nobody alive has.
    DeadBits,
}

impl Params {
    /// Waits until what was in the way of a request is no more; the leaf, if bits of it are that
    /// nobody alive has.
    pub(super) async fn wait_out<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
        bar: Bar,
    ) -> Result<Option<Node>, Fault> {
        let half = Half::of(course.mode);
        let wanted = match bar {
            Bar::Nothing => return Ok(None),
            Bar::Owner(node) => (node, Half::Writers, Until::Vacant),
            Bar::Readers(node) => (node, Half::Readers, Until::Unread),
            Bar::Crowd(node) => (node, half, Until::Roomy),
            Bar::Bits(leaf) => {
                // A reader is counted for all of the leaf.
                let mask = course.mask_of(leaf).filter(|_| course.is_exclusive());
                (leaf, Half::Writers, Until::Free(mask.unwrap_or(u64::MAX)))
            }
        };
        self.wait_as(site, course, wanted, None).await
    }

    /// Waits until nobody occupies this node above the next one, of which it is this ticket's turn.
    pub(super) async fn wait_with_turn<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
        above: Node,
        ticket: u16,
    ) -> Result<(), Fault> {
        self.wait_as(site, course, (above, Half::Writers, Until::Vacant), Some(ticket)).await?;
        Ok(())
    }

    /// Waits with nothing at the next node but a ticket; the node, if bits of it are dead.
    async fn wait_as<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
        wanted: Wanted,
        ticket: Option<u16>,
    ) -> Result<Option<Node>, Fault> {
        let stand = Stand { phase: Phase::Waiting, claims: false, ticket };
        course.publish(site, stand);
        let is_met = self.wait_until(site, course, wanted, stand).await?;
        Ok((!is_met).then_some(wanted.0))
    }

    /// Waits until it is the turn of this ticket of the next node.
    pub(super) async fn wait_for_turn<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
        ticket: u16,
    ) -> Result<(), Fault> {
        let wanted = (course.next(), Half::Writers, Until::Turn(ticket));
        self.wait_as(site, course, wanted, Some(ticket)).await?;
        Ok(())
    }

    /// Waits for those that are at the next node, which the request has claimed, or below it.
    pub(super) async fn wait_below<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
        wanted: Wanted,
    ) -> Result<(), Fault> {
        let stand = Stand { phase: Phase::Claiming, claims: true, ticket: course.ticket() };
        course.publish(site, stand);
        self.wait_until(site, course, wanted, stand).await?;
        Ok(())
    }

    /// Waits at the word of a node, and helps it along where only the dead are in the way. `false`:
    /// it has bits that nobody alive has.
    async fn wait_until<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
        wanted: Wanted,
        stand: Stand,
    ) -> Result<bool, Fault> {
        let (node, half, until) = wanted;
        let here = site.at(self.plan.word(site.lock, node, half));
        let mut doubt = Doubt::new::<E>();
        loop {
            site.endpoint.read64(here.lock).await?;
            let seen = site.endpoint.old() as u64;
            if until.is_met(seen) {
                return Ok(true);
            }
            doubt.sees(seen);
            if doubt.is_due() {
                course.publish(site, Stand { phase: Phase::Repairing, ..stand });
                let found = self.look_around(site, &mut doubt, wanted, seen).await?;
                course.publish(site, stand);
                match found {
                    Found::Living => {}
                    Found::Mended => continue,
                    Found::DeadBits => return Ok(false),
                }
            }
            site.endpoint.checkpoint(&[seen, doubt.hash(), doubt.patience()]);
            let pause_ns = (!E::WATCHES_MEMORY).then_some(self.poll_ns);
            doubt.wait(&here, seen, pause_ns, self.patience).await;
        }
    }

    /// Looks around for those it waits for, and mends the word if no living client is among them.
    async fn look_around<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        doubt: &mut Doubt,
        (node, half, until): Wanted,
        seen: u64,
    ) -> Result<Found, Fault> {
        let (word, addr) = (NodeWord(seen), self.plan.word(site.lock, node, half));
        let mut living = living(site, self.plan, site.lock).await?;
        living.retain(|other| until.waits_for(other, (node, half), word));
        let is_vague = living.iter().any(Living::is_about_to_change);
        doubt.watch::<E>(living.iter().map(|other| other.endpoint), is_vague);
        let op = match until {
            Until::Turn(_) | Until::Vacant if living.is_empty() => {
                word::vacate(word.turn(), word.occ() != 0)
            }
            Until::Deserted | Until::Roomy if usize::from(word.below()) > living.len() => {
                word::recount(word, living.len() as u16)
            }
            Until::Unread if usize::from(word.in_line()) > living.len() => {
                word::recount_here(word, living.len() as u16)
            }
            Until::Free(mask) if bits_of(&living, node) & mask & seen != mask & seen => {
                // Somebody may have left since the word was read.
                site.endpoint.read64(addr).await?;
                let still = site.endpoint.old() as u64 & seen & mask & !bits_of(&living, node);
                return Ok(if still == 0 { Found::Mended } else { Found::DeadBits });
            }
            _ => {
                // What their records say they may have left already.
                if !is_vague && !living.is_empty() {
                    doubt.trust_for_a_while();
                }
                return Ok(Found::Living);
            }
        };
        site.endpoint.verb(Verb::MaskedCas64 { addr, op }).await?;
        if word::swapped(&op, site.endpoint.old() as u64) {
            has_mended(site);
        }
        doubt.trust_again();
        Ok(Found::Mended)
    }

    /// Clears the bits that nobody alive has in the leaves below the node that this request holds.
    ///
    /// Nobody else clears what is not its own there: it would have to hold a node above these
    /// leaves as well. Nobody takes any: a client says so before it looks above them. One that has
    /// not, by the time that its record is read, looks later, and sees that this node is occupied.
    pub(super) async fn clean<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
    ) -> Result<(), Fault> {
        let stand = Stand { phase: Phase::Repairing, claims: false, ticket: None };
        course.publish(site, stand);
        let first = course.held()[0].child(0);
        let leaves = || (0..FANOUT).map(|number| first.plus(number));
        let (word, halves) = (self.plan.word(site.lock, first, Half::Writers), self.plan.halves());
        let verb = Verb::Read { addr: word, words: FANOUT as u16 * halves };
        site.endpoint.verb(verb).await?;
        let mut words = [0; 2 * FANOUT as usize];
        site.endpoint.copy_read(0, &mut words);
        let living = living(site, self.plan, site.lock).await?;
        let dead = |(word, leaf)| (leaf, word & !bits_of(&living, leaf));
        let dead = words.iter().step_by(halves.into()).zip(leaves()).map(dead);
        let clear = dead.filter(|&(_, bits)| bits != 0).map(|(leaf, bits)| {
            let addr = self.plan.word(site.lock, leaf, Half::Writers);
            Verb::MaskedCas64 { addr, op: word::give_back(bits) }
        });
        let chain = chain_of(clear);
        if !chain.is_empty() {
            site.endpoint.chain(&chain).await?;
            has_mended(site);
        }
        Ok(())
    }
}

/// The bits of this leaf that these have, or may have.
fn bits_of(living: &[Living], leaf: Node) -> u64 {
    living.iter().fold(0, |bits, other| bits | other.bits(leaf))
}

fn has_mended<E: WideAtomics>(site: &Site<'_, E>) {
    site.peer_died(EndpointId::NOBODY);
    site.event(Event::Repaired { lock: site.lock, generation: 0, dead_readers: 0 });
}
