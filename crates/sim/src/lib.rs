//! The simulated world (to come).
