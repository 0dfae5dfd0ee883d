//! What a lock says of itself, whatever runs it: how it lies in memory, what it promises, and how
//! that is proved. Suites, checker and laboratory hold a lock to this, and know nothing else of it.

use std::ops::Range;

use farlock_fabric::Nanos;
use farlock_fabric::word::Field;

use crate::options::Setting;

/// Where a protocol's fencing tokens come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenSource {
    /// A count in the lock's word.
    Word,
    /// There are none: a service refuses to use this lock.
    Nowhere,
}

/// A kind of lock, apart from the verbs that acquire and release it.
pub trait LockKind: Clone + 'static {
    /// Bytes of the lock's word in a table of locks, and its alignment. Zero bytes are a free lock.
    const BYTES: u64;
    /// Whether shared holders really share.
    const SHARES: bool;
    /// The fields of the word, lowest first, for views of verbs.
    const FIELDS: &'static [Field] = &[];
    /// Where tokens come from.
    const TOKENS: TokenSource;

    /// Bytes that it takes with its options: more than [`LockKind::BYTES`] where only memory has
    /// room for it that is asked for by this.
    fn bytes(&self) -> u64 {
        Self::BYTES
    }

    /// How many units it tells apart, if it is had in parts.
    fn units(&self) -> Option<u64> {
        None
    }

    /// The fields of the word that lies so many bytes behind the first one.
    fn fields_at(offset: u64) -> &'static [Field] {
        let _ = offset;
        Self::FIELDS
    }

    /// Whether there are tokens with these options, of a lock that has any.
    #[inline(always)]
    fn counts_grants(&self) -> bool {
        true
    }

    /// The option of this name, if this lock has it.
    fn option(&mut self, name: &str) -> Option<Setting<'_>> {
        let _ = name;
        None
    }

    /// An option that does not go with the others, and why.
    fn conflict(&self) -> Option<(&'static str, &'static str)> {
        None
    }

    /// What this lock, with these options, promises beyond exclusion.
    fn promises(&self) -> Promises;

    /// The units that nobody else can have beside a client that wants these, of a lock that is had
    /// in parts: at least those, and others where its parts are coarse.
    fn covers(&self, units: Range<u32>) -> Range<u32> {
        units
    }

    /// A free lock's word of which every count of acquisitions or releases wraps, or is reset,
    /// after so many, and every count of repairs with the next one; zero if it counts nothing.
    fn near_wrap(&self, steps: u16) -> u128 {
        let _ = steps;
        0
    }

    /// The words behind those 16 bytes that are not zero then, and how many bytes behind the first.
    fn near_wrap_behind(&self, steps: u16) -> Vec<(u64, u64)> {
        let _ = steps;
        Vec::new()
    }
}

/// The fields of the word that lies so many bytes behind a lock's first one.
pub type FieldsAt = fn(u64) -> &'static [Field];

/// A kind of lock whose type is not known.
pub trait AnyKind {
    /// [`LockKind::bytes`].
    fn bytes(&self) -> u64;
    /// [`LockKind::units`].
    fn units(&self) -> Option<u64>;
    /// [`LockKind::SHARES`].
    fn shares(&self) -> bool;
    /// [`LockKind::FIELDS`].
    fn fields(&self) -> &'static [Field];
    /// [`LockKind::fields_at`].
    fn fields_at(&self) -> FieldsAt;
    /// [`LockKind::promises`].
    fn promises(&self) -> Promises;
    /// [`LockKind::covers`].
    fn covers(&self, units: Range<u32>) -> Range<u32>;
    /// [`LockKind::near_wrap`].
    fn near_wrap(&self, steps: u16) -> u128;
    /// [`LockKind::near_wrap_behind`].
    fn near_wrap_behind(&self, steps: u16) -> Vec<(u64, u64)>;
}

impl<L: LockKind> AnyKind for L {
    fn bytes(&self) -> u64 {
        LockKind::bytes(self)
    }

    fn units(&self) -> Option<u64> {
        LockKind::units(self)
    }

    fn shares(&self) -> bool {
        L::SHARES
    }

