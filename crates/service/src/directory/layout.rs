//! What lies where in a directory.
//!
//! ```text
//! 0      head      one word: mark, version, how many records; then its line is unused
//! 64     hand      where the search for a record goes on
//! 128    highest   the highest count of a lock whose name was forgotten, sealed
//! 192    index     16 bytes per chain: how often it changed, and its first record, sealed
//!        records   6 lines each: the lock's line with a link, a line of facts, 4 lines of name
//! ```
//!
//! Locks of more than a word lie behind their records' lines, and their first word is the lock's
//! word; the first line of a record has the link alone then.
//!
//! Every offset follows from the number of records and the size of a lock, so a reader computes
//! them and reads none.

use farlock_fabric::{Addr, EndpointId, word};
use farlock_locks::shelf::Shelf;

use crate::shelf::shelf_at;

/// Bytes in the longest name of a lock.
pub(super) const NAME_BYTES_MAX: usize = 255;

/// Bytes in the longest name of a kind of lock.
pub(super) const KIND_BYTES_MAX: usize = 16;

const LINE: u64 = 64;
const HAND: u64 = LINE;
const HIGHEST: u64 = 2 * LINE;
const INDEX: u64 = 3 * LINE;
/// Bytes of a record.
const RECORD: u64 = 6 * LINE;
/// Where in a record its link lies: in the line of the lock's word, which is at hand.
const LINK: u64 = 16;
/// Chains of the index for three records: most of them are short.
const CHAINS_PER_3_RECORDS: u64 = 4;
/// Bytes of a sealed word.
const SEALED: u64 = 16;
/// Bytes of a lock that lies in its record's first line.
pub(super) const WORD: u64 = 16;

/// Words of a record after its lock's line.
pub(super) const FACT_WORDS: usize = 40;
/// Where among these the length of the name lies.
pub(super) const LENGTH: usize = 0;
/// Where what the others come to lies.
pub(super) const CHECK: usize = 1;
/// Where the kind begins: two words.
pub(super) const KIND: usize = 2;
/// Where the name begins.
pub(super) const NAME: usize = 8;

/// "fdir", of which the first word's mark is made.
const MARK: u64 = 0x6664_6972;
const VERSION: u64 = 4;

word! {
    /// The first word of a directory. It is written once.
    pub struct Head: u64 {
        /// How many records there are.
        RECORDS records: 24,
        /// The version of the layout.
        VERSION version: 8,
        /// What tells a directory from other words.
        MARK mark: 32,
    }
}

word! {
    /// A chain of the index: names whose hashes agree in what the index looks at.
    pub struct Chain: u64 {
        /// The number of its first record, from 1; 0 for none.
        FIRST first: 24,
        /// How often it was changed, or a record that had been in it was used anew; wraps.
        CHANGES changes: 40,
    }
}

word! {
    /// What a record is, and what follows it. Every change raises its number: none of its
    /// values is there twice.
    pub struct Link: u64 {
        /// The number of the next record of the chain; its owner, while it is being prepared.
        NEXT next: 24,
        /// A [`State`].
        STATE state: 3,
        /// How often it was changed; wraps.
        NUMBER number: 37,
    }
}

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum State {
    /// In no chain, and free to be taken.
    Free = 0,
    /// Being prepared, by the endpoint it names; in no chain.
    Staged = 1,
    /// A name's, in its chain or about to be put there.
    Named = 2,
    /// The same, and about to be forgotten unless a client enters it.
    Leaving = 3,
    /// Forgotten for good: to be taken out of its chain.
    Dead = 4,
}

impl Link {
    /// What the record is, if that makes sense.
    pub(super) const fn what(self) -> Option<State> {
        Some(match self.state() {
            0 => State::Free,
            1 => State::Staged,
            2 => State::Named,
            3 => State::Leaving,
            4 => State::Dead,
            _ => return None,
        })
    }

    /// The link's next value, in this state.
    pub(super) fn turned(self, state: State) -> Self {
        self.with(Self::STATE, state as u64).with(Self::NUMBER, self.number() + steps().links)
    }

    /// The link's next value, before another record.
    pub(super) fn before(self, next: u64) -> Self {
        self.with(Self::NEXT, next).with(Self::NUMBER, self.number() + steps().links)
    }

    /// The link's next value, while `owner` prepares the record.
    pub(super) fn staged_by(self, owner: EndpointId) -> Self {
        self.turned(State::Staged).with(Self::NEXT, short(owner))
    }

