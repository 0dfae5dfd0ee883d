//! Turning a hold into one in the other mode where it stands.
//!
//! A holder that does so becomes the other one first. It stops being what it was after it has
//! looked whether a client that it then would not keep out any more, or would not wait for, may
//! have read one word of a node before and the other one after. Its record says that it may be both
//! meanwhile.

use farlock_fabric::verb::Link;
use farlock_fabric::{Addr, Fault, Verb, WideAtomics};

use super::attempt::InTheWay;
use super::course::{Chain, Course, Half, Stand, execute, post};
use super::living::living;
use super::repair::{Params, Until, Wanted, has_mended};
use super::take::{self, By, coming_to_read, counting, giving_back, leaving, looking};
use super::tree::Node;
use super::word::{self, NodeWord};
use crate::site::Site;
use crate::slot::Phase;
use crate::want::Mode;

/// Where a holder stands: it has all its nodes.
pub(super) const HOLDS: Stand = Stand { phase: Phase::Held, claims: false, ticket: None };

/// All that a node has.
const ALL: u64 = u64::MAX;

/// The verbs by which a writer gives its nodes back, and is counted no more by those above, unless
/// it `stays` counted.
fn leaving_as_writer(
    lock: Addr,
    writer: &Course,
    taken: usize,
    stays: bool,
) -> impl Iterator<Item = Verb<'static>> + '_ {
    (0..taken).rev().flat_map(move |number| {
        let notified = writer.notified_by(number).filter(move |_| !stays);
        leaving(lock, writer, number, writer.bits_held(number), notified)
    })
}

