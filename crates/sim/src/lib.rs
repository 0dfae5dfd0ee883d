//! The simulated world (to come).
#![forbid(unsafe_code)]
