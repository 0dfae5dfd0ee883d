//! DSLR: a reader-writer lock by ticket; one fetch-and-add acquires or gets in line (Yoon,
//! Chowdhury, Mozafari: Distributed Lock Management with RDMA, SIGMOD'18).
#![doc = include_str!("../../../../docs/protocols/dslr.md")]

use farlock_fabric::{Addr, Fault, MaskedCas, MaskedFaa, Verb, WideAtomics, word};

use super::bakery::{Counters, Place, Tickets, Waiting};
use super::{Mode, RecordLock, TokenSource, Tried};
use crate::event::Event;
use crate::registry::{SpecError, SpecOptions};
use crate::site::Site;
use crate::slot::Phase;

word! {
    /// The word of a DSLR lock (section 4.4, figure 3, with a generation and a count). Zero is
    /// free.
    pub struct DslrWord: u128 {
        /// Exclusive tickets given back.
        N_X n_x: 16,
        /// Shared tickets given back.
        N_S n_s: 16,
        /// How often the counters were reset.
        GENERATION generation: 16,
        /// Exclusive tickets taken.
        MAX_X max_x: 16,
        /// Shared tickets taken.
        MAX_S max_s: 16,
        /// Tickets ever taken.
        COUNT count: 48,
    }
}

const SERVED_MASK: u128 = DslrWord::N_X.mask() | DslrWord::N_S.mask();

impl DslrWord {
    /// What was given back.
    #[inline]
    const fn served(self) -> Tickets {
        Tickets { x: self.n_x() as u16, s: self.n_s() as u16 }
    }

    /// What was taken.
    #[inline]
    const fn taken(self) -> Tickets {
        Tickets { x: self.max_x() as u16, s: self.max_s() as u16 }
    }

    #[inline]
    const fn with_served(self, served: Tickets) -> Self {
        self.with(Self::N_X, served.x as u64).with(Self::N_S, served.s as u64)
    }

    #[inline]
    const fn with_taken(self, taken: Tickets) -> Self {
        self.with(Self::MAX_X, taken.x as u64).with(Self::MAX_S, taken.s as u64)
    }

    /// One ticket taken in this mode.
    #[inline]
    const fn taking(mode: Mode) -> Self {
        Self::new().with(Self::COUNT, 1).with_taken(Tickets { x: 0, s: 0 }.plus(mode, 1))
    }
}

impl Counters for DslrWord {
    fn served(word: u64) -> Tickets {
        Self(u128::from(word)).served()
    }

    fn generation(word: u64) -> u64 {
        Self(u128::from(word)).generation()
    }

    const SERVE_MASK: u64 = (SERVED_MASK | Self::GENERATION.mask()) as u64;

    fn serve(lock: Addr, seen: u64, served: Tickets) -> Verb<'static> {
        let op = MaskedCas {
            compare: u128::from(seen),
            compare_mask: Self::SERVE_MASK.into(),
            swap: Self::new().with_served(served).0,
            swap_mask: SERVED_MASK,
        };
        Verb::MaskedCas128 { addr: lock, op, hint: None }
    }
}

/// What a holder remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    ticket: Tickets,
    generation: u16,
    count: u64,
}

/// A first-come-first-served reader-writer lock by ticket.
#[derive(Clone, Debug, Default)]
pub struct Dslr {
    /// How waiters spend their time.
    pub waiting: Waiting,
}

impl Dslr {
    /// The options of [`Waiting`].
    pub(crate) fn from_options(options: SpecOptions<'_>) -> Result<Self, SpecError> {
        let mut lock = Self::default();
        for (option, value) in options.iter() {
            lock.waiting.option(&options, option, value)?;
        }
        Ok(lock)
    }

    /// The grant of whoever found `old` when it took its ticket, once it is its turn.
    #[inline(always)]
    fn grant(old: DslrWord) -> Grant {
        Grant { ticket: old.taken(), generation: old.generation() as u16, count: old.count() }
    }

    /// The place of whoever found `old` when it took its ticket.
    #[inline(always)]
    fn place(mode: Mode, old: DslrWord) -> Place {
        Place { mode, ticket: old.taken(), generation: old.generation() }
    }
}

