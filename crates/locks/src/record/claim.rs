//! Claim: a reader-writer lock whose word says who holds it, and whose line only says who is next.
#![doc = include_str!("../../../../docs/protocols/claim.md")]

mod dead;
mod door;
mod doubt;
mod letter;
mod line;
mod pass;

use farlock_fabric::word::Field;
use farlock_fabric::{
    EndpointId, Fault, Mailbox, MaskedCas, MaskedFaa, Nanos, Patience, Posted, Verb, WideAtomics,
    word,
};

use crate::event::Event;
use crate::lock::{Convert, Lock, Tried};
use crate::options::Setting;
use crate::promise::{Granted, LockKind, Order, Promises, Proof, TokenSource};
use crate::site::{NUMBER_BITS, Site};
use crate::slot::Phase;
use crate::want::Mode;
use crate::width;
use letter::sort_mail;

word! {
    /// The word of a claim lock. Zero is free.
    pub struct ClaimWord: u128 {
        /// Readers that hold the lock.
        READERS readers: 12 => width::CLAIM_READERS,
        /// The writer that holds the lock: the index of its endpoint, and above that the low bits
        /// of the endpoint's incarnation. Zero is nobody.
        HOLDER holder: 22,
        /// Which of the times that it stood in line this is of the tail's; wraps.
        TURN turn: 6 => width::LINES,
        /// The last in line: a packed mailbox, or nobody. A writer that found the lock free is the
        /// first and last in line while it holds.
        TAIL tail: 40,
        /// Releases, of readers and writers.
        COUNT count: 48 => width::COUNT,
    }
}

impl ClaimWord {
    /// Whether the lock can be claimed in this mode, whoever is in line.
    #[inline(always)]
    const fn is_free_for(self, mode: Mode) -> bool {
        self.holder() == 0
            && match mode {
                Mode::Shared => self.readers() < Self::READERS.max(),
                Mode::Exclusive => self.readers() == 0,
            }
    }

    /// Whether the tail is this one.
    #[inline(always)]
    const fn ends_with(self, me: Place) -> bool {
        self.tail() == me.mailbox.bits() && self.turn() == me.turn
    }

    /// The half that waiters watch: the holders.
    #[inline]
    const fn watched(self) -> u64 {
        self.0 as u64
    }
}

/// The tail, with which of its acquisitions it is.
const LINE_MASK: u128 = ClaimWord::TAIL.mask() | ClaimWord::TURN.mask();
/// The holders.
const HELD_MASK: u128 = ClaimWord::READERS.mask() | ClaimWord::HOLDER.mask();
/// One hold of a writer, that no other hold looks like.
const HOLD_MASK: u128 = ClaimWord::HOLDER.mask() | ClaimWord::COUNT.mask();

/// The pause between two reads of a word that is waited for, in nanoseconds.
const POLL_NS: Nanos = 1_862;

/// A place in a line: a slot, and which of its acquisitions it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    mailbox: Mailbox,
    turn: u64,
}

impl Place {
    /// The place in line that a slot has or would have now.
    #[inline(always)]
    fn of<E>(site: &Site<'_, E>) -> Self {
        Self { mailbox: site.me, turn: turn_of(site.acquisition()) }
    }

    /// The last in line of a word that has one.
    #[inline]
    fn tail_of(word: ClaimWord) -> Self {
        Self { mailbox: Mailbox::from_bits(word.tail()), turn: word.turn() }
    }

    /// The bits of a word that name it as the tail.
    #[inline(always)]
    const fn as_tail(self) -> u128 {
        ClaimWord::TAIL.place(self.mailbox.bits()) | ClaimWord::TURN.place(self.turn)
    }
}

/// As much as a word holds of how often the slot of an acquisition has stood in line.
///
/// Others in line may look late whom they stand behind. Until then nobody gets in front of them but
/// those that pass, who stand in no line: so a slot stands in line once more at most, behind them,
/// and its turn is another one, however often it has passed.
#[inline(always)]
const fn turn_of(acquisition: u32) -> u64 {
    (acquisition >> NUMBER_BITS) as u64 & ClaimWord::TURN.max()
}

/// What the word calls an endpoint that holds the lock alone.
#[inline(always)]
const fn name_of(id: EndpointId) -> u64 {
    (id.index as u64 | (id.incarnation as u64) << 16) & ClaimWord::HOLDER.max()
}

/// How a grant came about, and so how it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rank {
    /// A writer that is the first in line while it holds.
    Head,
    /// A writer that is not in line.
    Passer,
    /// A reader, which is not in line.
    Reader,
}

/// What a holder remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The count when the lock was claimed.
    count: u64,
    /// Which of its slot's acquisitions this is.
    acquisition: u32,
    rank: Rank,
}