    /// Whether it is `owner` that prepares the record, or another endpoint of the same short name.
    pub(super) fn is_staged_by(self, owner: EndpointId) -> bool {
        self.what() == Some(State::Staged) && self.next() == short(owner)
    }

    /// Whether this was not before another value of the same link.
    pub(super) fn is_not_before(self, other: Self) -> bool {
        let changes = self.number().wrapping_sub(other.number()) & Self::NUMBER.max();
        changes <= Self::NUMBER.max() / 2
    }

    /// The index of the endpoint that prepares the record.
    pub(super) const fn owner_index(self) -> u16 {
        self.next() as u16
    }
}

/// As much of an endpoint's name as a link holds. Of one that died in the middle the record comes
/// back when its index is free, or another's by the 256th that has it.
fn short(owner: EndpointId) -> u64 {
    u64::from(owner.index) | u64::from(owner.incarnation) << 16 & Link::NEXT.max()
}

impl Chain {
    /// The chain's next value, with this first record.
    pub(super) fn beginning_with(self, record: u64) -> Self {
        Self::new().with(Self::CHANGES, self.changes() + steps().chains).with(Self::FIRST, record)
    }
}

/// By how much each change raises what tells the values of a word apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    pub(super) links: u64,
    pub(super) chains: u64,
    /// Whether a lock of more than a word is wiped before another name has it.
    pub(super) wipes: bool,
    /// Whether a record is kept from others while what its lock has beyond it is emptied.
    pub(super) keeps_staged: bool,
    /// Whether who has found a name sees that its chain is what it was when the walk began.
    pub(super) looks_again: bool,
}

impl Steps {
    pub(super) const SOUND: Self =
        Self { links: 1, chains: 1, wipes: true, keeps_staged: true, looks_again: true };
}

#[cfg(not(test))]
#[inline(always)]
pub(super) fn steps() -> Steps {
    Steps::SOUND
}

#[cfg(test)]
thread_local! {
    /// Tests plant directories here whose words are not told apart.
    pub(super) static STEPS: std::cell::Cell<Steps> = const { std::cell::Cell::new(Steps::SOUND) };
}

#[cfg(test)]
pub(super) fn steps() -> Steps {
    STEPS.get()
}

/// A word as it lies in memory: beside what it and its address come to, so that a half that was
/// overwritten is seen. Zero is zero.
pub(super) const fn seal(addr: Addr, value: u64) -> u128 {
    if value == 0 {
        return 0;
    }
    value as u128 | (mix(value ^ addr.bits()) as u128) << 64
}

/// What a sealed word says, if it is sound.
pub(super) const fn unseal(addr: Addr, found: u128) -> Option<u64> {
    if seal(addr, found as u64) == found { Some(found as u64) } else { None }
}

/// Spreads a word over all bits; a bijection.
pub(super) const fn mix(word: u64) -> u64 {
    let mixed = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// The mark of a directory of so many records, with so many bytes behind each.
const fn mark_of(records: u64, beyond: u64) -> u64 {
    mix(records ^ MARK << 32 ^ beyond << 24) >> 32
}

/// The places of a directory's parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    base: Addr,
    pub(super) records: u32,
    pub(super) chains: u64,
    /// Bytes behind a record's lines, for a lock of more than a word.
    beyond: u64,
}

impl Layout {
    /// The layout of a directory of so many records at `base`, for locks of so many bytes.
    pub(super) fn new(base: Addr, records: u32, lock_bytes: u64) -> Self {
        let chains = u64::from(records).div_ceil(3) * CHAINS_PER_3_RECORDS;
        let beyond = if lock_bytes > WORD { lock_bytes.next_multiple_of(LINE) } else { 0 };
        Self { base, records, chains, beyond }
    }

    /// The shelf that lies so many bytes from its beginning.
    pub(super) fn shelf(&self, behind: u64) -> Shelf {
        shelf_at(self.base.plus(behind))
    }

    /// The largest directory in so many bytes at `base`; `None` where not three records fit.
    pub(super) fn largest((base, bytes): (Addr, u64), lock_bytes: u64) -> Option<Self> {
        let record = Self::new(base, 0, lock_bytes).record_bytes();
        let for_three = 3 * record + CHAINS_PER_3_RECORDS * SEALED;
        let threes = bytes.saturating_sub(INDEX + LINE) / for_three;
        let records = (3 * threes).min(Chain::FIRST.max()) as u32;
        (records > 0).then(|| Self::new(base, records, lock_bytes))
    }

