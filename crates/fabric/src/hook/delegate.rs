//! The trait of hooks: every method goes on to the endpoint inside unless the hook overrides it.

use std::task::{Context, Poll};

use crate::addr::{Addr, EndpointId, Slot};
use crate::endpoint::{
    Endpoint, Envelope, HoldBack, LinkDone, MaskedAtomics, Nanos, Park, Posted, Revoke,
    SyncedClock, Ticket, Wait, WaitState, WideAtomics, Woken,
};
use crate::error::Fault;
use crate::verb::{Link, Verb};

/// Makes the trait [`Hook`], and every hook an endpoint: each of these methods goes on to the
/// endpoint inside unless the hook overrides it.
macro_rules! delegated {
    ($($(#[$attribute:meta])*
       fn $name:ident(&self $(, $argument:ident: $kind:ty)*) $(-> $result:ty)?;)+) => {
        /// An endpoint around another one. Every method but [`Hook::inner`] goes on to the endpoint
        /// inside unless it is overridden; each stands for the method of [`Endpoint`] with its
        /// name.
        ///
        /// Import this trait where a hook is written, [`Endpoint`] where one is used: their methods
        /// share their names.
        #[expect(missing_docs, reason = "each method is documented under its name in Endpoint")]
        pub trait Hook: Sized + 'static {
            /// The kind of endpoint inside.
            type Inner: Endpoint;

            const COMPLETES_IN_POST: bool = <Self::Inner as Endpoint>::COMPLETES_IN_POST;

            /// The endpoint inside.
            fn inner(&self) -> &Self::Inner;

            /// A hook that overrides [`Hook::post`] sees what is posted so too.
            #[inline(always)]
            fn post_aside(&self, verb: Verb<'_>) -> Posted {
                Hook::post(self, verb)
            }

            /// The same.
            #[inline(always)]
            fn post_patiently(&self, verb: Verb<'_>, hold: HoldBack) -> Posted {
                let _ = hold;
                Hook::post(self, verb)
            }

            $(#[inline(always)]
            $(#[$attribute])*
            fn $name(&self $(, $argument: $kind)*) $(-> $result)? {
                self.inner().$name($($argument),*)
            })+
        }

        impl<H: Hook> Endpoint for H {
            const COMPLETES_IN_POST: bool = <H as Hook>::COMPLETES_IN_POST;
            const WATCHES_MEMORY: bool = H::Inner::WATCHES_MEMORY;
            const LOOKS_AROUND_CHEAPLY: bool = H::Inner::LOOKS_AROUND_CHEAPLY;
            const SHARES_PROCESSORS: bool = H::Inner::SHARES_PROCESSORS;
            const KEEPS_ORDER: bool = H::Inner::KEEPS_ORDER;

            #[inline(always)]
            fn post_aside(&self, verb: Verb<'_>) -> Posted {
                Hook::post_aside(self, verb)
            }

            #[inline(always)]
            fn post_patiently(&self, verb: Verb<'_>, hold: HoldBack) -> Posted {
                Hook::post_patiently(self, verb, hold)
            }

            $(#[inline(always)]
            $(#[$attribute])*
            fn $name(&self $(, $argument: $kind)*) $(-> $result)? {
                Hook::$name(self $(, $argument)*)
            })+
        }
    };
}

delegated! {
    fn id(&self) -> EndpointId;
    fn slots(&self) -> u8;
    fn post(&self, verb: Verb<'_>) -> Posted;
    fn holds_back(&self) -> bool;
    fn post_chain(&self, chain: &[Link<'_>]) -> Posted;
    fn poll_posted(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<(), Fault>>;
    fn abandon(&self, ticket: Ticket);
    fn old(&self) -> u128;
    fn link(&self, index: usize) -> LinkDone;
    fn copy_read(&self, index: usize, into: &mut [u64]) -> usize;
    fn receive(&self, slot: Slot) -> Option<Envelope>;
    fn has_unread(&self, slot: Slot) -> bool;
    fn poll_wait(
        &self, wait: &Wait<'_>, state: &mut WaitState, cx: &mut Context<'_>
    ) -> Poll<Woken>;
    fn end_wait(&self, state: &mut WaitState);
    fn now(&self) -> Nanos;
    fn random(&self) -> u64;
    fn publish(&self, slot: Slot, word: usize, value: u64);
    fn show(&self);
    fn record(&self, index: u16, slot: Slot) -> Addr;
    fn endpoints(&self) -> u16;
    fn occupied_from(&self, index: u16) -> Option<u16>;
    fn occupant(&self, index: u16) -> Option<EndpointId>;
    fn is_alive(&self, id: EndpointId) -> bool;
    #[track_caller]
    fn checkpoint(&self, survivors: &[u64]);
}

impl<H: Hook<Inner: MaskedAtomics>> MaskedAtomics for H {}

impl<H: Hook<Inner: WideAtomics>> WideAtomics for H {}

impl<H: Hook<Inner: Revoke>> Revoke for H {
    #[inline(always)]
    fn revoke(&self, peer: EndpointId) -> Result<(), Fault> {
        self.inner().revoke(peer)
    }
}

impl<H: Hook<Inner: SyncedClock>> SyncedClock for H {
    #[inline(always)]
    fn clock_error(&self) -> Nanos {
        self.inner().clock_error()
    }
}

impl<H: Hook<Inner: Park>> Park for H {
    #[inline(always)]
    fn park(&self) {
        self.inner().park();
    }
}
