//! What the list locks are measured against, behind the same traits.
//!
//! | lock | where it comes from |
//! | --- | --- |
//! | [`TreeEx`] | Lustre's exclusive range lock: an interval tree behind a spin lock |
//! | [`TreeRw`] | the reader-writer range lock proposed for Linux: the same tree, two modes |
//! | [`Segments`] | pNOVA: the positions cut into equal segments, a reader-writer lock each |
//! | [`Single`] | one reader-writer lock for everything, like the kernel's `mmap_sem` |
//!
//! Both trees come in two ways of [`Waiting`]: [`Spin`], as the paper ran them, and [`Park`], which
//! spins a little and then sleeps, so that more threads than cores do not decide the comparison.
//! None of these locks has timeouts, and none is meant for use.

mod gate;
mod interval_tree;
mod segments;
mod tree;
mod waiting;

pub use segments::{SEGMENTS, Segments, SegmentsToken, Single};
pub use tree::{TreeEx, TreeLock, TreeRw, TreeToken};
pub use waiting::{Park, Spin, Waiting};
