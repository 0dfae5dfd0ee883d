//! A lock on a table: on the whole of it, or said at it by those who lock its rows (Gray, Lorie,
//! Putzolu, Traiger: Granularity of Locks in a Shared Data Base, VLDB'75; the counts are those of
//! DSLR's artifact).
#![doc = include_str!("../../../../docs/protocols/table.md")]

use farlock_fabric::word::Field;
use farlock_fabric::{EndpointId, Fault, MaskedCas, MaskedFaa, Verb, WideAtomics, word};

use super::bakery::{Doubt, Waiting};
use crate::event::Event;
use crate::lock::{Lock, Tried, expected_word, tried_word};
use crate::promise::{Granted, LockKind, Promises, Proof, TokenSource};
use crate::repair::Participant;
use crate::site::Site;
use crate::slot::Phase;
use crate::want::Mode;
use crate::width;

word! {
    /// The word of a table's lock. Zero is free.
    pub struct TableWord: u128 {
        /// Who reads the whole table, or waits to.
        S s: 15 => width::READERS,
        /// Who reads rows.
        IS is: 15 => width::READERS,
        /// Who writes rows.
        IX ix: 15 => width::READERS,
        /// Who writes the whole table, or waits to.
        X x: 15 => width::READERS,
        /// Nobody is let in: the dead are being looked for.
        FROZEN frozen: 4 => 1,
        /// Times somebody came.
        COUNT count: 64 => width::COUNT,
    }
}

const FROZEN: u128 = TableWord::FROZEN.mask();

/// What of a table a client's locks are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// All of it: shared holders read every row (S), an exclusive one writes any (X).
    Whole,
    /// Some of its rows, which have locks of their own: shared holders are about to read some (IS),
    /// exclusive ones to write some (IX). Neither excludes the other.
    Rows,
}

/// How a table is held or wanted. The number is the ticket in a slot record; 0 is none of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
enum Claim {
    S = 1,
    Is = 2,
    Ix = 3,
    X = 4,
}

const CLAIMS: [Claim; 4] = [Claim::S, Claim::Is, Claim::Ix, Claim::X];

impl Claim {
    /// Those who hold so, and those who wait where they are let wait.
    const fn field(self) -> Field {
        match self {
            Self::S => TableWord::S,
            Self::Is => TableWord::IS,
            Self::Ix => TableWord::IX,
            Self::X => TableWord::X,
        }
    }

    /// Who of those counted turns it away.
    const fn refused_by(self) -> u128 {
        match self {
            Self::Ix => FROZEN | TableWord::X.mask() | TableWord::S.mask(),
            Self::S | Self::Is | Self::X => FROZEN | TableWord::X.mask(),
        }
    }

    /// Who of those counted it waits for, while it keeps others out itself.
    const fn waits_for(self) -> u128 {
        match self {
            Self::S => TableWord::IX.mask(),
            Self::X => TableWord::S.mask() | TableWord::IS.mask() | TableWord::IX.mask(),
            Self::Is | Self::Ix => 0,
        }
    }

    /// Whether the word may count this client so. Of one that comes or is turned away its record
    /// does not tell.
    fn may_be(self, client: &Participant) -> bool {
        let record = &client.record;
        match record.phase {
            Phase::Opening => (record.mode == Mode::Shared) == matches!(self, Self::S | Self::Is),
            _ => record.ticket == self as u32,
        }
    }

    /// One more of them.
    #[inline(always)]
    const fn coming(self) -> MaskedFaa<u128> {
        let add = TableWord::new().with(TableWord::COUNT, 1).with(self.field(), 1).0;
        MaskedFaa { add, boundary: TableWord::BOUNDARY }
    }

    /// One less.
    #[inline(always)]
    const fn leaving(self) -> MaskedFaa<u128> {
        MaskedFaa { add: self.field().mask(), boundary: TableWord::BOUNDARY }
    }
}

