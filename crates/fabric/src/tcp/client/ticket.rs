//! The tickets of verbs, by which a server and a lane know them.

use crate::verb::CHAIN_MAX;

/// How far tickets lie apart. Its remainder says how many links a chain has, and of a single verb
/// 0: so an end of another length is not taken for its own.
pub(super) const STEP: u32 = 64;

/// The remainder of a verb that is unsignalled.
pub(super) const UNSIGNALLED: u32 = STEP - 1;

/// The remainder of a single verb that its server may hold back.
pub(super) const PATIENT: u32 = STEP - 2;

const _: () = assert!(CHAIN_MAX < PATIENT as usize);

/// How many links the chain has, and 0 of a single verb.
pub(super) const fn links(ticket: u32) -> u32 {
    let remainder = ticket % STEP;
    if remainder == PATIENT { 0 } else { remainder }
}

/// Whether it is that of a verb that is answered at once.
pub(super) const fn is_paced(ticket: u32) -> bool {
    ticket % STEP < PATIENT
}

/// Whether it is that of a verb of which only a failure is told.
pub(super) const fn is_unsignalled(ticket: u32) -> bool {
    ticket % STEP == UNSIGNALLED
}
