//! How many bits the counts in a lock's word hold.
//!
//! Counts wrap, and code that compares them must not mind. Of 48 bits nobody sees a count come all
//! the way round. With `--cfg=farlock_narrow` they hold so few bits that it takes ten acquisitions;
//! the checker explores that build. A field takes up as much of its word as always, so no other
//! text differs. Where a count must not get ahead by half of its values (repairs while a client
//! holds) or by all of them (tickets in line), a narrow one must not either, and has few.

/// Counts of releases, or of tickets ever taken, of which tokens are made.
pub const COUNT: u32 = bits(48, 3);
/// Below such a count in a token: how often a client has handed its hold on. Fewer bits than the
/// count has.
pub const TURN: u32 = bits(4, 1);
/// Counts of repairs.
pub const GENERATION: u32 = bits(16, 3);
/// The low part of such a count, where 8 bytes must tell it.
pub const GENERATION_LOW: u32 = bits(7, 2);
/// Counts of tickets of one kind, taken or given back.
pub const TICKETS: u32 = bits(16, 3);
/// Tickets of a tree's node, or readers of it.
pub const NODE_TICKETS: u32 = bits(13, 3);
/// Counts in its word of those below it.
pub const NODE_COUNT: u32 = bits(17, 3);
/// Who holds to update passes readers, but not with a ticket in so many: two to the power of this.
pub const PASSING: u32 = bits(12, 1);
/// Numbers of readers, which go up and down.
pub const READERS: u32 = bits(15, 3);
/// The same where the word has less room for them.
pub const CLAIM_READERS: u32 = bits(12, 3);
/// How often a slot has got in line, as the last in line says in the word.
pub const LINES: u32 = bits(6, 1);
/// The count in a word is behind the one that travels by less than two to the power of this. More
/// clients must not be in line.
pub const LAG: u32 = bits(20, 1);

const fn bits(full: u32, narrow: u32) -> u32 {
    if cfg!(farlock_narrow) { narrow } else { full }
}
