//! Where the program begins: the C library hands the process over.
//!
//! With what it was given ([`inherited`]), this and that are the modules of the command line with
//! unsafe code.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use super::inherited;

/// What a program of Rust that panicked ends with.
const PANICKED: i32 = 101;

/// Where the program begins, instead of in the runtime of Rust. That would prepare for a message
/// when the stack overflows, which costs each start a twentieth of its time.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, expect(dead_code, reason = "tests begin in their harness"))]
extern "C" fn main(count: libc::c_int, words: *const *const libc::c_char) -> libc::c_int {
    let words = (0..usize::try_from(count).unwrap_or(0)).map(|n| {
        // SAFETY: the C library passes so many words, each of which ends with a zero byte.
        let word = unsafe { CStr::from_ptr(*words.add(n)) };
        OsStr::from_bytes(word.to_bytes()).to_owned()
    });
    let words: Vec<OsString> = words.collect();
    inherited::prepare();
    inherited::end_where_memory_is_gone();
    // Who panics has said why.
    let status =
        std::panic::catch_unwind(|| super::main(words)).map_or(PANICKED, |exit| exit.0.into());
    // What could not be written is reported where it is printed.
    let _ = io::stdout().flush();
    status
}
