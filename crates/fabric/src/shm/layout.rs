//! What lies where in a region, and the check of a header before anything in it is believed.
//!
//! ```text
//! 0        header          magic, layout, origin, capacities, published size
//! 2 KiB    taken           a bit per place that may be occupied
//! 4 KiB    parking table   512 bells, a cache line each
//!          places          one per endpoint: beacon and identity, display, control, lease
//!          mailboxes       one per slot: a head line and 4 cells of a line
//!          records         one line per slot
//! 64 KiB   heap            the words of users, to the published size
//! ```
//!
//! Every offset follows from the capacities, so an attacher computes them and reads none.

use std::mem::size_of;

use super::beacon::LOCK_WORD_OFFSET;
use super::mailbox::Mailcells;
use super::parking::{BUCKETS, Bucket};
use super::place::Place;
use super::primitive::AtomicU64;
use super::taken::{PLACES_MAX, Taken};
use crate::connection::Origin;
use crate::endpoint::RECORD_WORDS;
use crate::error::{ConnectError, Malformed};

/// A region's size is a multiple of this, in bytes.
pub const BLOCK_BYTES: u64 = 64 << 10;

/// Places beside those of endpoints that act, for endpoints that only read: who looks at a full
/// region finds one.
pub(super) const LOOKERS: u16 = 8;

/// Endpoints a region can have at most, beside those that only read.
pub const ENDPOINTS_MAX: u16 = PLACES_MAX - LOOKERS;

/// Slots an endpoint can have at most.
pub const SLOTS_MAX: u8 = 64;

/// Bytes a region can have at most: 1 TiB.
pub const REGION_BYTES_MAX: u64 = 1 << 40;

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

const MAGIC: u64 = u64::from_le_bytes(*b"farlock1");
/// The version of what this module says: processes of another one do not share regions.
pub const VERSION: u64 = 11;
const HEADER_BYTES: usize = 4096;
/// Where the bits of taken places begin, in bytes.
pub(super) const TAKEN_AT: usize = 2048;
/// Words of the header that an attacher copies and checks.
pub(super) const HEADER_WORDS: usize = 15;

/// What the header's `retired` says while a remover looks whether an endpoint is attached, to
/// remove the region if not.
pub(super) const PERHAPS: u64 = 2;

/// The beginning of a region. Written once by its creator; `origin`, `bytes`, `retired`, `cursor`,
/// `lap`, `arrivals` and `origin_copy` change.
#[repr(C)]
pub(super) struct Header {
    pub(super) magic: AtomicU64,
    pub(super) layout: AtomicU64,
    /// Where the tokens begin; 0 until an attacher has drawn that, and it was put here.
    pub(super) origin: AtomicU64,
    pub(super) endpoints: AtomicU64,
    pub(super) slots: AtomicU64,
    pub(super) max_bytes: AtomicU64,
    /// The published size of the region: every byte below it is allocated.
    pub(super) bytes: AtomicU64,
    /// Not zero once the region was removed or reset.
    pub(super) retired: AtomicU64,
    /// When the region was created, in nanoseconds of the boot clock.
    pub(super) created: AtomicU64,
    /// Where the next attacher looks first for a full word of taken places.
    pub(super) cursor: AtomicU64,
    /// What the origin is drawn above: that of the region that this one follows, or 0.
    pub(super) floor: AtomicU64,
    /// How often all incarnations of all places were used up.
    pub(super) lap: AtomicU64,
    /// How many endpoints have moved in, wrapping.
    pub(super) arrivals: AtomicU64,
    /// The [copy](copy_of) of `origin`, which is there before: it decides which one it is.
    pub(super) origin_copy: AtomicU64,
    /// The copy of `floor`.
    pub(super) floor_copy: AtomicU64,
}

/// What stands beside the word of an origin: with any other there, one of the two is damaged, and
/// tokens would jump. Inverted, so that nothing written over both of them is a word and its copy.
pub(super) fn copy_of(word: u64) -> u64 {
    !word
}

