//! Locks that are wrong, kept so that tests can show how they fail and that checkers find them.
//!
//! Nothing published enables this feature. An exhibit is a published algorithm as printed, a small
//! lock of its own, or a sound lock over an endpoint with a [`Flaw`](tampered::Flaw).

/// The parts of a lock that an exhibit leaves as its field `sound` has them: all but how it waits.
macro_rules! as_sound {
    ($sound:ty) => {
        type Grant = <$sound as Lock<E>>::Grant;

        fn opening(&self, site: &Site<'_, E>, mode: Mode) -> Verb<'static> {
            self.sound.opening(site, mode)
        }

        fn opened(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Option<Self::Grant> {
            self.sound.opened(site, mode, old)
        }

        fn closing(
            &self,
            site: &Site<'_, E>,
            mode: Mode,
            grant: Self::Grant,
        ) -> Option<Verb<'static>> {
            self.sound.closing(site, mode, grant)
        }

        fn closed(&self, site: &Site<'_, E>, mode: Mode, grant: Self::Grant, old: u128) -> bool {
            self.sound.closed(site, mode, grant, old)
        }

        async fn hand_over(
            &self,
            site: &Site<'_, E>,
            mode: Mode,
            grant: Self::Grant,
            old: Option<u128>,
        ) -> crate::site::Outcome<()> {
            self.sound.hand_over(site, mode, grant, old).await
        }

        fn trying(
            &self,
            site: &Site<'_, E>,
            mode: Mode,
            seen: Option<u128>,
        ) -> Option<Verb<'static>> {
            self.sound.trying(site, mode, seen)
        }

        fn tried(
            &self,
            site: &Site<'_, E>,
            mode: Mode,
            seen: Option<u128>,
            old: u128,
        ) -> Tried<Self::Grant> {
            self.sound.tried(site, mode, seen, old)
        }
    };
}

/// A kind of lock that says of itself what the one says that it has as its field `sound`, and
/// promises exclusion alone.
macro_rules! kind_as_sound {
    ($lock:ty, $sound:ty) => {
        impl LockKind for $lock {
            const BYTES: u64 = <$sound as LockKind>::BYTES;
            const SHARES: bool = <$sound as LockKind>::SHARES;
            const TOKENS: TokenSource = <$sound as LockKind>::TOKENS;

            fn promises(&self) -> Promises {
                Promises::EXCLUSION
            }
        }
    };
}

pub mod citron_flaws;
pub mod declock_printed;
pub mod dslr_printed;
pub mod exhibits;
pub mod flaws;
pub mod gives_up;
pub mod lease_flaws;
pub mod leased_by_clock;
pub mod lost_wake_up;
pub mod printed_repairs;
pub mod riding_read;
pub mod rma_printed;
pub mod shiftlock_epoch_lost;
pub mod tampered;
pub mod torn_stamp;

pub use dslr_printed::DslrPrinted;
pub use exhibits::{EXHIBITS, Exhibit, ExhibitVisitor};
pub use gives_up::GivesUp;
pub use leased_by_clock::LeasedByClock;
pub use lost_wake_up::LostWakeUp;
pub use riding_read::RidingRead;
pub use shiftlock_epoch_lost::EpochLost;
pub use torn_stamp::TornStamp;
