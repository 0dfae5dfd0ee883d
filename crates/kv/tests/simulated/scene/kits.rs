//! Which indexes are played, under which schemes.

use farlock_fabric::Addr;
use farlock_kv::index::{PointerArray, Race, Smart};
use farlock_kv::sync::{
    Backoff, Cider, CiderRules, CreditRules, LocalCombining, Locked, Optimistic,
};
use farlock_kv::{Index, Store};
use farlock_locks::record::cas::Cas;
use farlock_locks::record::mcs::Mcs;
use farlock_sim::SimEndpoint;

use super::any::AnyScheme;
use super::narrow::{self, Narrow, Thin};

/// Which index and which scheme.
pub trait Kit: 'static {
    type I: Index + Copy + 'static;
    /// Whether clients remember where keys were.
    const REMEMBERS: bool = false;
    /// Whether overwrites that come second count as done.
    const ABSORBS: bool = false;
    /// Whether tasks that read one key at once read it together.
    const DELEGATES: bool = false;
    /// Chunks are to be as large at least, and as many, for what is larger than pairs.
    const CHUNK_BYTES_MIN: u64 = 0;
    const CHUNKS_MIN: u32 = 0;
    /// Buckets are so small that keys may find no room which were not made for that.
    const COLLIDES: bool = false;
    /// The name of a key.
    fn name(key: u64) -> Vec<u8> {
        name(key)
    }
    /// How many keys an heir tries to put in.
    fn fill() -> u64 {
        Self::index().bytes() / 8
    }
    fn index() -> Self::I;
    fn scheme(endpoint: SimEndpoint, locks: Addr) -> AnyScheme;
}

macro_rules! kits {
    ($($name:ident: $index:ty = $new:expr, |$endpoint:ident, $locks:ident| $make:expr;)+) => {
        $(pub struct $name;

        impl Kit for $name {
            type I = $index;

            fn index() -> $index {
                $new
            }

            fn scheme($endpoint: SimEndpoint, $locks: Addr) -> AnyScheme {
                let _ = $locks;
                ($make).into()
            }
        })+
    };
}

/// Trees, whose keys are words of these letters.
macro_rules! trees {
    ($($name:ident: $places:literal, $letters:literal, $chunk_bytes:literal,
       |$endpoint:ident, $locks:ident| $make:expr;)+) => {
        $(pub struct $name;

        impl Kit for $name {
            type I = Smart;

            const CHUNK_BYTES_MIN: u64 = $chunk_bytes;
            const CHUNKS_MIN: u32 = 80;

            fn name(key: u64) -> Vec<u8> {
                word_of($letters, key)
            }

            fn fill() -> u64 {
                60
            }

            fn index() -> Self::I {
                Smart::with_places($places)
            }

            fn scheme($endpoint: SimEndpoint, $locks: Addr) -> AnyScheme {
                let _ = $locks;
                ($make).into()
            }
        })+
    };
}

/// The words of three letters, the shortest first: many begin with another one. From 100 on those
/// that stories are told beside.
fn word_of(letters: &[u8; 3], key: u64) -> Vec<u8> {
    let fillers = [&b"a"[..], b"b", b"qqqqqa", b"qqqqqe", b"ea"];
    if (100..200).contains(&key) {
        return fillers[(key - 100) as usize].to_vec();
    }
    if key == 99 {
        return vec![letters[2]];
    }
    let (mut rest, mut word) = (key + 1, Vec::new());
    while rest > 0 {
        word.push(letters[((rest - 1) % 3) as usize]);
        rest = (rest - 1) / 3;
    }
    word
}

/// Indexes that grow, so small that every schedule of it can be tried.
macro_rules! narrow {
    ($($name:ident: $index:ident, |$endpoint:ident, $locks:ident| $make:expr;)+) => {
        $(pub struct $name;

        impl Kit for $name {
            type I = $index;

            const COLLIDES: bool = true;

            fn name(key: u64) -> Vec<u8> {
                narrow::name(key)
            }

            fn fill() -> u64 {
                16
            }

            fn index() -> Self::I {
                $index
            }

            fn scheme($endpoint: SimEndpoint, $locks: Addr) -> AnyScheme {
                let _ = $locks;
                ($make).into()
            }
        })+
    };
}

