//! Holding parts of what is held, each by a record of its own, and letting go of the rest.
//!
//! The nodes of a part lie at or below those of the whole. One that the whole has too the part
//! *inherits*, and the bits of a leaf likewise: nothing is taken, both records say that they have
//! it. One below is taken like that of a request that is exempt from all above it, since nobody
//! comes to hold anything there while the whole is held. What the parts do not inherit the whole
//! gives back when they have all. So there is no moment at which a unit of theirs is free.

use farlock_fabric::{Fault, Link, Verb, WideAtomics};

use super::attempt::Next;
use super::convert::HOLDS;
use super::course::{Chain, Course, Half, Plan, Stand, execute};
use super::repair::{Bar, Params};
use super::take::{coming_to_read, counting, counting_at, giving_back, giving_back_beside};
use super::word::{self, NodeWord};
use crate::shelf::Entry;
use crate::site::Site;
use crate::slot::Phase;
use crate::want::Mode;

impl Params {
    /// Takes a part of what its client holds as the whole. `false`, and it has nothing: one that
    /// was just about to come is in the way, or what the dead have left.
    pub(super) async fn take_part<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        part: &mut Course,
    ) -> Result<bool, Fault> {
        part.publish_units(site);
        if let (true, Some(whole)) = (self.leaves_first, &part.whole) {
            // No verb that counts, and none of those nodes that the part has as well.
            let kept = std::slice::from_ref(&*part);
            let vacates = giving_back_beside(site.lock, whole, kept)
                .filter(|verb| matches!(verb, Verb::MaskedCas64 { .. }));
            execute(site.endpoint, vacates).await?;
        }
        if !self.attempt_past_the_dead(site, part).await? {
            return Ok(false);
        }
        if part.whole.as_ref().is_some_and(|whole| whole.both) {
            // One above that waits for a writer waits for this one from now on.
            part.both = true;
            part.publish(site, HOLDS);
            let all = (0..part.has).flat_map(|number| part.notified_by(number));
            let counts = counting_at(site.lock, part.plan, Half::Writers, all, word::NOTIFY);
            execute(site.endpoint, counts).await?;
        }
        Ok(true)
    }

    /// Has a part have its next node, which the whole has too.
    pub(super) async fn inherit_next<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        part: &mut Course,
    ) -> Result<Next, Fault> {
        part.tickets[part.has] = part.ticket_of_whole();
        let ticket = part.ticket();
        part.publish(site, Stand { phase: Phase::Claiming, claims: true, ticket });
        let reads = part.mode == Mode::Shared;
        let mut verbs = Chain::new();
        verbs.extend(reads.then(|| coming_to_read(site.lock, part).into()));
        verbs.extend(counting(site.lock, part, part.notified_next(), word::NOTIFY).map(Link::from));
        let mut crowded = None;
        if !verbs.is_empty() {
            site.endpoint.completion(site.endpoint.post_chain(&verbs)).await?;
            let seen = |link| NodeWord(site.endpoint.link(link).old as u64);
            let nodes = reads.then(|| part.next()).into_iter().chain(part.notified_next());
            crowded = (0..).zip(nodes).find(|&(link, _)| seen(link).is_crowded());
        }
        let Some((_, node)) = crowded else {
            part.inherits_leaves();
            part.takes_next();
            return Ok(Next::Taken);
        };
        let leaves = part.at(part.has + 1);
        let back = giving_back(site.lock, &leaves).take(verbs.len());
        execute(site.endpoint, back).await?;
        Ok(Next::Barred(Bar::Crowd(node, Half::of(part.mode))))
    }

    /// Gives back what is held but for what these parts have as well, and strikes out where it is
    /// written down.
    pub(super) async fn leave_to<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        whole: &Course,
        parts: &[Course],
        entry: Option<Entry>,
    ) -> Result<(), Fault> {
        // A look around meanwhile may have seen the parts' records before they had anything,
        // and may see the whole's after.
        let moves = Verb::Faa64 { addr: Plan::moves(site.lock), add: 1 };
        let back = giving_back_beside(site.lock, whole, parts);
        let strike = entry.map(Entry::striking_out);
        execute(site.endpoint, std::iter::once(moves).chain(back).chain(strike)).await
    }
}
