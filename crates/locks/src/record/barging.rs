//! What barging locks have in common. Their words tell what a newcomer may claim; how often it
//! yields, and for how long it barges, is the same.
//!
//! Where clients outnumber processors, most that wait do not run, and a lock that is kept for the
//! line waits until the first in line does. So a newcomer that cannot acquire first *yields* its
//! processor a few times, and gets in line only if that did not help. Then few are in line, and
//! those run. And a client that acquires again and again without a wait yields when it has *barged*
//! enough, as long as others acquire meanwhile: they may be waiting for its processor.

use farlock_fabric::word::Field;
use farlock_fabric::{Endpoint, Nanos, Patience, Wait};

use crate::site::{Barging, Outcome, Site};

/// Attempts before a newcomer yields. Each fails because another acquired.
pub(super) const ATTEMPTS: u32 = 2;

/// How often a newcomer yields where it may have a processor to give. A kernel may take a yield
/// for the rest of a time slice, so that each in vain costs a slice: no more of them than help.
const NEWCOMER_YIELDS: u8 = 5;

/// A turn is over when the count has gone round so often since it began. Measured of 1, 4 and 16: 1
/// costs a quarter of the rate, 16 sometimes a whole time slice of waiting.
const ROUNDS_OF_BARGING: u64 = 4;
/// A turn in which nobody else acquired doubles the next one. After so many of them there are none.
const DOUBLINGS_MAX: u32 = 12;

/// Where newcomers yield few are in line: they spin briefly and then sleep, since a waiter that
/// yields in line holds up all behind.
const IN_A_SHORT_LINE: Patience = Patience { spins: Patience::BRIEF, yields: 0 };

/// How waits in line spend their time behind so many that may pass, unless the lock was told how.
#[inline]
pub(super) fn patience_in_line(bypass: u8, patience: Patience) -> Patience {
    let is_given = bypass == 0 || patience != Patience::DEFAULT;
    if is_given { patience } else { IN_A_SHORT_LINE }
}

/// How often a newcomer yields before it gets in line, unless the lock was told how often.
pub(super) fn newcomer_yields<E: Endpoint>(bypass: u8, given: Option<u8>) -> u8 {
    given.unwrap_or(if E::SHARES_PROCESSORS && bypass > 0 { NEWCOMER_YIELDS } else { 0 })
}

/// Whether this slot yields before it acquires again: its turn was over when it left the lock's
/// word, which counts releases there.
#[inline(always)]
pub(super) fn has_barged_enough<E: Endpoint>(site: &Site<'_, E>, count: Field) -> bool {
    let turn = site.barging();
    let is_over = |left| count.of(left).wrapping_sub(turn.began) & count.max() >= turn.length;
    turn.length != u64::MAX && site.hint().is_some_and(is_over)
}

/// The turn of a slot begins that has just acquired at this count, after it had to wait or after
/// it yielded. A yield that finds nobody may have been too short for others, hence the longer
/// turns.
pub(super) fn begin<E: Endpoint>(
    site: &Site<'_, E>,
    bypass: u8,
    yields: u8,
    count: u64,
    is_alone: bool,
) {
    let first = ROUNDS_OF_BARGING * (u64::from(bypass) + 1);
    let length = if is_alone { site.barging().length.saturating_mul(2) } else { first };
    let is_wanted = yields > 0 && length <= first << DOUBLINGS_MAX;
    site.set_barging(if is_wanted { Barging { began: count, length } } else { Barging::ENDLESS });
}

/// Lets others run, and looks at the word again.
pub(super) async fn yield_and_read<E: Endpoint>(site: &Site<'_, E>) -> Outcome<u128> {
    const NO_LONGER: Option<Nanos> = Some(0);
    let patience = Patience { spins: 0, yields: 1 };
    site.endpoint.wait(Wait { interval: NO_LONGER, patience, ..Wait::default() }).await;
    site.read128().await
}
