//! Every scheme as one type: a store of it is compiled once for each index, not once for each pair.

use farlock_kv::Scheme;
use farlock_kv::sync::{Cider, Effect, Ended, Entered, LocalCombining, Locked, Optimistic};
use farlock_locks::record::cas::Cas;
use farlock_locks::record::mcs::Mcs;
use farlock_sim::SimEndpoint;

macro_rules! schemes {
    ($($name:ident: $scheme:ty;)+) => {
        /// One of the schemes.
        pub enum AnyScheme {
            $($name($scheme)),+
        }

        /// A turn of it.
        pub enum AnyTurn<'s> {
            $($name(<$scheme as Scheme>::Turn<'s>)),+
        }

        $(impl From<$scheme> for AnyScheme {
            fn from(scheme: $scheme) -> Self {
                Self::$name(scheme)
            }
        })+

        impl Scheme for AnyScheme {
            type Endpoint = SimEndpoint;
            type Turn<'s> = AnyTurn<'s>;

            fn endpoint(&self) -> &SimEndpoint {
                match self {
                    $(Self::$name(scheme) => scheme.endpoint()),+
                }
            }

            fn reads_before(&self) -> bool {
                match self {
                    $(Self::$name(scheme) => scheme.reads_before()),+
                }
            }

            async fn enter(&self, hash: u64, effect: Effect) -> Entered<AnyTurn<'_>> {
                match self {
                    $(Self::$name(scheme) => match scheme.enter(hash, effect).await {
                        Entered::Turn(turn) => Entered::Turn(AnyTurn::$name(turn)),
                        Entered::Combined => Entered::Combined,
                    }),+
                }
            }

            async fn missed(&self, times: u32) {
                match self {
                    $(Self::$name(scheme) => scheme.missed(times).await),+
                }
            }

            async fn missed_in<'s>(&'s self, turn: &mut Self::Turn<'s>, times: u32) {
                match (self, turn) {
                    $((Self::$name(scheme), AnyTurn::$name(turn)) => {
                        scheme.missed_in(turn, times).await;
                    })+
                    _ => panic!("a turn of another scheme"),
                }
            }

            async fn leave(&self, turn: Self::Turn<'_>, ended: Ended) {
                match (self, turn) {
                    $((Self::$name(scheme), AnyTurn::$name(turn)) => {
                        scheme.leave(turn, ended).await;
                    })+
                    _ => panic!("a turn of another scheme"),
                }
            }

            async fn settle(&self) {
                match self {
                    $(Self::$name(scheme) => scheme.settle().await),+
                }
            }
        }
    };
}

schemes! {
    Optimistic: Optimistic<SimEndpoint>;
    Cas: Locked<SimEndpoint, Cas>;
    Mcs: Locked<SimEndpoint, Mcs>;
    Cider: Cider<SimEndpoint>;
    LocalOptimistic: LocalCombining<Optimistic<SimEndpoint>>;
    LocalCider: LocalCombining<Cider<SimEndpoint>>;
}

impl AnyScheme {
    pub fn cider(&self) -> &Cider<SimEndpoint> {
        let Self::Cider(cider) = self else { panic!("it is another scheme") };
        cider
    }

    pub fn local(&self) -> &LocalCombining<Optimistic<SimEndpoint>> {
        let Self::LocalOptimistic(local) = self else { panic!("it is another scheme") };
        local
    }
}
