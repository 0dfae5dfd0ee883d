//! What every lock is written with.

pub(crate) use crate::event::Event;
pub(crate) use crate::lock::{Lock, Tried};
pub(crate) use crate::options::Setting;
pub(crate) use crate::promise::{Granted, LockKind, Order, Promises, Proof, TokenSource};
pub(crate) use crate::site::{Outcome, Protocol, Site};
pub(crate) use crate::slot::Phase;
pub(crate) use crate::want::Mode;
