//! Options of a lock's name: `name:option=value:option`. Each lock says which it has, by its
//! [`LockKind::option`](crate::LockKind::option); what is common to all stands here.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use farlock_fabric::{EndpointId, Nanos, Patience};
use thiserror::Error;

/// Why a lock's name was not understood.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
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
        reason: String,
    },
}

/// An option: what it takes, and where that goes.
pub struct Setting<'l> {
    pub(crate) takes: String,
    pub(crate) set: Box<dyn FnOnce(&str) -> bool + 'l>,
}

impl<'l> Setting<'l> {
    fn new(takes: String, set: impl FnOnce(&str) -> bool + 'l) -> Self {
        Self { takes, set: Box::new(set) }
    }

    /// A number in this range.
    pub fn count<T>(target: &'l mut T, range: RangeInclusive<T>) -> Self
    where
        T: FromStr + PartialOrd + Display + 'l,
    {
        let takes = format!("a number from {} to {}", range.start(), range.end());
        Self::new(takes, move |text| set(target, text, |count| range.contains(count)))
    }

    /// A power of two in this range.
    pub fn power_of_two(target: &'l mut u32, range: RangeInclusive<u32>) -> Self {
        let takes = format!("a power of two from {} to {}", range.start(), range.end());
        Self::new(takes, move |text| {
            set(target, text, |count| range.contains(count) && count.is_power_of_two())
        })
    }

    /// Nanoseconds, at least so many.
    pub fn nanos(target: &'l mut Nanos, least: Nanos) -> Self {
        let takes = format!("nanoseconds, at least {least}");
        Self::new(takes, move |text| set(target, text, |nanos| *nanos >= least))
    }

    /// So many units that a lock is to have, as it takes them.
    pub fn space(take: impl FnOnce(u64) -> bool + 'l) -> Self {
        let takes = "a number of units that it can have".to_owned();
        Self::new(takes, move |text| text.parse().is_ok_and(|units| units > 0 && take(units)))
    }

    /// One of these, by its name.
    pub fn choice<T: Copy>(target: &'l mut T, choices: &'static [(&'static str, T)]) -> Self {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        Self::new(names.join(" or "), move |text| {
            let chosen = choices.iter().find(|(name, _)| *name == text);
            chosen.inspect(|(_, choice)| *target = *choice).is_some()
        })
    }

    /// True where the option is given, which takes no value.
    pub fn flag(target: &'l mut bool) -> Self {
        Self::new("no value".to_owned(), |text| {
            *target = true;
            text.is_empty()
        })
    }

    /// `yes` or `no`.
    pub fn yes_or_no(target: &'l mut bool) -> Self {
        Self::new("yes or no".to_owned(), |text| {
            *target = text == "yes";
            matches!(text, "yes" | "no")
        })
    }

    /// The bits of an endpoint.
    pub fn endpoint(target: &'l mut EndpointId) -> Self {
        Self::new("a number".to_owned(), |text| {
            let Ok(bits) = text.parse() else { return false };
            *target = EndpointId::from_bits(bits);
            true
        })
    }

    /// `spins=COUNT` or `yields=COUNT`: how a waiter spends its time before it sleeps.
    pub fn patience(patience: &'l mut Patience, option: &str) -> Option<Self> {
        match option {
            "spins" => Some(Self::count(&mut patience.spins, 0..=u32::MAX)),
            "yields" => Some(Self::count(&mut patience.yields, 0..=u32::MAX)),
            _ => None,
        }
    }
}

fn set<T: FromStr>(target: &mut T, text: &str, takes: impl FnOnce(&T) -> bool) -> bool {
    let Some(value) = text.parse().ok().filter(takes) else { return false };
    *target = value;
    true
}