impl<E: WideAtomics> RecordLock<E> for Dslr {
    const BYTES: u64 = 16;
    const SHARES: bool = true;
    const TOKENS: TokenSource = TokenSource::Word;
    const FIRST_COME_FIRST_SERVED: bool = true;
    const NEAR_WRAP: u128 = DslrWord::new()
        .with_served(Tickets { x: u16::MAX - 2, s: u16::MAX - 1 })
        .with_taken(Tickets { x: u16::MAX - 2, s: u16::MAX - 1 })
        .with(DslrWord::GENERATION, u64::MAX)
        .with(DslrWord::COUNT, u64::MAX - 6)
        .0;

    type Grant = Grant;

    /// All writers that are in line when it gets in line, whatever comes later.
    fn writers_before_reader(&self) -> Option<u16> {
        Some(u16::MAX)
    }

    #[inline(always)]
    fn opening(&self, site: &Site<'_, E>, mode: Mode) -> Verb<'static> {
        let op = MaskedFaa { add: DslrWord::taking(mode).0, boundary: DslrWord::BOUNDARY };
        Verb::MaskedFaa128 { addr: site.lock, op, hint: site.hint() }
    }

    #[inline(always)]
    fn opened(&self, _: &Site<'_, E>, mode: Mode, old: u128) -> Option<Grant> {
        let old = DslrWord(old);
        Self::place(mode, old).is_served(old.served()).then(|| Self::grant(old))
    }

    async fn wait_in_line(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        old: u128,
    ) -> Result<Grant, Fault> {
        let mut old = old;
        loop {
            let (place, grant) = (Self::place(mode, DslrWord(old)), Self::grant(DslrWord(old)));
            site.publish_ticket(Phase::Waiting, mode, place.generation, place.ticket.bits());
            if self.waiting.turn::<DslrWord, E>(site, place).await? {
                return Ok(grant);
            }
            site.event(Event::Restarted { lock: site.lock });
            site.publish(Phase::Opening, mode, 0);
            site.endpoint.checkpoint(&[]);
            site.endpoint.verb(self.opening(site, mode)).await?;
            old = site.endpoint.old();
            if let Some(grant) = self.opened(site, mode, old) {
                return Ok(grant);
            }
        }
    }

    #[inline(always)]
    fn closing(&self, site: &Site<'_, E>, mode: Mode, grant: Grant) -> Option<Verb<'static>> {
        let add = DslrWord::new().with_served(Tickets::default().plus(mode, 1)).0;
        let op = MaskedFaa { add, boundary: DslrWord::BOUNDARY };
        // Nobody else may have come since the ticket was taken.
        let hint = DslrWord::new()
            .with_served(grant.ticket)
            .with_taken(grant.ticket.plus(mode, 1))
            .with(DslrWord::GENERATION, grant.generation.into())
            .with(DslrWord::COUNT, grant.count + 1);
        Some(Verb::MaskedFaa128 { addr: site.lock, op, hint: Some(hint.0) })
    }

    #[inline(always)]
    fn closed(&self, site: &Site<'_, E>, mode: Mode, _: Grant, old: u128) -> bool {
        let old = DslrWord(old);
        site.left(old.with_served(old.served().plus(mode, 1)).0);
        true
    }

    async fn hand_over(
        &self,
        _: &Site<'_, E>,
        _: Mode,
        _: Grant,
        _: Option<u128>,
    ) -> Result<(), Fault> {
        unreachable!("the closing verb always gives a ticket back")
    }

    /// Takes a ticket if the word is what an earlier attempt found, or this slot left, and free.
    fn trying(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>) -> Verb<'static> {
        let seen = DslrWord(seen.or(site.hint()).unwrap_or(0));
        let op = MaskedCas {
            compare: seen.0,
            compare_mask: u128::MAX,
            swap: seen
                .with_taken(seen.taken().plus(mode, 1))
                .with(DslrWord::COUNT, seen.count() + 1)
                .0,
            swap_mask: u128::MAX,
        };
        Verb::MaskedCas128 { addr: site.lock, op, hint: Some(seen.0) }
    }

    fn tried(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>, old: u128) -> Tried<Grant> {
        let expected = seen.or(site.hint()).unwrap_or(0);
        match self.opened(site, mode, old) {
            None => Tried::Busy,
            Some(_) if old != expected => Tried::Again(old),
            Some(grant) => Tried::Granted(grant),
        }
    }

    fn generation(grant: Grant) -> u64 {
        grant.generation.into()
    }

    fn ticket(grant: Grant) -> u32 {
        grant.ticket.bits()
    }

    fn count(grant: Grant) -> u64 {
        grant.count
    }
}
