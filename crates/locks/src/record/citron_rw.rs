//! Citron with readers: [`citron`](super::citron) whose nodes have a second word.
#![doc = include_str!("../../../../docs/protocols/citron-rw.md")]

pub use super::citron::Shared;