impl TableWord {
    const fn has(self, counts: u128) -> bool {
        self.0 & counts != 0
    }

    /// After somebody came.
    const fn with_one(self, claim: Claim) -> Self {
        let one_more = claim.field().of(self.0) + 1;
        self.with(Self::COUNT, self.count().wrapping_add(1)).with(claim.field(), one_more)
    }

    /// After somebody left.
    const fn without_one(self, claim: Claim) -> Self {
        self.with(claim.field(), claim.field().of(self.0).wrapping_sub(1))
    }

    /// How many of these there are.
    fn sum(self, counts: u128) -> u32 {
        let of = |claim: Claim| Self(self.0 & counts).0 >> claim.field().shift;
        CLAIMS.map(|claim| (of(claim) & u128::from(claim.field().max())) as u32).iter().sum()
    }

    /// Without those that none of these living clients is, and open to all.
    fn without_the_dead(self, living: &[Participant]) -> Self {
        CLAIMS.iter().fold(self.with(Self::FROZEN, 0), |word, &claim| {
            let alive = living.iter().filter(|p| claim.may_be(p)).count() as u64;
            word.with(claim.field(), claim.field().of(word.0).min(alive))
        })
    }
}

/// How often who writes rows looks at the readers of the whole table that turned it away, before it
/// comes as one that they cannot turn away.
const LOOKS_MAX: u32 = 64;

/// What a holder remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    claim: Claim,
    /// The word as it was found when it came.
    found: TableWord,
}

/// A lock on a table.
#[derive(Clone, Debug)]
pub struct TableLock {
    /// What this client's locks are about.
    pub part: Part,
    /// How waiters spend their time.
    pub waiting: Waiting,
    /// How often who writes rows looks at readers of the whole table that turned it away, before it
    /// comes to write the whole table itself.
    pub looks_max: u32,
}

impl TableLock {
    /// Of a client that locks whole tables.
    pub fn whole() -> Self {
        Self { part: Part::Whole, waiting: Waiting::default(), looks_max: LOOKS_MAX }
    }

    /// Of a client that locks rows, and says so at the table first.
    pub fn rows() -> Self {
        Self { part: Part::Rows, ..Self::whole() }
    }

    #[inline(always)]
    const fn claim(&self, mode: Mode) -> Claim {
        match (self.part, mode) {
            (Part::Whole, Mode::Shared) => Claim::S,
            (Part::Whole, Mode::Exclusive) => Claim::X,
            (Part::Rows, Mode::Shared) => Claim::Is,
            (Part::Rows, Mode::Exclusive) => Claim::Ix,
        }
    }

