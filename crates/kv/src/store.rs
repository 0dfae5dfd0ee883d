//! The store: operations on keys, as one client carries them out.
//!
//! Every change of a key is one compare of its slot: from the word that was read to a word that
//! names a block which nobody has seen. Each of them is an operation's only moment; a reader's is
//! the moment at which it read the slot.

mod absorb;
mod alloc;
mod change;
mod core;
mod delegate;
mod drive;
mod find;
mod frees;
mod grow;
mod insert;
mod migrate;
mod operate;
mod ordered;
mod recall;
mod reclass;
mod scan;
mod tree;
mod tree_change;
mod watch;

pub use self::core::{Counts, Store};
pub use self::operate::Decision;
pub use self::scan::{Cursor, Pair};
pub use self::watch::Sight;
