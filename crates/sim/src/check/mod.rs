//! Judges: they stand outside every protocol and are told what clients do, or see what verbs do.
//!
//! A judge knows nothing of words, queues and messages. [`Ledger`] knows who is inside a lock and
//! with which token; [`Turns`] who came before whom; [`Rounds`] how often readers pass a writer;
//! [`Tries`] whether a try had a reason to fail; [`Ranges`] who is inside which range; [`Register`]
//! is a resource that tokens protect and [`Fence`] its judge; a [`History`] tells whether what
//! clients saw of an object can be explained by one operation after the other. What a world must
//! look like when all have left is asked of the world itself. A deadlock needs no judge: a world in
//! which nothing can happen and a task waits ends with
//! [`Ended::Deadlock`](crate::Ended::Deadlock).

mod fairness;
mod fencing;
mod ledger;
mod linear;
mod ranges;
mod rounds;
mod tries;

pub use fairness::{Passed, Turns};
pub use fencing::{Fence, Register, Stale};
pub use ledger::{Access, Ledger};
pub use linear::{Called, History, NotLinearizable, Object, Value, ValueOperation};
pub use ranges::Ranges;
pub use rounds::Rounds;
pub use tries::Tries;