/// What a kit that is made of another one, `K`, has from that.
macro_rules! as_the_kit_has_it {
    (and its names) => {
        fn name(key: u64) -> Vec<u8> {
            K::name(key)
        }

        as_the_kit_has_it!();
    };
    () => {
        type I = K::I;

        const CHUNK_BYTES_MIN: u64 = K::CHUNK_BYTES_MIN;
        const CHUNKS_MIN: u32 = K::CHUNKS_MIN;
        const COLLIDES: bool = K::COLLIDES;

        fn fill() -> u64 {
            K::fill()
        }

        fn index() -> K::I {
            K::index()
        }

        fn scheme(endpoint: SimEndpoint, locks: Addr) -> AnyScheme {
            K::scheme(endpoint, locks)
        }
    };
}

/// One whose clients remember where keys were.
pub struct Remembering<K>(std::marker::PhantomData<K>);

impl<K: Kit> Kit for Remembering<K> {
    const REMEMBERS: bool = true;
    const ABSORBS: bool = K::ABSORBS;

    as_the_kit_has_it!(and its names);
}

/// One whose clients count overwrites that come second as done.
pub struct Absorbing<K>(std::marker::PhantomData<K>);

impl<K: Kit> Kit for Absorbing<K> {
    const REMEMBERS: bool = K::REMEMBERS;
    const ABSORBS: bool = true;

    as_the_kit_has_it!(and its names);
}

/// One whose tasks read together.
pub struct Delegating<K>(std::marker::PhantomData<K>);

impl<K: Kit> Kit for Delegating<K> {
    const REMEMBERS: bool = K::REMEMBERS;
    const ABSORBS: bool = K::ABSORBS;
    const DELEGATES: bool = true;

    as_the_kit_has_it!(and its names);
}

/// One whose first key has buckets in two groups, which are read by a chain of two.
pub struct Apart<K>(std::marker::PhantomData<K>);

impl<K: Kit> Kit for Apart<K> {
    const REMEMBERS: bool = K::REMEMBERS;
    const ABSORBS: bool = K::ABSORBS;

    fn name(key: u64) -> Vec<u8> {
        const FIRST: u64 = 1_007;
        K::name(FIRST + key)
    }

    as_the_kit_has_it!();
}

/// A store of this kit.
pub type Kept<K> = Store<AnyScheme, <K as Kit>::I>;

/// The store as this kit has it.
pub fn of_kit<K: Kit>(store: Kept<K>) -> Kept<K> {
    let store = if K::ABSORBS { store.absorbing() } else { store };
    let store = if K::DELEGATES { store.delegating(PATIENCE_NS) } else { store };
    if K::REMEMBERS { store.remembering() } else { store }
}

pub(super) const LOCKS: u64 = 4;
pub(super) const PATIENCE_NS: u64 = 200_000;
const LOCK_OPTIONS: farlock_locks::Options = farlock_locks::Options::new(1);

kits! {
    ArrayOptimistic: PointerArray = PointerArray::new(64),
        |endpoint, locks| Optimistic::new(endpoint, Backoff::NONE);
    RaceOptimistic: Race = Race::new(2),
        |endpoint, locks| Optimistic::new(endpoint, Backoff::DEFAULT);
    RaceSmall: Race = Race::new(2),
        |endpoint, locks| Optimistic::new(endpoint, Backoff::NONE);
    RaceGrowing: Race = Race::new(1),
        |endpoint, locks| Optimistic::new(endpoint, Backoff::DEFAULT);
    ArrayCas: PointerArray = PointerArray::new(64),
        |endpoint, locks| {
            let client = farlock_locks::Client::new(endpoint, Cas::with_backoff(), LOCK_OPTIONS);
            Locked::new(client, locks, LOCKS, PATIENCE_NS)
        };
    RaceMcs: Race = Race::new(2),
        |endpoint, locks| {
            let client = farlock_locks::Client::new(endpoint, Mcs::default(), LOCK_OPTIONS);
            Locked::new(client, locks, LOCKS, PATIENCE_NS)
        };
    RaceReadingBefore: Race = Race::new(2),
        |endpoint, locks| {
            let client = farlock_locks::Client::new(endpoint, Mcs::default(), LOCK_OPTIONS);
            Locked::new(client, locks, LOCKS, PATIENCE_NS).reading_before()
        };
    RaceTurns: Race = Race::new(2),
        |endpoint, locks| {
            cider(endpoint, locks, CiderRules { combines: false, ..ALWAYS })
        };
    ArrayCider: PointerArray = PointerArray::new(64),
        |endpoint, locks| cider(endpoint, locks, ALWAYS);
    RaceCider: Race = Race::new(2),
        |endpoint, locks| cider(endpoint, locks, ALWAYS);
    RaceChoosing: Race = Race::new(2),
        |endpoint, locks| cider(endpoint, locks, CHOOSING);
    ArrayLocal: PointerArray = PointerArray::new(64),
        |endpoint, locks| {
            LocalCombining::new(Optimistic::new(endpoint, Backoff::NONE), PATIENCE_NS)
        };
    RaceLocal: Race = Race::new(2),
        |endpoint, locks| {
            LocalCombining::new(cider(endpoint, locks, ALWAYS), PATIENCE_NS)
        };
}