/// A reader-writer lock: waiters are granted first come, first served, but for a bounded number
/// that need not wait.
#[derive(Clone, Debug)]
pub struct Claim {
    /// How many newcomers may pass between two of the line. All clients of a lock must agree on it.
    pub bypass: u8,
    /// How often a newcomer gives its processor up before it gets in line. `None`: 5 times where
    /// every verb completes at once, else never.
    pub newcomer_yields: Option<u8>,
    /// The pause between two reads where a wait cannot watch memory, in nanoseconds.
    pub poll_ns: Nanos,
    /// How waits spend their time where the back end has a choice.
    pub patience: Patience,
}

impl Default for Claim {
    fn default() -> Self {
        Self { bypass: 0, newcomer_yields: None, poll_ns: POLL_NS, patience: Patience::DEFAULT }
    }
}

impl Claim {
    /// Whether waiters are in line where the word is this, as far as it tells.
    pub fn is_awaited(&self, word: u128) -> bool {
        ClaimWord(word).tail() != 0
    }

    /// Whether a lock with so many releases is kept for those in line.
    #[inline(always)]
    fn is_closed_at(&self, count: u64) -> bool {
        count.is_multiple_of(u64::from(self.bypass) + 1)
    }
}

/// The count after one release more; it wraps within its field.
#[inline(always)]
const fn next(count: u64) -> u64 {
    (count + 1) & ClaimWord::COUNT.max()
}

// Releasing.

/// The verb by which a writer in line leaves, if nobody is behind it.
#[inline(always)]
fn leave_line<E>(site: &Site<'_, E>, grant: Grant) -> MaskedCas<u128> {
    let mask = HOLD_MASK | LINE_MASK;
    MaskedCas {
        compare: held_by(site, grant) | Place::of(site).as_tail(),
        compare_mask: mask,
        swap: ClaimWord::COUNT.place(next(grant.count)),
        swap_mask: mask,
    }
}

/// The verb by which a writer releases and leaves the line as it is.
#[inline(always)]
fn leave_lock<E>(site: &Site<'_, E>, grant: Grant) -> MaskedCas<u128> {
    MaskedCas {
        compare: held_by(site, grant),
        compare_mask: HOLD_MASK,
        swap: ClaimWord::COUNT.place(next(grant.count)),
        swap_mask: HOLD_MASK,
    }
}

/// The bits of a word that this writer holds.
#[inline(always)]
fn held_by<E>(site: &Site<'_, E>, grant: Grant) -> u128 {
    ClaimWord::HOLDER.place(name_of(site.me.endpoint)) | ClaimWord::COUNT.place(grant.count)
}

/// A reader less, a release more.
#[inline(always)]
fn leave_readers() -> MaskedFaa<u128> {
    let one_less = ClaimWord::READERS.place(ClaimWord::READERS.max());
    MaskedFaa { add: one_less | ClaimWord::COUNT.place(1), boundary: ClaimWord::BOUNDARY }
}

/// What the word is after a verb that found `old` and whose comparison held.
#[inline(always)]
const fn swapped(op: &MaskedCas<u128>, old: u128) -> u128 {
    old & !op.swap_mask | op.swap & op.swap_mask
}

/// Whether a verb's comparison held for this word.
#[inline(always)]
const fn matched(op: &MaskedCas<u128>, old: u128) -> bool {
    (old ^ op.compare) & op.compare_mask == 0
}

impl Claim {
    #[inline(always)]
    fn exit<E: WideAtomics>(site: &Site<'_, E>, grant: Grant) -> Verb<'static> {
        let addr = site.lock;
        match grant.rank {
            Rank::Head => {
                let op = leave_line(site, grant);
                Verb::MaskedCas128 { addr, op, hint: Some(op.compare) }
            }
            Rank::Passer => {
                let op = leave_lock(site, grant);
                // It passed a word that it had left or seen.
                let hint = site.hint().map(|seen| seen | op.compare & ClaimWord::HOLDER.mask());
                Verb::MaskedCas128 { addr, op, hint }
            }
            Rank::Reader => {
                let hint = site.hint().map(|seen| seen.wrapping_add(ClaimWord::READERS.place(1)));
                Verb::MaskedFaa128 { addr, op: leave_readers(), hint }
            }
        }
    }

    #[inline(always)]
    fn exited<E: WideAtomics>(site: &Site<'_, E>, grant: Grant, old: u128) -> bool {
        let has_left = |op: MaskedCas<u128>| {
            let has_left = matched(&op, old);
            if has_left {
                site.left(swapped(&op, old));
            }
            has_left
        };
        match grant.rank {
            Rank::Head => has_left(leave_line(site, grant)),
            Rank::Passer => has_left(leave_lock(site, grant)),
            Rank::Reader => {
                site.left(farlock_fabric::verb::masked_faa128(old, &leave_readers()));
                ClaimWord(old).readers() > 0
            }
        }
    }

    /// The verb by which a writer's hold begins anew, where the lock's word was this; `None` if it
    /// is the turn of those in line.
    fn renewal<E>(
        &self,
        site: &Site<'_, E>,
        grant: Grant,
        seen: ClaimWord,
    ) -> Option<MaskedCas<u128>> {
        let me = Place::of(site);
        let count = next(grant.count);
        let others_wait = seen.tail() != 0 && !(grant.rank == Rank::Head && seen.ends_with(me));
        if others_wait && self.is_closed_at(count) {
            return None;
        }
        let line = if others_wait { 0 } else { LINE_MASK };
        Some(MaskedCas {
            compare: held_by(site, grant) | seen.0 & line,
            compare_mask: HOLD_MASK | line,
            swap: ClaimWord::COUNT.place(count),
            swap_mask: ClaimWord::COUNT.mask(),
        })
    }
}

impl LockKind for Claim {
    const BYTES: u64 = 16;
    const SHARES: bool = true;
    const FIELDS: &'static [Field] = ClaimWord::FIELDS;
    const TOKENS: TokenSource = TokenSource::Word;

