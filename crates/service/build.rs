//! Links the command with an unwinder of its own rather than the system's shared one: a library
//! less to look up, map and bind at each start, which is what a short command under a lock waits
//! for. Where the compiler has no such archive the shared one serves.
//!
//! It is linked to lie at one address, for the same reason: two thousand pointers in its tables
//! would have to be moved at each start, in pages that the guardian's fork then copies (1 to 7 % of
//! `farlock lock x -- true`, the more the busier the machine). Its libraries, stack and heap lie
//! anywhere, as ever.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    let is_native = std::env::var("HOST").is_ok_and(|host| is("TARGET", &host));
    let is_gnu = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if is_native && is_gnu {
        println!("cargo:rustc-link-arg-bin=farlock=-no-pie");
    }
    if is_native && is_gnu && has_archive() {
        let whole = "-Wl,--whole-archive,-lgcc_eh,--no-whole-archive";
        println!("cargo:rustc-link-arg-bin=farlock={whole}");
    }
}

/// Whether the compiler that links has the unwinder as an archive; else it names no place.
fn has_archive() -> bool {
    let asked = Command::new("cc").arg("-print-file-name=libgcc_eh.a").output();
    asked.is_ok_and(|output| {
        let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Path::new(&path).is_absolute() && Path::new(&path).exists()
    })
}
