//! The `farlock` command. It begins in `cli/entry.rs`.
#![deny(unsafe_code)]
#![cfg_attr(not(test), no_main)]

mod cli;
