//! Locks on far memory (to come).