    fn fields(&self) -> &'static [Field] {
        L::FIELDS
    }

    fn fields_at(&self) -> FieldsAt {
        L::fields_at
    }

    fn promises(&self) -> Promises {
        LockKind::promises(self)
    }

    fn covers(&self, units: Range<u32>) -> Range<u32> {
        LockKind::covers(self, units)
    }

    fn near_wrap(&self, steps: u16) -> u128 {
        LockKind::near_wrap(self, steps)
    }

    fn near_wrap_behind(&self, steps: u16) -> Vec<(u64, u64)> {
        LockKind::near_wrap_behind(self, steps)
    }
}

/// What a lock promises, and what it does that a judge has to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promises {
    /// It excludes. False for the canary alone, for which judges must cry out.
    pub excludes: bool,
    /// It outlives clients that die holding or awaiting it. A baseline may not, and is judged
    /// without deaths.
    pub outlives_clients: bool,
    /// In which order it is granted.
    pub order: Order,
    /// An attempt that never waits fails only if a living client holds the lock incompatibly, or
    /// awaits it and is not passed over.
    pub tries_tell_truth: bool,
    /// A waiter that withdraws is soon as if it had never asked:
    /// [`wait_or_leave`](crate::lock::Lock::wait_or_leave) leaves where nobody stands behind, and
    /// passes on what it is granted elsewhere.
    pub withdraws: bool,
    /// A waiter that is stopped is passed over by those behind it.
    pub passes_over_stopped: bool,
    /// A message may lie in a mailbox whose slot has left: none of this lock grants or ends
    /// anything, and the slot's next user drops it.
    pub leaves_mail: bool,
    /// The first verb of an acquisition depends on what its slot remembers of the one before, so
    /// that an explorer must tell such memories apart. A hint to a verb is none.
    pub acts_on_memory: bool,
    /// How long a client may hold before others take the lock away, if they do from the living.
    pub lease_ns: Option<Nanos>,
    /// How long clients wait so that others have done something, who look at their own clocks, in
    /// nanoseconds; `None`: no clock decides who holds. It excludes then as long as clocks go apart
    /// no faster than the contract of the fabric lets them. Where they do, no token tells.
    pub waits_out_ns: Option<Nanos>,
    /// Within how long from when it is posted, in nanoseconds, a verb that adds to the word must
    /// take effect, if ever, for this lock to exclude; `None`: at any time. Where one comes later
    /// still, no writer is granted a token twice and the late one has the lower, but a reader's
    /// token tells nothing any more.
    pub adds_within_ns: Option<Nanos>,
    /// How long a shared hold may keep writers out after its release, where it ends by its lease
    /// alone and clocks agree; three times what they differ by comes on top.
    pub lingers_ns: Nanos,
    /// A server grants it, by messages: then no verb acquires or releases it.
    pub served: bool,
    /// How it is proved.
    pub proof: Proof,
}

/// In which order a lock is granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// If writers are granted in the order in which they got in line, or all are
    /// ([`Order::readers_in_line`]): how many that come later may pass between two of those in
    /// line. 0 is strictly first come, first served; `None` promises no order.
    pub bypass_max: Option<u32>,
    /// If a waiting writer keeps later readers out: for how many writers a reader waits at most.
    pub writers_before_reader: Option<u16>,
    /// If a waiting writer keeps later readers out in the end: how many rounds of readers that came
    /// later pass it, one after the other, with no other writer granted in between. A round is over
    /// when one that has asked since the last round has been granted, and the writer has posted
    /// after what may change the lock: so what passes while the writer itself is slow is one.
    pub rounds_before_writer: Option<u16>,
    /// Readers get in line among the writers, in whose order all are granted.
    pub readers_in_line: bool,
    /// The order holds where counts wrap or are reset.
    pub outlives_counts: bool,
    /// The order holds where clients are stopped for long. It may not where waiting tells nobody
    /// whether a client is dead: a wrong guess then puts all in line anew.
    pub outlives_pauses: bool,
}