const _: () = assert!(size_of::<Header>() == HEADER_WORDS * 8);
const _: () = assert!(size_of::<Header>() <= TAKEN_AT);
const _: () = assert!(TAKEN_AT + size_of::<Taken>() <= HEADER_BYTES);

/// How much of everything a region has. Fixed at its creation, but for the heap, which grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Capacity {
    /// Endpoints that act.
    pub(super) endpoints: u16,
    pub(super) slots: u8,
    /// The largest size of the file, in bytes.
    pub(super) max_bytes: u64,
}

impl Capacity {
    /// Places of the table: those of endpoints that act come first.
    pub(super) fn places(&self) -> u16 {
        self.endpoints + LOOKERS
    }
}

/// Where everything begins, in bytes from the start of the region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub(super) capacity: Capacity,
    pub(super) buckets: usize,
    pub(super) places: usize,
    pub(super) mailboxes: usize,
    pub(super) records: usize,
    pub(super) heap: u64,
}

impl Layout {
    pub(super) fn new(capacity: Capacity) -> Self {
        let endpoints = usize::from(capacity.places());
        let boxes = endpoints * usize::from(capacity.slots);
        let buckets = HEADER_BYTES;
        let places = buckets + BUCKETS * size_of::<Bucket>();
        let mailboxes = places + endpoints * size_of::<Place>();
        let records = mailboxes + boxes * size_of::<Mailcells>();
        let heap = ((records + boxes * RECORD_WORDS * 8) as u64).next_multiple_of(BLOCK_BYTES);
        Self { capacity, buckets, places, mailboxes, records, heap }
    }

    /// A number that differs where two processes would disagree about what lies where.
    fn hash(&self) -> u64 {
        let facts = [
            VERSION,
            size_of::<Place>() as u64,
            size_of::<Mailcells>() as u64,
            LOCK_WORD_OFFSET as u64,
            size_of::<libc::pthread_mutex_t>() as u64,
            usize::BITS.into(),
            self.capacity.places().into(),
            self.capacity.slots.into(),
            self.capacity.max_bytes,
            self.heap,
        ];
        // FNV-1a over whole words; it guards against mistakes, not against malice.
        facts.iter().fold(0xcbf2_9ce4_8422_2325, |hash, fact| {
            (hash ^ fact).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
        })
    }

    /// The header of a new region that has no origin yet.
    pub(super) fn header(
        &self,
        floor: Option<Origin>,
        bytes: u64,
        now: u64,
    ) -> [u64; HEADER_WORDS] {
        let Capacity { endpoints, slots, max_bytes } = self.capacity;
        let floor = floor.map_or(0, Origin::to_word);
        let capacity = [endpoints.into(), slots.into(), max_bytes];
        let [endpoints, slots, max_bytes] = capacity;
        let copy = copy_of(floor);
        [MAGIC, self.hash(), 0, endpoints, slots, max_bytes, bytes, 0, now, 0, floor, 0, 0, 0, copy]
    }
}

/// Checks what a caller asks for.
pub(super) fn check_capacity(capacity: &Capacity, heap_bytes: u64) -> Result<(), ConnectError> {
    let refuse = |what, value, bound| Err(ConnectError::Capacity { what, value, bound });
    if capacity.endpoints == 0 || capacity.endpoints > ENDPOINTS_MAX {
        return refuse("endpoints", capacity.endpoints.into(), "1 to 16376 are possible");
    }
    if capacity.slots == 0 || capacity.slots > SLOTS_MAX {
        return refuse("slots", capacity.slots.into(), "1 to 64 are possible");
    }
    if capacity.max_bytes > REGION_BYTES_MAX {
        return refuse("max_bytes", capacity.max_bytes, "1 TiB is possible");
    }
    let heap = Layout::new(*capacity).heap;
    if heap_bytes == 0 || heap_bytes > REGION_BYTES_MAX - heap {
        return refuse("heap_bytes", heap_bytes, "1 byte to 1 TiB are possible");
    }
    Ok(())
}