    /// Waits until nobody of these is counted any more. `counted` says as what this client is.
    /// False if they were still there after so many looks, or after `None` of them never.
    async fn until_gone<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        counted: Option<Claim>,
        others: u128,
        looks_max: Option<u32>,
    ) -> Result<bool, Fault> {
        let ticket = counted.map_or(0, |claim| claim as u32);
        let publishes = |phase| site.publish_ticket(phase, mode, 0, ticket);
        publishes(Phase::Waiting);
        let (mut doubt, mut looks) = (Doubt::new::<E>(), 0);
        loop {
            site.endpoint.read64(site.lock).await?;
            let seen = site.endpoint.old() as u64;
            let word = TableWord(seen.into());
            doubt.sees(seen);
            if !word.has(others) {
                return Ok(true);
            }
            // Who writes the whole table would turn it away in any case.
            if looks_max == Some(looks) && !word.has(FROZEN | TableWord::X.mask()) {
                return Ok(false);
            }
            if doubt.is_due() {
                publishes(Phase::Repairing);
                let helped = Self::helps(site, &mut doubt, word, counted).await?;
                publishes(Phase::Waiting);
                if helped {
                    continue;
                }
            }
            site.endpoint.checkpoint(&[seen, doubt.hash(), looks.into()]);
            let pause_ns = (!E::WATCHES_MEMORY).then(|| self.waiting.pause_ns(word.sum(others)));
            doubt.wait(site, seen, pause_ns, self.waiting.patience).await;
            looks = looks_max.map_or(0, |most| most.min(looks + 1));
        }
    }

    /// Looks around, and takes the dead off the word, which was `seen`. Whether it may have
    /// changed.
    ///
    /// Counts go up and down, so what one sees of them tells nothing of who they are, unless nobody
    /// comes between: the word is frozen first, and compared as a whole at last.
    async fn helps<E: WideAtomics>(
        site: &Site<'_, E>,
        doubt: &mut Doubt,
        seen: TableWord,
        counted: Option<Claim>,
    ) -> Result<bool, Fault> {
        let matters = |p: &Participant| p.record.ticket != 0 || p.record.phase == Phase::Repairing;
        let own = counted.map_or(0, |claim| TableWord::new().with(claim.field(), 1).0);
        let others = |word: TableWord| TableWord(word.0 - own);
        if !seen.has(FROZEN) {
            let present = doubt.look(site, matters).await?;
            if others(seen).without_the_dead(&present) == others(seen) {
                if present.iter().any(|p| p.record.phase == Phase::Held) {
                    doubt.trust_for_a_while();
                }
                return Ok(false);
            }
        }
        let op = MaskedCas { compare: 0, compare_mask: FROZEN, swap: FROZEN, swap_mask: FROZEN };
        site.endpoint.masked_cas128(site.lock, op, None).await?;
        let frozen = TableWord(site.endpoint.old() | FROZEN);
        let Some(present) = doubt.look_around(site, matters).await? else { return Ok(false) };
        let mended = TableWord(others(frozen).without_the_dead(&present).0 + own);
        let op = MaskedCas {
            compare: frozen.0,
            compare_mask: u128::MAX,
            swap: mended.0,
            swap_mask: u128::MAX,
        };
        site.endpoint.masked_cas128(site.lock, op, Some(frozen.0)).await?;
        doubt.trust_again();
        let dead = frozen.sum(!0) - mended.sum(!0);
        if site.endpoint.old() == frozen.0 && dead > 0 {
            site.peer_died(EndpointId::NOBODY);
            let dead_readers = u64::from(dead);
            site.event(Event::Repaired { lock: site.lock, generation: 0, dead_readers });
        }
        Ok(true)
    }
}

impl LockKind for TableLock {
    const BYTES: u64 = 16;
    const SHARES: bool = true;
    const FIELDS: &'static [Field] = TableWord::FIELDS;
    const TOKENS: TokenSource = TokenSource::Word;

    fn promises(&self) -> Promises {
        Promises { proof: Proof::SLEEPER, ..Promises::EXCLUSION }
    }

    fn near_wrap(&self, steps: u16) -> u128 {
        TableWord::new().with(TableWord::COUNT, u64::from(steps).wrapping_neg()).0
    }
}

impl Granted for Grant {
    #[inline(always)]
    fn ticket(self) -> u32 {
        self.claim as u32
    }

    #[inline(always)]
    fn count(self) -> u64 {
        self.found.count()
    }
}

impl<E: WideAtomics> Lock<E> for TableLock {
    type Want = Mode;
    type Grant = Grant;