/// How a lock is proved: what the suite and the checker must know to give it work that tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proof {
    /// Options under which it is another protocol, proved like a lock of its own.
    pub variants: &'static [&'static str],
    /// The same with larger numbers, or leases of 4 ms: only sampled worlds play those.
    pub larger: &'static [&'static str],
    /// Options with which it is proved behind a table of handovers.
    pub handed_on: &'static [&'static str],
    /// Options beside `lease=NANOS` under which it is proved with leases; none where it has none.
    pub leased: &'static [&'static str],
    /// Options by which a wait takes few verbs where time is measured in leases of 10 ms.
    pub patient: &'static str,
    /// The same where it is measured in round trips.
    pub hurried: &'static str,
    /// The pause by which pauses of its clients are measured where it has no lease, in nanoseconds:
    /// a lease for clients that sleep until they are woken, or poll seldom; less for those that
    /// poll almost without a pause, so that no pause uses up a run.
    pub pause_ns: Nanos,
    /// If it is had in parts: where the units begin for which the locks of a scenario stand, and
    /// where those of the last one end. Each is judged like a lock of its own.
    pub in_parts: &'static [u32],
    /// Its verbs are many: every schedule of three clients that acquire twice, or beside a fault,
    /// takes too long for every change.
    pub has_many_verbs: bool,
    /// With leases, every schedule takes too long for every change where one of three clients ends,
    /// or the memory restarts: a client that looks late waits for all to be void.
    pub waits_for_void: bool,
    /// Its word tells the time: while a client is paused, or waits as the holder of another lock,
    /// others find new words without end, so that only drawn schedules play that.
    pub word_tells_time: bool,
}

impl Promises {
    /// Exclusion, for as long as clients live or are dead, and nothing else.
    pub const EXCLUSION: Self = Self {
        excludes: true,
        outlives_clients: true,
        order: Order::NONE,
        tries_tell_truth: false,
        withdraws: false,
        passes_over_stopped: false,
        leaves_mail: false,
        acts_on_memory: false,
        lease_ns: None,
        waits_out_ns: None,
        adds_within_ns: None,
        lingers_ns: 0,
        served: false,
        proof: Proof::PLAIN,
    };
}

impl Order {
    /// No order.
    pub const NONE: Self = Self {
        bypass_max: None,
        writers_before_reader: None,
        rounds_before_writer: None,
        readers_in_line: false,
        outlives_counts: true,
        outlives_pauses: true,
    };

    /// Writers come first, first served.
    pub const FIFO: Self = Self { bypass_max: Some(0), ..Self::NONE };
}

/// The lease of clients that doubt each other, in nanoseconds: how long one may be silent (DSLR,
/// section 6).
pub const LEASE_NS: Nanos = 10_000_000;

impl Proof {
    /// As it is, by clients that poll almost without a pause.
    pub const PLAIN: Self = Self {
        variants: &[],
        larger: &[],
        handed_on: &[],
        leased: &[],
        patient: "",
        hurried: "",
        pause_ns: 100,
        in_parts: &[],
        has_many_verbs: false,
        waits_for_void: false,
        word_tells_time: false,
    };

    /// By clients that sleep until they are woken.
    pub const SLEEPER: Self = Self { pause_ns: LEASE_NS, ..Self::PLAIN };
}

/// What a holder remembers until it releases, and what its slot record says of it.
pub trait Granted: Copy + 'static {
    /// The generation of the lock in which this was granted; 0 if it counts no repairs.
    #[inline(always)]
    fn generation(self) -> u64 {
        0
    }

    /// When this ends by its holder's clock, if it does not last as long as the holder lives.
    #[inline(always)]
    fn expires(self) -> Option<Nanos> {
        None
    }

    /// The ticket, where the protocol gives tickets.
    #[inline(always)]
    fn ticket(self) -> u32 {
        0
    }

    /// The count of its token; meaningless where [`TokenSource::Nowhere`].
    #[inline(always)]
    fn count(self) -> u64 {
        0
    }
}

// What only the protocol knows.
impl Granted for () {}
impl Granted for u16 {}
impl Granted for u64 {}
impl Granted for Option<u64> {}
