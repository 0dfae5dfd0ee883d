//! Names, sessions and the `farlock` command (to come).