    /// `bypass=COUNT`: how many newcomers may pass between two of the line;
    /// `newcomer-yields=COUNT`: how often a newcomer yields before it gets in line; `poll=NANOS`:
    /// the pause between two reads where a wait cannot watch memory; `spins=COUNT`, `yields=COUNT`.
    fn option(&mut self, name: &str) -> Option<Setting<'_>> {
        match name {
            "bypass" => Some(Setting::count(&mut self.bypass, 0..=u8::MAX)),
            "newcomer-yields" => {
                Some(Setting::count(self.newcomer_yields.get_or_insert(0), 0..=u8::MAX))
            }
            "poll" => Some(Setting::nanos(&mut self.poll_ns, 1)),
            _ => Setting::patience(&mut self.patience, name),
        }
    }

    fn promises(&self) -> Promises {
        Promises {
            order: Order {
                bypass_max: Some(self.bypass.into()),
                readers_in_line: true,
                outlives_pauses: false,
                ..Order::NONE
            },
            tries_tell_truth: true,
            withdraws: true,
            passes_over_stopped: true,
            leaves_mail: true,
            acts_on_memory: true,
            proof: Proof {
                variants: &["bypass=1"],
                patient: "poll=15000000",
                has_many_verbs: true,
                ..Proof::SLEEPER
            },
            ..Promises::EXCLUSION
        }
    }

    fn near_wrap(&self, steps: u16) -> u128 {
        ClaimWord::COUNT.place(u64::from(steps).wrapping_neg())
    }
}

impl Granted for Grant {
    #[inline(always)]
    fn ticket(self) -> u32 {
        self.acquisition
    }

    #[inline(always)]
    fn count(self) -> u64 {
        self.count
    }
}

impl<E: WideAtomics> Lock<E> for Claim {
    type Want = Mode;
    type Grant = Grant;

    #[inline(always)]
    fn begin(&self, site: &Site<'_, E>, _: Mode) -> u32 {
        site.begin_acquisition()
    }

    #[inline]
    fn kept_out(&self, site: &Site<'_, E>, mode: Mode) {
        site.publish_ticket(Phase::Coming, mode, 0, site.acquisition());
    }

    #[inline(always)]
    fn is_believed(&self, site: &Site<'_, E>, mode: Mode) -> bool {
        mode == Mode::Exclusive || doubt::is_believed(site)
    }

