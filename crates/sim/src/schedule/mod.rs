//! Schedules: who goes next, in one run after another.
//!
//! A [`Schedule`] is an [`Oracle`](crate::Oracle) that outlives a world and decides many runs:
//! at random
//! ([`Random`]), with few preemptions at random places ([`Pct`]), all of them ([`Exhaustive`]), or
//! one that was stored ([`Replay`]). [`Consistent`] tests whether states are told apart. A
//! [`Director`] lends it to worlds, one at a time, and writes
//! down a [`Trail`]: the few answers that were not the obvious ones. A trail is a short string; it
//! replays the run, and a shorter one is a simpler run.
//!
//! Schedules are for [`Mode::Explored`](crate::Mode): a run is the order of its events.

mod consistent;
mod director;
mod exhaustive;
mod fork;
mod oracle;
mod pct;
mod random;
mod replay;
mod trail;

pub use consistent::Consistent;
pub use director::Director;
pub use exhaustive::Exhaustive;
pub use fork::Fork;
pub use oracle::Schedule;
pub use pct::Pct;
pub use random::Random;
pub use replay::Replay;
pub use trail::{Trail, TrailError};
