//! Locks by name. Suites, checker, command line and laboratory know locks from here alone; the list
//! itself stands in [`record`](crate::record), beside the modules it names.

use farlock_fabric::{EndpointId, Patience, SyncedClock, WideAtomics};
use thiserror::Error;

use crate::lock::RecordLock;
use crate::promise::{AnyKind, Promises};
use crate::record::record_locks;

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

/// Why a lock's name was not understood.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SpecError {
    /// There is no lock of this name.
    #[error("there is no lock named '{name}'; there are: {known}")]
    Unknown {
        /// The name given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The lock has no such option, or cannot take this value.
    #[error("the option '{option}' of '{lock}' is not understood: {reason}")]
    Option {
        /// The lock.
        lock: &'static str,
        /// The option as given.
        option: String,
        /// What is expected.
        reason: &'static str,
    },
}

/// What is done with a lock once its name has become a type.
pub trait Visitor<E: WideAtomics> {
    /// What comes of it.
    type Output;

    /// The lock the name stands for.
    fn visit<L: RecordLock<E>>(self, lock: L) -> Self::Output;
}

/// The options of a lock's name: `name:option=value:option=value`.
#[derive(Clone, Copy, Debug)]
pub struct SpecOptions<'a> {
    lock: &'static str,
    rest: &'a str,
}

impl<'a> SpecOptions<'a> {
    /// Each option with its value; an option without `=` has the empty value.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.rest
            .split(':')
            .filter(|part| !part.is_empty())
            .map(|part| part.split_once('=').unwrap_or((part, "")))
    }

    /// The error for an option that is not understood.
    pub fn refuse(&self, option: &str, reason: &'static str) -> SpecError {
        SpecError::Option { lock: self.lock, option: option.to_owned(), reason }
    }

    /// Sets what `spins=COUNT` or `yields=COUNT` says.
    pub fn patience(
        &self,
        patience: &mut Patience,
        option: &str,
        value: &str,
    ) -> Result<(), SpecError> {
        let target = match option {
            "spins" => &mut patience.spins,
            "yields" => &mut patience.yields,
            _ => return Err(self.refuse(option, "this lock has no such option")),
        };
        *target = value.parse().map_err(|_| self.refuse(option, "a number"))?;
        Ok(())
    }

    /// The lock, if there are no options.
    pub fn none<L>(&self, lock: L) -> Result<L, SpecError> {
        match self.iter().next() {
            None => Ok(lock),
            Some((option, _)) => Err(self.refuse(option, "this lock has no options")),
        }
    }
}

macro_rules! define {
    ($(
        $name:literal, $module:ident::$lock:ident $(or $other:ident)?, $summary:literal, $make:expr;
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
            match name {
                $($name => {
                    let options = SpecOptions { lock: $name, rest };
                    $(if let Some(lock) = crate::record::$module::$other::from_options(options)? {
                        return Ok(visitor.visit(lock));
                    })?
                    use crate::record::$module::$lock;
                    let make: fn(SpecOptions<'_>) -> Result<$lock, SpecError> = $make;
                    Ok(visitor.visit(make(options)?))
                })+
                _ => Err(unknown(name)),
            }
        }

        /// The kind of lock that `spec` names, without an endpoint.
        pub fn kind(spec: &str) -> Result<Box<dyn AnyKind>, SpecError> {
            let (name, rest) = spec.split_once(':').unwrap_or((spec, ""));
            match name {
                $($name => {
                    let options = SpecOptions { lock: $name, rest };
                    $(if let Some(lock) = crate::record::$module::$other::from_options(options)? {
                        return Ok(Box::new(lock));
                    })?
                    use crate::record::$module::$lock;
                    let make: fn(SpecOptions<'_>) -> Result<$lock, SpecError> = $make;
                    Ok(Box::new(make(options)?))
                })+
                _ => Err(unknown(name)),
            }
        }
    };
}

record_locks!(define);

/// This lock's name with the server that its clients are to ask, if it has one.
pub fn served_by(spec: &str, server: Option<EndpointId>) -> String {
    match server {
        Some(server) => format!("{spec}:server={}", server.bits()),
        None => spec.to_owned(),
    }
}

/// What the lock that `spec` names promises.
pub fn promises(spec: &str) -> Result<Promises, SpecError> {
    Ok(kind(spec)?.promises())
}

fn unknown(name: &str) -> SpecError {
    let known: Vec<&str> = RECORD_LOCKS.iter().map(|lock| lock.name).collect();
    SpecError::Unknown { name: name.to_owned(), known: known.join(", ") }
}