/// A header that was copied once and found sound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sound {
    pub(super) layout: Layout,
    /// `None` until a process has drawn one.
    pub(super) origin: Option<Origin>,
    /// What it is drawn above.
    pub(super) floor: Option<Origin>,
    pub(super) bytes: u64,
    pub(super) retired: bool,
}

/// Checks a copy of a header against the size of its file.
pub(super) fn check_header(
    words: &[u64; HEADER_WORDS],
    file_bytes: u64,
) -> Result<Sound, Malformed> {
    let &[magic, hash, origin, endpoints, slots, max_bytes, bytes, retired, ..] = words;
    let &[.., floor, _lap, _arrivals, origin_copy, floor_copy] = words;
    if magic != MAGIC {
        return Err(Malformed::Magic);
    }
    let capacity = Capacity {
        endpoints: u16::try_from(endpoints).map_err(|_| Malformed::Capacity)?,
        slots: u8::try_from(slots).map_err(|_| Malformed::Capacity)?,
        max_bytes,
    };
    check_capacity(&capacity, 1).map_err(|_| Malformed::Capacity)?;
    let layout = Layout::new(capacity);
    if hash != layout.hash() {
        return Err(Malformed::Layout);
    }
    // Where it is missing beside its copy, an attacher died before it put it there, or is about to.
    let origin = if origin == 0 && origin_copy != 0 { copy_of(origin_copy) } else { origin };
    let is_copied = origin == 0 || origin_copy == copy_of(origin);
    if !is_copied || floor_copy != copy_of(floor) {
        return Err(Malformed::Incarnation);
    }
    let origin_of = |word| match word {
        0 => Ok(None),
        word => Origin::of_word(word).map(Some).ok_or(Malformed::Incarnation),
    };
    let (origin, floor) = (origin_of(origin)?, origin_of(floor)?);
    check_bytes(&layout, bytes)?;
    if file_bytes < bytes {
        return Err(Malformed::Truncated);
    }
    let retired = retired != 0 && retired != PERHAPS;
    Ok(Sound { layout, origin, floor, bytes, retired })
}