    /// The directory that this first word describes, if it is one of locks of so many bytes and
    /// fits in the heap.
    pub(super) fn of_head((base, bytes): (Addr, u64), lock_bytes: u64, head: Head) -> Option<Self> {
        let layout = Self::new(base, head.records() as u32, lock_bytes);
        let sound = head.mark() == mark_of(head.records(), layout.beyond)
            && head.version() == VERSION
            && layout.records > 0
            && layout.bytes() <= bytes;
        sound.then_some(layout)
    }

    pub(super) fn head_word(&self) -> Head {
        Head::new()
            .with(Head::MARK, mark_of(self.records.into(), self.beyond))
            .with(Head::VERSION, VERSION)
            .with(Head::RECORDS, self.records.into())
    }

    fn first_record(&self) -> u64 {
        (INDEX + self.chains * SEALED).next_multiple_of(LINE)
    }

    fn record_bytes(&self) -> u64 {
        RECORD + self.beyond
    }

    pub(super) fn bytes(&self) -> u64 {
        self.first_record() + u64::from(self.records) * self.record_bytes()
    }

    pub(super) fn head(&self) -> Addr {
        self.base
    }

    pub(super) fn hand(&self) -> Addr {
        self.base.plus(HAND)
    }

    pub(super) fn highest(&self) -> Addr {
        self.base.plus(HIGHEST)
    }

    pub(super) fn chain(&self, number: u64) -> Addr {
        assert!(number < self.chains, "a chain of the index");
        self.base.plus(INDEX + number * SEALED)
    }

    /// Whether a client's word names a record there is.
    pub(super) fn has_record(&self, number: u64) -> bool {
        (1..=u64::from(self.records)).contains(&number)
    }

    fn record(&self, number: u64) -> Addr {
        assert!(self.has_record(number), "a record of the directory");
        self.base.plus(self.first_record() + (number - 1) * self.record_bytes())
    }

    /// The word of the lock of a record: the beginning of a cache line of its own.
    pub(super) fn lock(&self, record: u64) -> Addr {
        self.record(record).plus(if self.beyond > 0 { RECORD } else { 0 })
    }

    /// Bytes of a lock beyond its word's line.
    pub(super) fn beyond(&self) -> u64 {
        self.beyond
    }

    /// What a record is: a [`Link`].
    pub(super) fn link(&self, record: u64) -> Addr {
        self.record(record).plus(LINK)
    }

    /// The facts of a record: [`FACT_WORDS`] words.
    pub(super) fn facts(&self, record: u64) -> Addr {
        self.record(record).plus(LINE)
    }
}

/// A record that this client prepares: nobody else uses its word or its facts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Staged {
    pub(super) record: u64,
    pub(super) link: Link,
}

impl Staged {
    /// What tells it from others, as numbers.
    pub(super) const fn survivors(self) -> [u64; 2] {
        [self.record, self.link.0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::RegionOptions;
    use farlock_fabric::RegionId;

    const BASE: Addr = Addr::new(RegionId(1), 4096);

    /// Undoes `value ^ value >> by`.
    fn unshifted(mixed: u64, by: u32) -> u64 {
        (0..64 / by).fold(mixed, |value, _| mixed ^ value >> by)
    }

    /// What times an odd number is 1, by Newton's steps.
    fn inverse(odd: u64) -> u64 {
        (0..6).fold(odd, |x, _| x.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(x))))
    }

    #[test]
    fn a_record_is_staged_by_one_incarnation_of_a_place() {
        let owner = |index, incarnation| EndpointId { index, incarnation };
        let staged = Link::new().staged_by(owner(7, 3));
        assert!(staged.is_staged_by(owner(7, 3)) && staged.owner_index() == 7);
        assert!(!staged.is_staged_by(owner(7, 4)) && !staged.is_staged_by(owner(8, 3)));
    }

