//! The contract as a test suite: every back end runs the same cases.
//!
//! A back end sets a [`Stage`] and expands the suite in a test file of a few lines; each case
//! becomes a test with a stage of its own:
//!
//! ```text
//! struct Shm { /* a fresh region */ }
//! impl Stage for Shm { /* ... */ }
//! farlock_fabric::conformance!(Shm::new());
//! ```
//!
//! A back end names what it has: `conformance!(Soft::new(), narrow)`, or `narrow masked`, or
//! `narrow masked wide revoking`; without that it is the default, `narrow masked wide`.
//!
//! Cases demand no more than the contract says: where it leaves a choice, they accept each. Several
//! clients are several futures joined; where they would gain from true concurrency they go through
//! [`Stage::crowd`].

#![allow(missing_docs, reason = "a case's name is its sentence")]

pub mod atomics;
pub mod bounds;
pub mod chains;
pub mod crowd;
pub mod errors;
pub mod lives;
pub mod masked;
pub mod messages;
pub mod records;
pub mod revocation;
pub mod time;
pub mod waits;
pub mod wide;
pub mod wide_crowd;
mod widths;
pub mod words;

pub use widths::{masked64, masked128};

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use crate::addr::{Addr, EndpointId, RegionId, Slot};
use crate::endpoint::{Endpoint, Envelope, Nanos, Wait, Woken};
use crate::verb::Verb;

/// What a back end sets up for a case: a memory node with one region, afresh for each.
///
/// At least 6 endpoints can live at once and 64 can be made one after another; at least 48 KiB
/// can be had as scratch.
pub trait Stage {
    /// The back end's kind of endpoint.
    type Endpoint: Endpoint;

    /// A message is there for its receiver as soon as its sender is told so, and not only when a
    /// later verb of the receiver has completed.
    const RECEIVES_AT_ONCE: bool = true;

    /// A new living endpoint, attached to the region as it is now, of which all others have been
    /// told.
    fn endpoint(&mut self) -> Self::Endpoint;

    /// The same, of which nobody has been told yet that need not have been.
    fn newcomer(&mut self) -> Self::Endpoint {
        self.endpoint()
    }

    /// Zeroed memory that nobody else uses, on a 64-byte boundary.
    fn scratch(&mut self, bytes: u64) -> Addr;

    /// Runs a future over this stage's endpoints to its end.
    fn run<T>(&mut self, future: impl Future<Output = T>) -> T;

    /// The first address behind the region. The 16 bytes before it can be read and written; cases
    /// leave them as they are.
    fn end(&self) -> Addr;

    /// An address in a region that does not exist.
    fn nowhere(&self) -> Addr {
        Addr::new(RegionId(0xfff0), 0)
    }

    /// An address on a 64-byte boundary where these endpoints have no right, where there is such
    /// a thing.
    fn forbidden(&self) -> Option<Addr> {
        None
    }

    /// The endpoint's owner dies without another word.
    fn kill(&mut self, endpoint: Self::Endpoint) {
        drop(endpoint);
    }

    /// The memory node is reset: its incarnation increases, what was attached is stale. `false`
    /// where this back end cannot be reset under its endpoints.
    fn reset(&mut self) -> bool;

    /// Runs `member` for `size` new endpoints, numbered from 0: at once where the back end can (a
    /// thread or process each), otherwise joined in one task.
    fn crowd(&mut self, size: usize, member: impl AsyncFn(&Self::Endpoint, usize) + Sync) {
        let endpoints: Vec<_> = (0..size).map(|_| self.endpoint()).collect();
        let members = endpoints.iter().enumerate().map(|(number, e)| member(e, number));
        let members: Vec<_> = members.collect();
        self.run(join_all(members));
    }
}

/// Expands the suite for a stage: one test per case. See the [module](mod@crate::conformance).
#[macro_export]
macro_rules! conformance {
    ($stage:expr) => {
        $crate::conformance!($stage, narrow masked wide);
    };
    ($stage:expr, $($ability:ident)+) => {
        $($crate::conformance_cases!($ability [$crate::conformance_tests] $stage);)+
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    (@ $stage:expr, $module:ident::$case:ident) => {
        $crate::conformance::$module::$case($stage)
    };
    (@ $stage:expr, $module:ident::$case:ident $with:ident) => {
        $crate::conformance::$with($stage, $crate::conformance::$module::$case)
    };
    ($stage:expr; $($module:ident: $($case:ident $(($with:ident))?)+;)+) => {
        $(mod $module {
            #[allow(unused_imports, reason = "the stage may be named without its path")]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::conformance_tests!(@ &mut $stage, $module::$case $($with)?);
            })+
        })+
    };
}

