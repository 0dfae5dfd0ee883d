//! Locks by name. Suites, checker, command line and laboratory know locks from here alone; the list
//! itself stands in [`record`](crate::record), beside the modules it names.

use farlock_fabric::{EndpointId, SyncedClock, WideAtomics};

use crate::lock::Lock;
pub use crate::options::{Setting, SpecError};
use crate::promise::{AnyKind, LockKind, Promises};
use crate::record::locks;

/// What is known of a lock without an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockInfo {
    /// What the command line calls it.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// The module of it.
    pub module: &'static str,
}

impl LockInfo {
    /// Its page in `docs/protocols`, without the ending.
    pub fn page(&self) -> String {
        self.module.replace('_', "-")
    }
}

/// What is done with a lock once its name has become a type.
pub trait Visitor<E: WideAtomics> {
    /// What comes of it.
    type Output;

    /// Whether the lock lies in memory that was asked for by its own size ([`LockKind::bytes`]). In
    /// a table of locks it has [`LockKind::BYTES`], and one that takes more is refused.
    fn asks_for_size(&self) -> bool {
        false
    }

    /// The lock the name stands for.
    fn visit<L: Lock<E>>(self, lock: L) -> Self::Output;
}

/// The options of a lock's name.
#[derive(Clone, Copy, Debug)]
struct SpecOptions<'a> {
    /// The lock.
    lock: &'static str,
    /// What follows its name.
    rest: &'a str,
    /// Whether it lies in memory that was asked for by its size.
    has_room: bool,
}

impl SpecOptions<'_> {
    /// This lock, with the options given.
    fn applied_to<L: LockKind>(&self, mut lock: L) -> Result<L, SpecError> {
        for part in self.rest.split(':').filter(|part| !part.is_empty()) {
            let (option, value) = part.split_once('=').unwrap_or((part, ""));
            let Some(setting) = lock.option(option) else {
                return Err(self.refuse(option, "this lock has no such option"));
            };
            if !(setting.set)(value) {
                return Err(self.refuse(option, &setting.takes));
            }
        }
        if let Some((option, reason)) = lock.conflict() {
            return Err(self.refuse(option, reason));
        }
        if !self.has_room && lock.bytes() > L::BYTES {
            return Err(self.refuse(self.rest, "it takes more than a table of locks has for one"));
        }
        Ok(lock)
    }

    /// The error for an option that is not understood.
    fn refuse(&self, option: &str, reason: &str) -> SpecError {
        let (option, reason) = (option.to_owned(), reason.to_owned());
        SpecError::Option { lock: self.lock, option, reason }
    }
}

/// This lock with these options (`option=value:option`), where its kind is known by its type.
///
/// # Errors
/// It has no such option, or the option does not take that.
pub fn with_options<L: LockKind>(name: &'static str, lock: L, rest: &str) -> Result<L, SpecError> {
    SpecOptions { lock: name, rest, has_room: true }.applied_to(lock)
}

macro_rules! define {
    ($(
        $name:literal, $module:ident, $make:expr $(, or $part:ident::$other:ident)?,
            $summary:literal;
    )+) => {
        /// Every record lock, in the order of lists and tables.
        pub const RECORD_LOCKS: &[LockInfo] = &[$(
            LockInfo { name: $name, summary: $summary, module: stringify!($module) }
        ),+];

        /// Makes the lock that `spec` names (`name` or `name:option=value`) and visits it.
        pub fn visit<E: WideAtomics + SyncedClock, V: Visitor<E>>(
            spec: &str,
            visitor: V,
        ) -> Result<V::Output, SpecError> {
            let (name, rest) = spec.split_once(':').unwrap_or((spec, ""));
            let has_room = visitor.asks_for_size();
            match name {
                $($name => {
                    let options = SpecOptions { lock: $name, rest, has_room };
                    $(let other = crate::record::$module::$part::$other::default();
                    let other = options.applied_to(other)?;
                    if other.is_needed() {
                        return Ok(visitor.visit(other));
                    })?
                    Ok(visitor.visit(options.applied_to({
                        use crate::record::$module::*;
                        $make
                    })?))
                })+
                _ => Err(unknown(name)),
            }
        }

        /// The kind of lock that `spec` names, without an endpoint.
        pub fn kind(spec: &str) -> Result<Box<dyn AnyKind>, SpecError> {
            let (name, rest) = spec.split_once(':').unwrap_or((spec, ""));
            match name {
                $($name => {
                    let options = SpecOptions { lock: $name, rest, has_room: true };
                    $(let other = crate::record::$module::$part::$other::default();
                    let other = options.applied_to(other)?;
                    if other.is_needed() {
                        return Ok(Box::new(other));
                    })?
                    Ok(Box::new(options.applied_to({
                        use crate::record::$module::*;
                        $make
                    })?))
                })+
                _ => Err(unknown(name)),
            }
        }
    };
}

locks!(define);

/// This lock's name with the server that its clients are to ask, if it has one.
pub fn served_by(spec: &str, server: Option<EndpointId>) -> String {
    match server {
        Some(server) => format!("{spec}:server={}", server.bits()),
        None => spec.to_owned(),
    }
}

/// Bytes in which every lock of the list has room.
pub fn bytes_max() -> u64 {
    let bytes = |lock: &LockInfo| kind(lock.name).map_or(0, |kind| kind.bytes());
    RECORD_LOCKS.iter().map(bytes).max().unwrap_or(0)
}

/// What the lock that `spec` names promises.
pub fn promises(spec: &str) -> Result<Promises, SpecError> {
    Ok(kind(spec)?.promises())
}

fn unknown(name: &str) -> SpecError {
    let known: Vec<&str> = RECORD_LOCKS.iter().map(|lock| lock.name).collect();
    SpecError::Unknown { name: name.to_owned(), known: known.join(", ") }
}
