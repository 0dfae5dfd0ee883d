//! The contract as a test suite (to come).
