//! The list-based range locks of Kogan, Dice and Issa ("Scalable Range Locks for Scalable Address
//! Spaces and Beyond", EuroSys 2020, section 4), exclusive and reader-writer.
//!
//! A range is held while its entry is in a list sorted by start. Taking it is one compare-and-swap
//! on the link before its place; releasing it marks the entry's own link, which cannot fail;
//! a walk that passes a marked entry later unlinks it, or replaces it with its own in the same
//! compare-and-swap.
//!
//! ```text
//! head ──▶ [0,10) ──▶ [10,12) ──✗──▶ [40,50) ──▶ end        ✗ marked: released, not yet unlinked
//! ```
//!
//! **Why it is exclusive.** An entry is inserted by changing the link between the last entry that
//! ends before it and the first that starts after it, and only if that link has not changed since
//! both were looked at. Shared entries may overlap, so a reader and a writer can insert at
//! different links without noticing: both look again after inserting
//! ([`walk::List::check_shared`], [`walk::List::check_exclusive`]; section 4.2), and one of them
//! leaves or waits.
//!
//! **Where it departs from the paper.** A writer that found a reader tries again with a fresh
//! entry: the listing inserts the old one again, which may still be linked, and so clears its mark
//! and can link it to itself. A walk that loses its footing begins again at the head. Links carry
//! versions ([`word`]), so entries are used again at once without epochs, and nothing waits for
//! a grace period. Adjacent ranges do not wait for each other. Impatience (section 4.3) never
//! makes a thread wait without a bound, so holders of several ranges cannot be locked out.
//!
//! **Fast path** (section 4.5). If no range is held, the head is led to the entry and marked; the
//! release takes it out at once. A newcomer in between removes the head's mark first.
//!
//! **What a panic leaves behind.** Nothing here calls foreign code while an entry is half inserted.
//! A token that is lost leaves its range locked for ever and its 64 bytes in use.

mod entrance;
mod impatience;
mod locks;
mod park;
mod pool;
mod token;
mod walk;
mod word;

pub use locks::{ListEx, ListRw};
pub(crate) use locks::{NO_DEADLINE, owner_of_thread};
pub use token::Token;
#[cfg(any(loom, shuttle))]
pub use walk::Planted;
pub use walk::Preference;
