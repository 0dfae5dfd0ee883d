//! The laboratory (to come).
