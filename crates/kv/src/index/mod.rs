//! Where the slots of a key lie.

mod pointer_array;
mod race;
mod slots;
mod smart;
pub(crate) mod smart_node;

pub use crate::key::Key;
pub use pointer_array::PointerArray;
pub use race::Race;
pub use slots::{Bucket, Buckets, Growth, Index, Ordered};
pub use smart::Smart;