/// Checks a published size: whole blocks, some heap, within the maximum.
pub(super) fn check_bytes(layout: &Layout, bytes: u64) -> Result<(), Malformed> {
    let sound = bytes.is_multiple_of(BLOCK_BYTES)
        && bytes > layout.heap
        && bytes <= layout.capacity.max_bytes;
    if sound { Ok(()) } else { Err(Malformed::Size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound_words() -> [u64; HEADER_WORDS] {
        let capacity = Capacity { endpoints: 8, slots: 2, max_bytes: 1 << 30 };
        let layout = Layout::new(capacity);
        let bytes = layout.heap + BLOCK_BYTES;
        let floor = Origin { incarnation: 7, first_count: 5 };
        layout.header(Some(floor), bytes, 99)
    }

    #[test]
    fn capacities_are_possible_up_to_their_bounds() {
        let most =
            Capacity { endpoints: ENDPOINTS_MAX, slots: SLOTS_MAX, max_bytes: REGION_BYTES_MAX };
        let heap_bytes = REGION_BYTES_MAX - Layout::new(most).heap;
        assert!(check_capacity(&most, heap_bytes).is_ok());
        let more = |what: &'static str, capacity: Capacity, heap_bytes| {
            let Err(ConnectError::Capacity { what: told, .. }) =
                check_capacity(&capacity, heap_bytes)
            else {
                panic!("{what}")
            };
            assert_eq!(told, what);
        };
        let (endpoints, slots) = (ENDPOINTS_MAX + 1, SLOTS_MAX + 1);
        more("endpoints", Capacity { endpoints, ..most }, 1);
        more("endpoints", Capacity { endpoints: 0, ..most }, 1);
        more("slots", Capacity { slots, ..most }, 1);
        more("slots", Capacity { slots: 0, ..most }, 1);
        more("max_bytes", Capacity { max_bytes: REGION_BYTES_MAX + 1, ..most }, 1);
        more("heap_bytes", most, heap_bytes + 1);
        more("heap_bytes", most, 0);
    }

    /// The same, when an attacher has drawn its origin.
    fn drawn_words() -> [u64; HEADER_WORDS] {
        let mut words = sound_words();
        words[2] = Origin { incarnation: 8, first_count: 77 }.to_word();
        words[13] = copy_of(words[2]);
        words
    }

    #[test]
    fn a_sound_header_is_believed() {
        let sound = check_header(&sound_words(), 1 << 30).unwrap();
        assert_eq!(sound.origin, None, "nobody has drawn one yet");
        assert_eq!(sound.floor, Some(Origin { incarnation: 7, first_count: 5 }));
        assert_eq!(sound.layout.capacity.endpoints, 8);
        assert!(!sound.retired);
        assert_eq!(sound.layout.heap % BLOCK_BYTES, 0);
        // Its attacher has put the copy there alone yet.
        let words = drawn_words();
        let half = words.map(|word| if word == words[2] { 0 } else { word });
        assert_eq!(check_header(&half, 1 << 30), check_header(&words, 1 << 30));
    }

    #[test]
    fn a_damaged_header_is_refused_for_its_first_fault() {
        /// An origin like any other.
        const LATER: u64 = 9 << 47 | 3;
        let drawn = drawn_words();
        assert!(check_header(&drawn, 1 << 30).unwrap().origin > Some(Origin::FIRST));
        let size = drawn[6];
        let rows = [
            (0, 0, Malformed::Magic),
            (1, 1, Malformed::Layout),
            (2, 1, Malformed::Incarnation),
            (2, u64::MAX, Malformed::Incarnation),
            (2, LATER, Malformed::Incarnation),
            (10, LATER, Malformed::Incarnation),
            (10, 0, Malformed::Incarnation),
            (13, 1, Malformed::Incarnation),
            (13, 0, Malformed::Incarnation),
            (14, 0, Malformed::Incarnation),
            (3, 0, Malformed::Capacity),
            (3, 1 << 16, Malformed::Capacity),
            (3, 9, Malformed::Layout),
            (4, 0, Malformed::Capacity),
            (4, 3, Malformed::Layout),
            (5, u64::MAX, Malformed::Capacity),
            (5, 1 << 29, Malformed::Layout),
            (6, 0, Malformed::Size),
            (6, size + 8, Malformed::Size),
            (6, u64::MAX, Malformed::Size),
            (6, (1 << 30) + BLOCK_BYTES, Malformed::Size),
            (6, size + BLOCK_BYTES, Malformed::Truncated),
        ];
        for (word, value, fault) in rows {
            let mut words = drawn;
            words[word] = value;
            assert_eq!(check_header(&words, size), Err(fault), "word {word} = {value:#x}");
        }
    }

    /// One of another version may have something else where this one's copies are.
    #[test]
    fn a_header_of_another_version_is_not_said_to_be_damaged() {
        let mut words = drawn_words();
        (words[1], words[13], words[14]) = (words[1] ^ 1, 0, 0);
        assert_eq!(check_header(&words, 1 << 30), Err(Malformed::Layout));
    }

    #[test]
    fn capacities_have_bounds() {
        let capacity = Capacity { endpoints: 1, slots: 1, max_bytes: 1 << 30 };
        assert!(check_capacity(&capacity, 1).is_ok());
        assert!(check_capacity(&capacity, 0).is_err());
        assert!(check_capacity(&Capacity { endpoints: 0, ..capacity }, 1).is_err());
        assert!(check_capacity(&Capacity { slots: 65, ..capacity }, 1).is_err());
        assert!(check_capacity(&Capacity { max_bytes: 1 << 41, ..capacity }, 1).is_err());
    }
}