    #[inline(always)]
    fn opening(&self, site: &Site<'_, E>, mode: Mode) -> Verb<'static> {
        self.attempt(site, mode)
    }

    #[inline(always)]
    fn open(&self, site: &Site<'_, E>, mode: Mode) -> Posted {
        self.post_attempt(site, mode)
    }

    #[inline(always)]
    fn opened(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Option<Grant> {
        self.attempted(site, mode, old)
    }

    async fn wait_in_line(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        old: u128,
    ) -> Result<Grant, Fault> {
        let granted = self.wait_or_leave(site, mode, Some(old)).await?;
        Ok(granted.expect("who does not withdraw stays until it is granted"))
    }

    async fn wait_or_leave(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        old: Option<u128>,
    ) -> Result<Option<Grant>, Fault> {
        if let Some(old) = old {
            site.forget_position();
            match self.get_in_line(site, mode, ClaimWord(old)).await? {
                door::Came::Granted(grant) => return Ok(Some(grant)),
                door::Came::Left => return Ok(None),
                door::Came::InLine => {}
            }
        }
        let granted = self.wait_for_turn(site, mode).await?;
        if let Some(grant) = granted {
            self.begin_barging(site, grant, false);
        }
        Ok(granted)
    }

    #[inline(always)]
    fn closing(&self, site: &Site<'_, E>, mode: Mode, grant: Grant) -> Option<Verb<'static>> {
        // What has come late must not fill the mailbox.
        if mode == Mode::Exclusive && sort_mail(site).is_followed {
            return None;
        }
        Some(Self::exit(site, grant))
    }

    #[inline(always)]
    fn close(&self, site: &Site<'_, E>, mode: Mode, grant: Grant) -> Option<Posted> {
        if mode == Mode::Exclusive && sort_mail(site).is_followed {
            return None;
        }
        // Each verb in a place of its own, where its masks are constants.
        Some(match grant.rank {
            Rank::Head => site.endpoint.post(Self::exit(site, Grant { rank: Rank::Head, ..grant })),
            Rank::Passer => {
                site.endpoint.post(Self::exit(site, Grant { rank: Rank::Passer, ..grant }))
            }
            Rank::Reader => {
                site.endpoint.post(Self::exit(site, Grant { rank: Rank::Reader, ..grant }))
            }
        })
    }

    #[inline(always)]
    fn closed(&self, site: &Site<'_, E>, _mode: Mode, grant: Grant, old: u128) -> bool {
        Self::exited(site, grant, old)
    }

    /// A head of the line that others stand behind: frees the lock, then tells the next in line.
    /// Or a client that was taken for dead.
    async fn hand_over(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        grant: Grant,
        _old: Option<u128>,
    ) -> Result<(), Fault> {
        if grant.rank == Rank::Reader {
            // There were no readers to leave: others had been certain that this client was dead.
            let again = MaskedFaa { add: ClaimWord::READERS.place(1), ..leave_readers() };
            site.endpoint.masked_faa128(site.lock, again, None).await?;
            site.event(Event::Superseded { lock: site.lock });
            return Ok(());
        }
        // Published before the verb: a waiter that reports too late to be told looks here then.
        site.publish_ticket(Phase::Leaving, mode, 0, grant.acquisition);
        let op = leave_lock(site, grant);
        site.endpoint.masked_cas128(site.lock, op, site.hint()).await?;
        let old = site.endpoint.old();
        if !matched(&op, old) {
            // Others were certain that this client had died.
            site.event(Event::Superseded { lock: site.lock });
            return Ok(());
        }
        site.left(swapped(&op, old));
        self.tell_next(site).await
    }

    fn trying(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>) -> Option<Verb<'static>> {
        let seen = seen.or(site.hint());
        let op = door::enter_free(site, mode, ClaimWord(seen.unwrap_or(0)));
        Some(Verb::MaskedCas128 { addr: site.lock, op, hint: seen })
    }

    fn tried(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>, old: u128) -> Tried<Grant> {
        let op = door::enter_free(site, mode, ClaimWord(seen.or(site.hint()).unwrap_or(0)));
        let found = ClaimWord(old);
        if matched(&op, old) {
            site.left(old);
            return Tried::Granted(door::granted(site, mode, &op, old));
        }
        if found.tail() == 0 && found.is_free_for(mode) {
            return Tried::Again(old);
        }
        site.stood_in_no_line();
        Tried::Busy
    }

    async fn try_beside(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        old: u128,
    ) -> Result<Option<Grant>, Fault> {
        self.try_past_the_dead(site, mode, ClaimWord(old)).await
    }
}

impl<E: WideAtomics> Convert<E> for Claim {
    async fn renew(&self, site: &Site<'_, E>, grant: Grant) -> Result<Option<Grant>, Fault> {
        if grant.rank == Rank::Reader {
            return Ok(None);
        }
        // A guess of the word: with nobody behind. A wrong one is corrected by what is found.
        let head = if grant.rank == Rank::Head { Place::of(site).as_tail() } else { 0 };
        let mut seen = ClaimWord(held_by(site, grant) | head);
        loop {
            let Some(op) = self.renewal(site, grant, seen) else { return Ok(None) };
            site.endpoint.masked_cas128(site.lock, op, Some(seen.0)).await?;
            let old = site.endpoint.old();
            if matched(&op, old) {
                return Ok(Some(Grant { count: next(grant.count), ..grant }));
            }
            if (old ^ op.compare) & HOLD_MASK != 0 {
                site.event(Event::Superseded { lock: site.lock });
                return Ok(None);
            }
            seen = ClaimWord(old);
            site.endpoint.checkpoint(&[seen.watched(), grant.count]);
        }
    }

    async fn downgrade(&self, site: &Site<'_, E>, grant: Grant) -> Result<Option<Grant>, Fault> {
        self.make_shared(site, grant).await
    }

    async fn try_upgrade(&self, site: &Site<'_, E>, grant: Grant) -> Result<Option<Grant>, Fault> {
        self.make_exclusive(site, grant).await
    }
}