    /// Two words never have one mark or seal: what was mixed can be told.
    #[test]
    fn mixing_loses_nothing() {
        let unmix = |mixed: u64| {
            let mixed = unshifted(mixed, 31).wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
            let mixed = unshifted(mixed, 27).wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9));
            unshifted(mixed, 30)
        };
        let words = (0..64).map(|bit| 1 << bit).chain([0, u64::MAX, MARK, 0x0123_4567_89ab_cdef]);
        for word in words {
            assert_eq!(unmix(mix(word)), word, "{word:#x}");
        }
    }

    /// A client that took a directory of one size for one of another would find nothing in it.
    #[test]
    fn directories_of_other_sizes_have_other_marks() {
        let sizes = [0, 64, 87_424].into_iter();
        let marks: std::collections::BTreeSet<_> = sizes
            .flat_map(|beyond| (1..3_000).map(move |records| mark_of(records, beyond)))
            .collect();
        assert!(marks.len() > 8_990, "{}", marks.len());
    }

    #[test]
    fn four_mebibytes_hold_ten_thousand_names() {
        let layout = Layout::largest((BASE, 4 << 20), WORD).unwrap();
        assert!(layout.records >= 10_000, "{}", layout.records);
        assert!(layout.bytes() <= 4 << 20);
        assert!(layout.chains * 3 >= u64::from(layout.records) * 4);
    }

    #[test]
    fn there_is_a_record_for_every_place_that_a_region_can_have() {
        for places in [1, 4096, 10_000, u16::MAX] {
            let options = RegionOptions::new("", "").with_places(places).of_host();
            let layout = Layout::largest((BASE, options.heap_bytes), WORD).unwrap();
            assert!(layout.records > places.into(), "{places}: {}", layout.records);
        }
    }

    #[test]
    fn nothing_overlaps_and_locks_have_lines_of_their_own() {
        for (bytes, lock_bytes) in
            [(2048, 8), (4096, WORD), (65_536, WORD), (1 << 20, 64), (1 << 20, 5000)]
        {
            let layout = Layout::largest((BASE, bytes), lock_bytes).unwrap();
            assert!(layout.bytes() <= bytes);
            assert!(layout.chain(layout.chains - 1).plus(SEALED) <= layout.link(1));
            let step = layout.lock(2).offset() - layout.lock(1).offset();
            assert_eq!((step, layout.lock(2).offset() % LINE), (layout.record_bytes(), 0));
            let facts_end = layout.facts(1).plus(FACT_WORDS as u64 * 8);
            match lock_bytes {
                ..=WORD => assert_eq!(facts_end, layout.lock(2)),
                _ => {
                    assert_eq!(facts_end, layout.lock(1));
                    assert!(layout.lock(1).plus(lock_bytes) <= layout.record(2));
                }
            }
        }
        assert_eq!(Layout::largest((BASE, 100), WORD), None);
    }

    /// So no value of a link comes back, and a compare of one finds all that happened since.
    #[test]
    fn every_change_of_a_link_raises_its_number() {
        let first = Link::new().with(Link::NEXT, 7).with(Link::NUMBER, 41);
        let owner = EndpointId { index: 3, incarnation: 1 };
        for next in [first.turned(State::Named), first.before(9), first.staged_by(owner)] {
            assert_eq!(next.number(), 42, "{next:?}");
        }
        assert_eq!((first.before(9).next(), first.turned(State::Dead).next()), (9, 7));
    }

    /// Also where the number wraps.
    #[test]
    fn a_later_value_of_a_link_is_not_before_an_earlier_one() {
        for number in [0, 1, 41, Link::NUMBER.max() - 1, Link::NUMBER.max()] {
            let first = Link::new().with(Link::NEXT, 7).with(Link::NUMBER, number);
            let later = first.turned(State::Dead).before(3);
            assert!(first.is_not_before(first) && later.is_not_before(first), "{first:?}");
            assert!(!first.is_not_before(later), "{first:?}");
        }
    }

    #[test]
    fn a_first_word_is_believed_only_if_it_fits() {
        let layout = Layout::largest((BASE, 65_536), WORD).unwrap();
        let head = layout.head_word();
        let of_head = |bytes, head| Layout::of_head((BASE, bytes), WORD, head);
        assert_eq!(of_head(65_536, head), Some(layout));
        assert_eq!(of_head(30_000, head), None);
        assert_eq!(of_head(65_536, head.with(Head::VERSION, 9)), None);
        assert_eq!(of_head(65_536, head.with(Head::RECORDS, 0)), None);
        assert_eq!(of_head(65_536, Head(7)), None);
        assert_eq!(Layout::of_head((BASE, 65_536), 64, head), None, "of another size");
    }
}