/// Every case, by the ability it needs and its module; in parentheses what runs it, where that is
/// not the case itself.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    (narrow [$($then:tt)+] $($with:tt)*) => { $($then)+! { $($with)*;
        words:
            memory_begins_as_zeroes
            what_is_written_is_read(with_line)
            every_length_from_one_to_the_largest
            every_bit_survives
            a_read_changes_nothing(with_line)
            a_write_touches_its_words_alone(with_line)
            a_read_of_nothing_is_refused
            a_read_that_is_too_long_is_refused
            a_write_of_nothing_is_refused
            a_write_that_is_too_long_is_refused
            the_first_two_words_of_a_read_stay_with_the_endpoint(with_line)
            a_read_is_copied_as_far_as_there_is_room(with_line)
            a_write_is_copied_when_it_is_posted(with_line)
            everybody_sees_the_same_memory;
        atomics:
            a_compare_that_holds_swaps(with_line)
            a_compare_that_fails_changes_nothing(with_line)
            a_compare_looks_at_every_bit(with_line)
            a_swap_for_the_same_value_holds(with_line)
            an_addition_returns_the_word_before_it(with_line)
            an_addition_wraps_around(with_line)
            an_addition_of_zero_changes_nothing(with_line)
            a_subtraction_is_an_addition(with_line)
            atomics_touch_their_word_alone(with_line)
            random_atomics_match_their_definition(with_line)
            verbs_in_flight_together_all_take_effect(with_line)
            a_verb_completes_within_its_post_where_all_do
            an_abandoned_atomic_takes_effect(with_line)
            an_unsignalled_verb_comes_before_later_ones(with_line)
            an_unsignalled_verb_takes_effect_by_itself(with_line)
            an_abandoned_write_takes_effect(with_line);
        chains:
            a_chain_of_one(with_line)
            a_chain_of_the_most(with_line)
            a_chain_of_nothing_is_refused
            a_chain_that_is_too_long_is_refused(with_line)
            a_read_sees_the_write_before_it(with_line)
            a_read_sees_the_atomic_before_it(with_line)
            an_atomic_sees_the_write_before_it(with_line)
            a_write_covers_the_atomic_before_it(with_line)
            a_fenced_write_comes_after_the_read_before_it(with_line)
            a_fenced_atomic_comes_after_the_read_before_it(with_line)
            a_fence_holds_for_every_earlier_read(with_line)
            an_unfenced_write_may_come_before_the_read(with_line)
            each_verb_has_its_own_old_word(with_line)
            each_read_has_its_own_words
            each_verb_has_its_own_end
            a_fault_does_not_stop_the_verbs_after_it
            a_chain_ends_with_its_first_fault
            a_fault_at_either_end_is_told
            a_message_goes_with_a_chain(with_pair_and_line)
            an_abandoned_chain_takes_effect(with_line)
            random_fenced_chains_match_their_definition
            random_chains_of_writes_and_atomics_match_their_definition;
        bounds:
            the_last_word_can_be_used
            one_past_the_end_is_refused
            what_straddles_the_end_is_refused
            a_refused_write_changes_nothing
            the_highest_offset_is_refused
            an_unknown_region_is_refused
            a_misaligned_word_is_refused(with_line)
            a_verb_without_right_is_refused
            a_refusal_leaves_the_endpoint_usable;
        messages:
            a_message_arrives_whole(with_pair)
            a_message_is_delivered_once(with_pair)
            an_empty_mailbox_gives_nothing
            messages_arrive_in_order(with_pair)
            messages_of_two_senders_stay_in_order_each
            a_message_names_its_sender
            a_message_tells_its_arrival(with_pair)
            arrivals_do_not_go_back(with_pair)
            a_message_to_oneself_arrives
            slots_do_not_mix(with_pair)
            endpoints_do_not_mix
            a_mailbox_holds_four(with_pair)
            a_full_mailbox_refuses_and_keeps_what_it_has(with_pair)
            a_full_mailbox_has_room_again_after_a_receipt(with_pair)
            a_full_slot_leaves_the_others_open(with_pair)
            a_message_to_the_dead_is_refused
            a_message_to_another_incarnation_is_refused(with_pair)
            a_message_to_the_successor_alone_arrives
            a_message_to_nobody_is_refused
            a_message_beyond_the_table_is_refused
            a_message_to_a_slot_that_is_not_there_is_refused(with_pair)
            a_message_outlives_its_sender
            a_message_is_there_when_its_send_completes
            a_message_follows_the_writes_before_it(with_pair_and_line);
        waits:
            a_wait_does_not_end_early
            a_wait_of_no_time_ends
            a_long_wait_outlasts_a_short_one(with_pair)
            a_message_that_is_there_ends_a_wait_at_once(with_pair)
            a_message_ends_a_wait(with_pair)
            a_message_in_another_slot_ends_no_wait(with_pair)
            a_dead_peer_ends_a_wait_at_once
            a_death_ends_a_wait
            one_death_of_several_ends_a_wait
            a_living_peer_ends_no_wait
            a_word_that_differs_already_ends_a_wait(with_line)
            a_word_that_stays_ends_no_wait_but_in_time
            a_watched_word_is_seen_to_change(with_pair_and_line)
            a_change_ends_a_wait_where_memory_is_watched
            a_change_of_bits_that_count_ends_a_wait_where_memory_is_watched
            whichever_comes_first_ends_a_wait
            a_dropped_wait_leaves_nothing_behind(with_pair)
            many_dropped_waits_leave_nothing_behind(with_pair_and_line)
            waits_of_several_slots_do_not_mix(with_pair)
            a_wait_that_could_never_end_is_a_bug;
        lives:
            an_endpoint_knows_itself
            identities_differ
            an_identity_never_comes_back
            the_living_are_alive
            the_dead_are_not_alive
            the_dead_stay_dead
            nobody_is_not_alive
            the_table_names_the_living
            a_newcomer_knows_itself
            a_newcomer_knows_those_who_came_before
            a_reader_of_a_newcomers_write_knows_it
            a_reader_of_a_newcomers_record_knows_it
            a_receiver_of_a_newcomers_message_knows_it
            a_peer_that_hears_of_a_newcomer_knows_it
            a_successor_is_known_by_its_own_name
            what_the_dead_did_stays
            the_stale_are_refused
            the_stale_change_nothing
            the_stale_are_refused_in_every_link
            the_stale_send_nothing
            a_stale_verb_stays_refused_after_another_reset
            an_attacher_after_a_reset_is_served;
        records:
            a_record_lies_in_memory_of_its_own
            what_is_published_is_read_by_others(with_pair_and_line)
            what_is_published_is_read_by_its_owner
            what_is_published_comes_before_later_verbs(with_pair_and_line)
            what_is_published_comes_before_a_later_message(with_pair)
            what_was_shown_is_there_without_a_verb(with_pair_and_line)
            who_has_shown_receives_what_was_sent_before(with_pair)
            every_word_of_a_record_is_its_own(with_line)
            records_of_slots_do_not_mix(with_line)
            records_lie_one_behind_the_other(with_line)
            records_of_endpoints_do_not_mix
            the_last_value_published_stays(with_pair_and_line);
        time:
            time_does_not_go_back(with_line)
            time_passes_in_a_wait
            a_verb_completes_after_it_was_posted(with_line)
            chance_is_not_shared
            chance_does_not_repeat
            every_bit_of_chance_is_even
            a_checkpoint_changes_nothing(with_line);
        crowd:
            additions_of_many_add_up
            tickets_of_many_are_unique
            compares_of_many_lose_no_update
            a_crowd_swaps_for_one_winner
            words_do_not_tear
            atomics_and_reads_of_a_word_do_not_tear
            messages_of_many_arrive_once_and_in_order
            a_lock_of_one_word_excludes
            a_handover_by_message_carries_the_memory;
        errors:
            a_fault_is_a_sentence
            only_a_lost_verb_is_unknown
            addresses_print_as_places;
    } };
    (masked [$($then:tt)+] $($with:tt)*) => {
        $crate::conformance_cases! { at_both_widths masked64 [$($then)+] [$($with)*]
            masked:
                masked_verbs_are_posted_by_their_names(with_line);
        }
    };
    (wide [$($then:tt)+] $($with:tt)*) => {
        $crate::conformance_cases! { at_both_widths masked128 [$($then)+] [$($with)*]
            wide:
                the_low_half_comes_first(with_line)
                a_hint_never_makes_a_compare_hold(with_line)
                a_hint_never_makes_a_compare_fail(with_line)
                a_hint_never_changes_an_addition(with_line)
                narrow_and_wide_verbs_share_a_word(with_line);
            wide_crowd:
                wide_additions_of_many_add_up
                wide_words_never_tear
                halves_are_changed_by_many_without_loss;
        }
    };
    (at_both_widths $module:ident [$($then:tt)+] [$($with:tt)*] $($more:tt)*) => {
        $($then)+! { $($with)*;
        $module:
            a_full_mask_compares_and_swaps_the_word(with_line)
            an_empty_compare_mask_always_swaps(with_line)
            an_empty_swap_mask_changes_nothing(with_line)
            a_compare_looks_at_its_mask_alone(with_line)
            a_compare_looks_at_every_bit_of_its_mask(with_line)
            a_swap_changes_its_mask_alone(with_line)
            a_failed_compare_returns_the_word_whole(with_line)
            random_compares_match_their_definition(with_line)
            no_boundary_is_a_plain_addition(with_line)
            one_field_is_a_plain_addition(with_line)
            fields_of_one_bit_do_not_carry(with_line)
            a_carry_stops_at_its_boundary(with_line)
            a_carry_goes_on_without_a_boundary(with_line)
            a_field_wraps_within_itself(with_line)
            a_field_counts_down(with_line)
            counters_near_their_end_wrap_in_every_width(with_line)
            random_additions_match_their_definition(with_line)
            masked_verbs_touch_their_word_alone(with_line)
            masked_verbs_need_their_own_boundary(with_line)
            masked_verbs_follow_the_bounds
            masked_verbs_follow_each_other_in_a_chain(with_line)
            a_stale_masked_verb_is_refused;
        $($more)*
    } };
    (revoking [$($then:tt)+] $($with:tt)*) => { $($then)+! { $($with)*;
        revocation:
            the_revoked_are_refused(with_pair_and_line)
            the_revoked_change_nothing(with_pair_and_line)
            the_revoked_change_nothing_by_chain(with_pair_and_line)
            the_revoked_send_nothing(with_pair)
            a_verb_in_flight_does_not_outlive_a_revocation(with_pair_and_line)
            a_revocation_hits_nobody_else
            the_dead_can_be_revoked
            one_can_be_revoked_twice
            a_successor_of_the_revoked_is_free
            the_revoked_change_nothing_by_masked_verbs(with_pair_and_line);
    } };
}