    #[inline(always)]
    fn opening(&self, site: &Site<'_, E>, mode: Mode) -> Verb<'static> {
        let op = self.claim(mode).coming();
        Verb::MaskedFaa128 { addr: site.lock, op, hint: site.hint() }
    }

    #[inline(always)]
    fn opened(&self, _: &Site<'_, E>, mode: Mode, old: u128) -> Option<Grant> {
        let (claim, found) = (self.claim(mode), TableWord(old));
        let holds = !found.has(claim.refused_by() | claim.waits_for());
        holds.then_some(Grant { claim, found })
    }

    async fn wait_in_line(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        old: u128,
    ) -> Result<Grant, Fault> {
        let (mut claim, mut found) = (self.claim(mode), TableWord(old));
        let looks_max = (claim == Claim::Ix).then_some(self.looks_max);
        while found.has(claim.refused_by()) {
            let hint = Some(found.with_one(claim).0);
            let leaving = Verb::MaskedFaa128 { addr: site.lock, op: claim.leaving(), hint };
            site.endpoint.verb(leaving).await?;
            let others = claim.refused_by();
            if !self.until_gone(site, mode, None, others, looks_max).await? {
                claim = Claim::X;
            }
            site.publish(Phase::Opening, mode, 0);
            site.endpoint.checkpoint(&[claim as u64]);
            site.event(Event::Retried { lock: site.lock });
            site.endpoint.masked_faa128(site.lock, claim.coming(), None).await?;
            found = TableWord(site.endpoint.old());
        }
        if found.has(claim.waits_for()) {
            self.until_gone(site, mode, Some(claim), claim.waits_for(), None).await?;
        }
        Ok(Grant { claim, found })
    }

    #[inline(always)]
    fn closing(&self, site: &Site<'_, E>, _: Mode, grant: Grant) -> Option<Verb<'static>> {
        // Nobody else may have come or left since.
        let hint = Some(grant.found.with_one(grant.claim).0);
        Some(Verb::MaskedFaa128 { addr: site.lock, op: grant.claim.leaving(), hint })
    }

    #[inline(always)]
    fn closed(&self, site: &Site<'_, E>, _: Mode, grant: Grant, old: u128) -> bool {
        site.left(TableWord(old).without_one(grant.claim).0);
        true
    }

    /// Comes if the word is as expected.
    fn trying(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>) -> Option<Verb<'static>> {
        let claim = self.claim(mode);
        let seen = TableWord(expected_word(self, site, mode, seen));
        let op = MaskedCas {
            compare: seen.0,
            compare_mask: u128::MAX,
            swap: seen.with_one(claim).0,
            swap_mask: u128::MAX,
        };
        Some(Verb::MaskedCas128 { addr: site.lock, op, hint: Some(seen.0) })
    }

    fn tried(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>, old: u128) -> Tried<Grant> {
        tried_word(self, site, mode, seen, old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who holds beside whom: the matrix of the paper, without SIX.
    #[test]
    fn claims_exclude_each_other_as_they_should() {
        use Claim::{Is, Ix, S, X};
        let beside = |first: Claim, second: Claim| {
            let word = TableWord::new().with_one(first);
            !word.has(second.refused_by() | second.waits_for())
        };
        for (first, second) in CLAIMS.into_iter().flat_map(|a| CLAIMS.map(|b| (a, b))) {
            let excluded = match (first, second) {
                (X, _) | (_, X) | (S, Ix) | (Ix, S) => true,
                (S | Is, S | Is) | (Is, Ix) | (Ix, Is | Ix) => false,
            };
            assert_eq!(beside(first, second), !excluded, "{second:?} beside {first:?}");
        }
    }

    /// If each waited for the other, neither would ever hold.
    #[test]
    fn nobody_waits_for_one_who_waits_for_it() {
        for (first, second) in CLAIMS.into_iter().flat_map(|a| CLAIMS.map(|b| (a, b))) {
            let waits = first.waits_for() & second.field().mask() != 0;
            let is_awaited = second.waits_for() & first.field().mask() != 0;
            assert!(!(waits && is_awaited), "{first:?} and {second:?}");
        }
    }

    #[test]
    fn who_leaves_leaves_the_word_as_it_was_but_for_the_count() {
        for claim in CLAIMS {
            let busy = CLAIMS.iter().fold(TableWord::new(), |w, &c| w.with_one(c));
            let after = busy.with_one(claim).without_one(claim);
            assert_eq!(after, busy.with(TableWord::COUNT, 5));
            assert_eq!(after.sum(claim.field().mask()), 1);
        }
    }
}
