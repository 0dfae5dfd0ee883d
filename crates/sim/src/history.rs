//! What happened: a hash of every effect, counts, and an observer for who wants to see each one.
//!
//! An effect is reported at the instant it takes place in memory, not when its completion comes
//! back; judges need that. The hash is always on: two runs that differ in one effect differ in it.

use farlock_fabric::{Addr, EndpointId, Nanos, Verb};

use crate::fault::Outcome;

/// The kind of a verb.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A 64-bit compare-and-swap.
    Cas64,
    /// A 64-bit fetch-and-add.
    Faa64,
    /// A masked 64-bit compare-and-swap.
    MaskedCas64,
    /// A masked 64-bit fetch-and-add.
    MaskedFaa64,
    /// A masked 128-bit compare-and-swap.
    MaskedCas128,
    /// A masked 128-bit fetch-and-add.
    MaskedFaa128,
    /// A message.
    Send,
}

impl Kind {
    /// How many kinds there are.
    pub const COUNT: usize = 9;

    /// Whether it changes a word whatever that is.
    pub(crate) const fn adds(self) -> bool {
        matches!(self, Self::Faa64 | Self::MaskedFaa64 | Self::MaskedFaa128)
    }

    /// The field's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Cas64 => "cas64",
            Self::Faa64 => "faa64",
            Self::MaskedCas64 => "masked-cas64",
            Self::MaskedFaa64 => "masked-faa64",
            Self::MaskedCas128 => "masked-cas128",
            Self::MaskedFaa128 => "masked-faa128",
            Self::Send => "send",
        }
    }

    /// The kind of this verb.
    #[inline]
    pub const fn of(verb: &Verb<'_>) -> Self {
        match verb {
            Verb::Read { .. } => Self::Read,
            Verb::Write { .. } => Self::Write,
            Verb::Cas64 { .. } => Self::Cas64,
            Verb::Faa64 { .. } => Self::Faa64,
            Verb::MaskedCas64 { .. } => Self::MaskedCas64,
            Verb::MaskedFaa64 { .. } => Self::MaskedFaa64,
            Verb::MaskedCas128 { .. } => Self::MaskedCas128,
            Verb::MaskedFaa128 { .. } => Self::MaskedFaa128,
            Verb::Send { .. } => Self::Send,
        }
    }
}

/// One thing that took effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effect {
    /// When, in the world's time.
    pub time: Nanos,
    /// Whose verb.
    pub endpoint: EndpointId,
    /// What kind of verb. A read or write is reported word by word, as its words are served.
    pub kind: Kind,
    /// The word; for a message the bits of the receiving mailbox.
    pub addr: Addr,
    /// The word before; for a message its first word.
    pub old: u128,
    /// The word after.
    pub new: u128,
}

/// Sees every effect as it takes place. It must not touch the world.
pub type Observer = Box<dyn FnMut(&Effect)>;

/// What befalls an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It dies.
    Dies,
    /// One of its verbs was on its way when it died; this becomes of it.
    Strands(Outcome),
    /// Its death is known from now on.
    IsKnownDead,
    /// It will not learn of the completion of the verb that it posts; this becomes of that.
    Loses(Outcome),
}

/// Sees what befalls endpoints as it does. It must not touch the world.
pub type FateObserver = Box<dyn FnMut(EndpointId, Fate)>;

/// What a world has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Events that happened.
    pub events: u64,
    /// Times a task was polled.
    pub polls: u64,
    /// Verbs posted, by [`Kind`].
    pub posted: [u64; Kind::COUNT],
    /// Verbs and links that ended with a fault.
    pub faults: u64,
}

impl Stats {
    /// Verbs of all kinds posted.
    pub fn verbs(&self) -> u64 {
        self.posted.iter().sum()
    }
}

pub(crate) struct History {
    hash: u64,
    pub(crate) observer: Option<Observer>,
    pub(crate) fate_observer: Option<FateObserver>,
    pub(crate) stats: Stats,
}

impl History {
    pub(crate) fn new(seed: u64) -> Self {
        Self { hash: seed, observer: None, fate_observer: None, stats: Stats::default() }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    #[inline]
    pub(crate) fn record(&mut self, effect: &Effect) {
        let who = effect.endpoint.bits() << 8 | effect.kind as u64;
        let what = effect.time ^ effect.addr.bits().rotate_left(24) ^ who.rotate_left(40);
        self.hash = mix(self.hash ^ what, effect.old as u64);
        if let Some(observer) = &mut self.observer {
            observer(effect);
        }
    }

    /// Something befalls an endpoint.
    #[cold]
    pub(crate) fn tell(&mut self, id: EndpointId, fate: Fate) {
        if let Some(observer) = &mut self.fate_observer {
            observer(id, fate);
        }
    }

    /// Something other than a verb happened: a crash, a reset.
    pub(crate) fn note(&mut self, time: Nanos, what: u64) {
        self.hash = mix(self.hash ^ time, what);
    }
}

/// Two multiplications, so that each bit of both reaches the upper half and comes down again.
#[inline]
pub fn mix(a: u64, b: u64) -> u64 {
    let a = (a ^ b.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (a ^ b ^ a >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// Is told of an endpoint that is stopped for good when one of its tasks would be polled: of each
/// task once. All others have gone on as far as they can. It may touch the world.
pub type HaltObserver = Box<dyn FnMut(EndpointId)>;