// Of "aeq" each two are in one line of the first kinds: a node is replaced until it has a slot for
// each byte. Of "abd" none are of the second kind, so that chunks can be small.
trees! {
    TreeOptimistic: 1, b"aeq", 2624,
        |endpoint, locks| Optimistic::new(endpoint, Backoff::DEFAULT);
    TreeTight: 1, b"abd", 384,
        |endpoint, locks| Optimistic::new(endpoint, Backoff::NONE);
    TreeAsMeant: 7, b"abd", 128,
        |endpoint, locks| Optimistic::new(endpoint, Backoff::DEFAULT);
    TreeCas: 1, b"aeq", 2624,
        |endpoint, locks| {
            let client = farlock_locks::Client::new(endpoint, Cas::with_backoff(), LOCK_OPTIONS);
            Locked::new(client, locks, LOCKS, PATIENCE_NS)
        };
    TreeMcs: 1, b"aeq", 2624,
        |endpoint, locks| {
            let client = farlock_locks::Client::new(endpoint, Mcs::default(), LOCK_OPTIONS);
            Locked::new(client, locks, LOCKS, PATIENCE_NS)
        };
    TreeCider: 1, b"aeq", 2624,
        |endpoint, locks| cider(endpoint, locks, ALWAYS);
    TreeChoosing: 2, b"aeq", 2624,
        |endpoint, locks| cider(endpoint, locks, CHOOSING);
}

narrow! {
    ThinOptimistic: Thin, |endpoint, locks| {
        Optimistic::new(endpoint, Backoff::NONE)
    };
    ThinMcs: Thin, |endpoint, locks| {
        let client = farlock_locks::Client::new(endpoint, Mcs::default(), LOCK_OPTIONS);
        Locked::new(client, locks, 1, PATIENCE_NS)
    };
    ThinCider: Thin, |endpoint, locks| cider(endpoint, locks, ALWAYS);
    NarrowOptimistic: Narrow, |endpoint, locks| {
        Optimistic::new(endpoint, Backoff::NONE)
    };
    ThinCas: Thin, |endpoint, locks| {
        let client = farlock_locks::Client::new(endpoint, Cas::with_backoff(), LOCK_OPTIONS);
        Locked::new(client, locks, 1, PATIENCE_NS)
    };
}

/// Each operation gets in line.
const ALWAYS: CiderRules =
    CiderRules { credits: None, patience_ns: PATIENCE_NS, ..CiderRules::DEFAULT };

/// Keys become hot and cold again within a short run.
const CHOOSING: CiderRules = CiderRules {
    credits: Some(CreditRules { threshold: 0, initial: 2, ..CreditRules::DEFAULT }),
    ..ALWAYS
};

/// All keys share one lock.
fn cider(endpoint: SimEndpoint, locks: Addr, rules: CiderRules) -> Cider<SimEndpoint> {
    let client = farlock_locks::Client::new(endpoint, Mcs::default(), LOCK_OPTIONS);
    Cider::new(client, locks, 1, rules)
}

/// The name of a key; the number itself, as pointer arrays have it.
pub fn name(key: u64) -> Vec<u8> {
    key.to_le_bytes().to_vec()
}
