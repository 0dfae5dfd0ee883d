//! The laboratory (to come).
#![forbid(unsafe_code)]
