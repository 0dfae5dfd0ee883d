//! Citron: a range lock on a segment tree, by one-sided verbs alone (Gao, Lu, Xie, Wang, Shu:
//! Citron, Distributed Range Lock Management with One-sided RDMA, FAST'23).

pub mod split;
pub mod tree;