/// Runs a case of one endpoint and a line of memory.
pub fn with_line<S: Stage>(stage: &mut S, case: impl AsyncFnOnce(S::Endpoint, Addr)) {
    let (e, addr) = (stage.endpoint(), stage.scratch(64));
    stage.run(case(e, addr));
}

/// Runs a case of two endpoints.
pub fn with_pair<S: Stage>(stage: &mut S, case: impl AsyncFnOnce(S::Endpoint, S::Endpoint)) {
    let (e, peer) = (stage.endpoint(), stage.endpoint());
    stage.run(case(e, peer));
}

/// Runs a case of two endpoints and a line of memory.
pub fn with_pair_and_line<S: Stage>(
    stage: &mut S,
    case: impl AsyncFnOnce(S::Endpoint, S::Endpoint, Addr),
) {
    let (e, peer, addr) = (stage.endpoint(), stage.endpoint(), stage.scratch(64));
    stage.run(case(e, peer, addr));
}

/// Both futures, side by side.
pub(crate) async fn join<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut first, mut second) = (None, None);
    poll_fn(move |cx| {
        if first.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(cx)
        {
            first = Some(output);
        }
        if second.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(cx)
        {
            second = Some(output);
        }
        match (first.take(), second.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (first, second) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}

/// All futures, side by side, polled in order.
pub(crate) async fn join_all<F: Future<Output = ()>>(futures: Vec<F>) {
    let mut futures: Vec<_> = futures.into_iter().map(|future| Some(Box::pin(future))).collect();
    poll_fn(move |cx| {
        for slot in &mut futures {
            if slot.as_mut().is_some_and(|future| future.as_mut().poll(cx).is_ready()) {
                *slot = None;
            }
        }
        if futures.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// One poll of a future, to have it begin.
pub(crate) async fn begin<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(move |cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Reads a word that can be read.
pub(crate) async fn load<E: Endpoint>(e: &E, addr: Addr) -> u64 {
    e.read64(addr).await.expect("a word of scratch can be read");
    e.old() as u64
}

/// Reads `words` words that can be read.
pub(crate) async fn load_all<E: Endpoint>(e: &E, addr: Addr, words: usize) -> Vec<u64> {
    let verb = Verb::Read { addr, words: words as u16 };
    e.verb(verb).await.expect("words of scratch can be read");
    let mut into = vec![0; words];
    assert_eq!(e.copy_read(0, &mut into), words, "a read brings all its words");
    into
}

/// The next message. It is there, or when a verb of the receiver has completed.
pub(crate) async fn receive<E: Endpoint>(e: &E, slot: u8) -> Envelope {
    let slot = Slot(slot);
    if let Some(envelope) = e.receive(slot) {
        return envelope;
    }
    load(e, e.record(e.id().index, slot)).await;
    e.receive(slot).expect("a message is there")
}

/// Writes words that can be written.
pub(crate) async fn store<E: Endpoint>(e: &E, addr: Addr, data: &[u64]) {
    e.verb(Verb::Write { addr, data }).await.expect("words of scratch can be written");
}

/// Waits, and again where the wait ended for no reason.
pub(crate) async fn wait_for<E: Endpoint>(e: &E, wait: Wait<'_>) -> Woken {
    assert!(wait.word.is_none(), "a word may change: look at it");
    for _ in 0..1000 {
        let woken = e.wait(wait).await;
        if woken != Woken::Changed {
            return woken;
        }
    }
    panic!("a wait keeps ending for no reason");
}

/// Waits until a death is known.
pub(crate) async fn bury<E: Endpoint>(e: &E, peer: EndpointId) {
    let woken = wait_for(e, Wait { peers: &[peer], ..Wait::default() }).await;
    assert_eq!(woken, Woken::PeerGone(peer));
}

/// How long a case waits for what is to happen.
pub(crate) const LONG: Nanos = 5_000_000_000;
/// How long a case waits for what is not to happen.
pub(crate) const SHORT: Nanos = 2_000_000;

/// A seeded stream for random cases (SplitMix64).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn wide(&mut self) -> u128 {
        u128::from(self.next()) | u128::from(self.next()) << 64
    }

    /// One of `count`.
    pub(crate) fn of(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    /// A mask: of few bits, of many, of none, of all, or any.
    pub(crate) fn mask(&mut self) -> u128 {
        match self.of(6) {
            0 => self.wide() & self.wide() & self.wide(),
            1 => self.wide() | self.wide() | self.wide(),
            2 => 0,
            3 => u128::MAX,
            4 => 1 << self.of(128),
            _ => self.wide(),
        }
    }

    /// A word: at the ends of its range as often as anywhere.
    pub(crate) fn word(&mut self) -> u128 {
        match self.of(4) {
            0 => u128::MAX - u128::from(self.next() % 4),
            1 => u128::from(self.next() % 4),
            _ => self.wide(),
        }
    }
}

/// The definition, bit by bit: an addition of the low `bits` bits whose carries stop behind each
/// bit that `boundary` marks.
pub(crate) fn add_by_bits(old: u128, add: u128, boundary: u128, bits: u32) -> u128 {
    let (mut sum, mut carry) = (0, 0);
    for bit in 0..bits {
        let total = (old >> bit & 1) + (add >> bit & 1) + carry;
        sum |= (total & 1) << bit;
        carry = if boundary >> bit & 1 == 1 { 0 } else { total >> 1 };
    }
    sum
}

/// The definition, bit by bit: what a word becomes by a masked compare-and-swap.
pub(crate) fn swap_by_bits(
    old: u128,
    [compare, compare_mask, swap, swap_mask]: [u128; 4],
    bits: u32,
) -> u128 {
    let bit_of = |word: u128, bit: u32| word >> bit & 1;
    let holds = (0..bits)
        .all(|bit| bit_of(compare_mask, bit) == 0 || bit_of(old, bit) == bit_of(compare, bit));
    let new_bit =
        |bit| if bit_of(swap_mask, bit) == 1 { bit_of(swap, bit) } else { bit_of(old, bit) };
    if holds { (0..bits).map(|bit| new_bit(bit) << bit).sum() } else { old }
}

#[cfg(test)]
mod tests;
