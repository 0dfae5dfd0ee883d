//! Clearing the bits that nobody alive has.
//!
//! Bits come back to a value, and a compare would not see it. So they are cleared by the one that
//! occupies the node above their leaf, a *cleaner*. It does not hold that node: it waits for nobody
//! below, and does not look at those above.

use farlock_fabric::{Fault, Nanos, Verb, Wait, WideAtomics};

use super::course::{Course, Half, Plan, Stand, execute};
use super::living::living;
use super::repair::{Bar, Params, bits_of, has_mended, owned_bits};
use super::take::{Way, exempt_parent, seen};
use super::tree::{FANOUT, Node};
use super::word::{self, NodeWord};
use crate::site::Site;
use crate::slot::Phase;
use crate::want::Mode;

/// How often a cleaner looks, where clients that are about to look themselves may want the bits.
/// They soon see that the node is occupied. Two that clean in turn, each while the other looks,
/// would clear nothing for ever.
const LOOKS: u64 = 4;

/// How often a cleaner pauses, for so many nanoseconds, where clients ask for bits that nobody else
/// has: until those are refused. They do not see the cleaner before.
const PAUSES: u64 = 16;
const PAUSE_NS: Nanos = 1_000_000;

impl Params {
    /// Clears the bits that nobody alive has in this leaf and its siblings, for a request that has
    /// nothing. What that has to wait for first, if anything.
    pub(super) async fn clean<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        wanted: &Course,
        leaf: Node,
    ) -> Result<Option<Bar>, Fault> {
        let above = leaf.parent().expect("a leaf is not the root");
        if wanted.whole.as_ref().is_some_and(|whole| whole.occupies(above)) {
            wanted.publish(site, Stand { phase: Phase::Repairing, claims: false, ticket: None });
            self.clear_and_vacate(site, above, None).await?;
            return Ok(None);
        }
        let addr = self.plan.word(site.lock, above, Half::Writers);
        site.endpoint.read64(addr).await?;
        let seen = NodeWord(site.endpoint.old() as u64);
        if !seen.is_free() {
            return Ok(Some(Bar::Line(above)));
        }
        let ticket = seen.turn();
        let plan = Plan { counts: false, ..wanted.plan };
        let course = Course::new(plan, Mode::Exclusive, plan.tree.units_of(above)).cleaning();
        course.publish_units(site);
        let stand = Stand { phase: Phase::Claiming, claims: false, ticket: Some(ticket) };
        course.publish(site, stand);
        let op = word::occupy_free(ticket);
        site.endpoint.verb(Verb::MaskedCas64 { addr, op }).await?;
        if word::swapped(&op, site.endpoint.old() as u64) {
            course.publish(site, Stand { phase: Phase::Repairing, ..stand });
            self.clear_and_vacate(site, above, Some(ticket)).await?;
        }
        wanted.publish(site, Stand { phase: Phase::Waiting, claims: false, ticket: None });
        wanted.publish_units(site);
        Ok(None)
    }

    /// What keeps a request from its next node, as the chain of [`look`](super::take::look) has
    /// found it: a cleaner also where it is exempt from owners.
    pub(super) async fn way_past_cleaners<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
    ) -> Result<Result<Way, Bar>, Fault> {
        let way = seen(site, course);
        let Some((parent, word)) = exempt_parent(site, course).filter(|_| way.is_ok()) else {
            return Ok(way);
        };
        let living = living(site, self.plan, site.lock).await?;
        let is_cleaned = living.iter().any(|other| other.cleans_below(parent, word));
        Ok(if is_cleaned { Err(Bar::Cleaner(parent)) } else { way })
    }

    /// Clears the bits that nobody alive has below a node that this client occupies, and vacates
    /// that if it does so by this ticket, as a cleaner. Of what it holds it stays the owner.
    ///
    /// Nobody else clears what is not its own there. A client that takes bits says so in its record
    /// before it looks above them: one that has not, by the time that its record is read, looks
    /// later, sees that this node has a cleaner, and takes none.
    async fn clear_and_vacate<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        above: Node,
        ticket: Option<u16>,
    ) -> Result<(), Fault> {
        let first = above.child(0);
        let leaves = || (0..FANOUT).map(|number| first.plus(number));
        let word = |leaf| self.plan.word(site.lock, leaf, Half::Writers);
        let halves = self.plan.halves();
        let (mut looks_left, mut pauses_left) = (LOOKS, PAUSES);
        let dead = loop {
            let verb = Verb::Read { addr: word(first), words: FANOUT as u16 * halves };
            site.endpoint.verb(verb).await?;
            let mut words = [0; 2 * FANOUT as usize];
            site.endpoint.copy_read(0, &mut words);
            let living = living(site, self.plan, site.lock).await?;
            let dead = |(word, leaf)| (leaf, word & !bits_of(&living, leaf));
            let dead = words.iter().step_by(halves.into()).zip(leaves()).map(dead);
            let dead: Vec<_> = dead.filter(|&(_, bits)| bits != 0).collect();
            looks_left = looks_left.saturating_sub(1);
            let is_vague = || {
                let mut vague = living.iter().filter(|other| other.is_about_to_change());
                vague.any(|other| leaves().any(|leaf| other.bits(leaf) != 0))
            };
            let is_asked = |(&word, leaf)| word & !owned_bits(&living, leaf) != 0;
            let are_asked = words.iter().step_by(halves.into()).zip(leaves()).any(is_asked);
            let (is_asked, is_vague) =
                (dead.is_empty() && are_asked, dead.is_empty() && is_vague());
            let pause_ns = match (is_asked, is_vague) {
                (true, _) if pauses_left > 0 => PAUSE_NS,
                (_, true) if looks_left > 0 => self.poll_ns,
                _ => break dead,
            };
            pauses_left -= u64::from(is_asked && pauses_left > 0);
            site.endpoint.checkpoint(&[looks_left, pauses_left]);
            let (interval, patience) = (Some(pause_ns), self.patience);
            site.endpoint.wait(Wait { interval, patience, ..Wait::default() }).await;
        };
        let clear = dead.iter().map(|&(leaf, bits)| {
            let op = word::give_back(bits);
            Verb::MaskedCas64 { addr: word(leaf), op }
        });
        let vacate = ticket.map(|ticket| {
            let op = word::vacate(ticket, true);
            Verb::MaskedCas64 { addr: word(above), op }
        });
        execute(site.endpoint, clear.chain(vacate)).await?;
        if !dead.is_empty() {
            has_mended(site);
        }
        Ok(())
    }
}