impl Params {
    /// Makes an exclusive hold a shared one. `false`: one below may not have seen that it reads,
    /// and it is exclusive as before.
    pub(super) async fn make_shared<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        held: &mut Course,
    ) -> Result<bool, Fault> {
        let (writer, mut reader) = (held.in_mode(Mode::Exclusive), held.in_mode(Mode::Shared));
        let both = held.in_both_modes();
        both.publish(site, HOLDS);
        let has_come = self.comes_to_read(site, &reader).await?;
        let minds = self.minds_torn_looks;
        if !has_come || minds && !self.has_none_below(site, &both, &reader).await? {
            execute(site.endpoint, giving_back(site.lock, &reader)).await?;
            held.publish(site, HOLDS);
            return Ok(false);
        }
        if self.plan.counts {
            site.endpoint.verb(take::counting_grant(site.lock, &reader)).await?;
            reader.token = Some(take::token(&reader, site.endpoint.old()));
        }
        reader.both = minds && self.is_waited_for_above(site, &reader).await?;
        let left = leaving_as_writer(site.lock, &writer, writer.has, reader.both);
        execute(site.endpoint, left).await?;
        *held = reader;
        Ok(true)
    }

    /// Is counted as a reader of all that it has, and by those above. Whether there was room.
    async fn comes_to_read<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        reader: &Course,
    ) -> Result<bool, Fault> {
        let mut is_crowded = false;
        for number in 0..reader.has {
            let at = reader.at(number);
            let notify = counting(site.lock, &at, at.notified_next(), word::NOTIFY);
            let verbs = std::iter::once(coming_to_read(site.lock, &at)).chain(notify);
            let count = 1 + at.notified_next().count();
            site.endpoint.completion(post(site.endpoint, verbs)).await?;
            let seen = |link| NodeWord(site.endpoint.link(link).old as u64);
            is_crowded |= (0..count).any(|link| seen(link).is_crowded());
        }
        Ok(!is_crowded)
    }

    /// Whether no writer is counted below: one that has come before this client was counted as a
    /// reader may have missed that, and would miss that the node was occupied if it looked later.
    async fn has_none_below<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        both: &Course,
        reader: &Course,
    ) -> Result<bool, Fault> {
        for number in 0..reader.has {
            if !self.has_none_at(site, both, &reader.at(number)).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a node above is occupied: its owner may wait for those that it has seen counted as
    /// writers, and for none that have come since.
    async fn is_waited_for_above<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
    ) -> Result<bool, Fault> {
        for number in 0..course.has {
            let above = || course.nodes[number].ancestors();
            let verbs = above().map(|node| looking(self.plan, site.lock, node));
            if above().next().is_none() {
                continue;
            }
            site.endpoint.completion(post(site.endpoint, verbs)).await?;
            let links = 0..above().count();
            if links.into_iter().any(|link| take::read(site, link)[0].occ() != 0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes a shared hold an exclusive one if no living client has any of it, or waits for it.
    /// `false`: it is shared as before.
    pub(super) async fn make_exclusive<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        held: &mut Course,
    ) -> Result<bool, Fault> {
        let (mut writer, reader) = (held.in_mode(Mode::Exclusive), held.in_mode(Mode::Shared));
        let both = held.in_both_modes();
        both.publish(site, HOLDS);
        let (is_counted, mut taken) = (held.both, 0);
        while taken < writer.has
            && self.has_way(site, &both, taken).await?
            && self.takes(site, &mut writer, taken, is_counted).await?
        {
            taken += 1;
        }
        if taken < writer.has || !self.is_alone(site, &both, &writer).await? {
            let left = leaving_as_writer(site.lock, &writer, taken, is_counted);
            execute(site.endpoint, left).await?;
            held.publish(site, HOLDS);
            return Ok(false);
        }
        if self.plan.counts {
            site.endpoint.verb(take::counting_grant(site.lock, &writer)).await?;
            writer.token = Some(take::token(&writer, site.endpoint.old()));
        }
        execute(site.endpoint, giving_back(site.lock, &reader)).await?;
        *held = writer;
        Ok(true)
    }

    /// Whether nobody alive has the node with this number as a writer or is in its line, and nobody
    /// has one above it. A cleaner above, which trusts that it is seen before bits are taken, is
    /// seen here.
    async fn has_way<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        both: &Course,
        number: usize,
    ) -> Result<bool, Fault> {
        let at = both.at(number);
        let bar = self.first_bar(site, &at, true).await?;
        let Some(wanted) = bar else { return Ok(true) };
        Ok(self.is_left(site, both, wanted).await?
            && self.first_bar(site, &at, true).await?.is_none())
    }

    /// What is in the way above the next node of this course, or of `its` own writers' word.
    async fn first_bar<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        at: &Course,
        its: bool,
    ) -> Result<Option<Wanted>, Fault> {
        let node = at.next();
        let verbs = std::iter::once(node).chain(node.ancestors());
        let verbs = verbs.map(|node| looking(self.plan, site.lock, node));
        site.endpoint.completion(post(site.endpoint, verbs)).await?;
        let above = (1..).zip(node.ancestors()).find_map(|(link, above)| {
            let [writers, readers] = take::read(site, link);
            match () {
                () if writers.occ() != 0 => Some((above, Half::Writers, Until::Vacant)),
                () if readers.in_line() > 0 => Some((above, Half::Readers, Until::Unread(ALL))),
                () => None,
            }
        });
        let writers = take::read(site, 0)[0];
        Ok(above.or(match at.mask() {
            _ if !its => None,
            Some(mask) if writers.0 & mask != 0 => Some((node, Half::Writers, Until::Free(mask))),
            None if writers.in_line() > 0 => Some((node, Half::Writers, Until::NoLine)),
            _ => None,
        }))
    }

    /// Takes the node with this number as a writer, and is counted as one above, unless it is
    /// already. `false`: another was before it, and nothing has changed.
    async fn takes<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        writer: &mut Course,
        number: usize,
        is_counted: bool,
    ) -> Result<bool, Fault> {
        let ticket = take::read(site, 0)[0].turn();
        writer.tickets[number] = ticket;
        let at = writer.at(number);
        let taking = take::taking(site.lock, &at, By::Free, ticket);
        let Verb::MaskedCas64 { op, .. } = taking else { unreachable!("a writer compares") };
        let notified = || at.notified_next().filter(|_| !is_counted);
        let mut verbs = Chain::new();
        verbs.push(Link::from(taking));
        verbs.extend(counting(site.lock, &at, notified(), word::NOTIFY).map(Link::from));
        site.endpoint.completion(site.endpoint.post_chain(&verbs)).await?;
        let seen = |link| site.endpoint.link(link).old as u64;
        let is_taken = word::swapped(&op, seen(0));
        let is_crowded = (1..verbs.len()).any(|link| NodeWord(seen(link)).is_crowded());
        if is_taken && !is_crowded {
            return Ok(true);
        }
        let back = counting(site.lock, &at, notified(), word::RETRACT);
        let taken = is_taken.then(|| {
            let nowhere = std::iter::empty();
            leaving(site.lock, &at, number, at.bits_held(number), nowhere)
        });
        execute(site.endpoint, taken.into_iter().flatten().chain(back)).await?;
        Ok(false)
    }

    /// Whether nobody alive is beside this client, which has taken all its nodes as a writer: at
    /// them, above them or below.
    async fn is_alone<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        both: &Course,
        writer: &Course,
    ) -> Result<bool, Fault> {
        for number in 0..writer.has {
            let at = writer.at(number);
            if self.first_bar(site, &at, false).await?.is_some() {
                return Ok(false);
            }
            if !self.has_none_at(site, both, &at).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether nobody alive that a request would wait for is at its next node, which this client
    /// has, or below it. It looks until none has left meanwhile, as one that waits does.
    async fn has_none_at<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        both: &Course,
        at: &Course,
    ) -> Result<bool, Fault> {
        let (mut below, mut have_left) = (self.look_below(site, at).await?, false);
        while let Some(wanted) = below.pop() {
            let is_own = wanted.0 == at.next() && wanted.1 == Half::Readers;
            if is_own && !matches!(wanted.2, Until::Deserted) {
                if !self.is_only_reader(site, both, at).await? {
                    return Ok(false);
                }
            } else {
                match self.in_the_way(site, both, wanted, HOLDS).await? {
                    InTheWay::Nobody => have_left = true,
                    InTheWay::Apart => {}
                    _ => return Ok(false),
                }
            }
            if below.is_empty() && self.looks_again && std::mem::take(&mut have_left) {
                below = self.look_below(site, at).await?;
            }
        }
        Ok(true)
    }

    /// Whether nobody alive reads what this client wants of its node, which it reads itself.
    async fn is_only_reader<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        both: &Course,
        at: &Course,
    ) -> Result<bool, Fault> {
        let (node, mask): (Node, _) = (at.next(), at.mask());
        let addr = self.plan.word(site.lock, node, Half::Readers);
        site.endpoint.read64(addr).await?;
        let seen = NodeWord(site.endpoint.old() as u64);
        if seen.in_line() == 1 || seen.below() > 0 {
            // Below there may be parts by now of what another had here.
            return Ok(seen.below() == 0);
        }
        both.publish(site, Stand { phase: Phase::Repairing, ..HOLDS });
        let living = living(site, self.plan, site.lock).await?;
        let is_read = living.iter().any(|other| other.reads(node) & mask.unwrap_or(ALL) != 0);
        let mut is_left = !is_read;
        if is_left && mask.is_none() {
            let op = word::recount_here(seen, 1);
            site.endpoint.verb(Verb::MaskedCas64 { addr, op }).await?;
            is_left = word::swapped(&op, site.endpoint.old() as u64);
            if is_left {
                has_mended(site);
            }
        }
        both.publish(site, HOLDS);
        Ok(is_left)
    }

    /// Whether nobody alive is there any more: what the dead have left is mended.
    async fn is_left<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        both: &Course,
        wanted: Wanted,
    ) -> Result<bool, Fault> {
        let found = self.in_the_way(site, both, wanted, HOLDS).await?;
        Ok(matches!(found, InTheWay::Nobody | InTheWay::Apart))
    }
}
