//! The tickets of verbs, by which a server and a lane know them.

use crate::verb::CHAIN_MAX;

/// How far tickets lie apart. Its remainder says how many links a chain has, and of a single verb
/// 0: so an end of another length is not taken for its own.
pub(super) const STEP: u32 = 64;

/// The remainder of a verb that is unsignalled.
pub(super) const UNSIGNALLED: u32 = STEP - 1;

const _: () = assert!(CHAIN_MAX < UNSIGNALLED as usize);

/// Whether it is that of a verb of which only a failure is told.
pub(super) const fn is_unsignalled(ticket: u32) -> bool {
    ticket % STEP == UNSIGNALLED
}
