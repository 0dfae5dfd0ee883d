//! No lock at all: everybody enters. The canary for which every judge must report violations.
#![doc = include_str!("../../../../docs/protocols/none.md")]

use farlock_fabric::{Endpoint, Verb};

use crate::prelude::*;

/// Excludes nobody.
#[derive(Clone, Debug, Default)]
pub struct NoLock;

impl LockKind for NoLock {
    const BYTES: u64 = 8;
    const SHARES: bool = true;
    const TOKENS: TokenSource = TokenSource::Nowhere;

    fn promises(&self) -> Promises {
        Promises { excludes: false, ..Promises::EXCLUSION }
    }
}

impl<E: Endpoint> Lock<E> for NoLock {
    type Want = Mode;
    type Grant = ();

    fn opening(&self, site: &Site<'_, E>, _: Mode) -> Verb<'static> {
        Verb::Read { addr: site.lock, words: 1 }
    }

    fn opened(&self, _: &Site<'_, E>, _: Mode, _: u128) -> Option<()> {
        Some(())
    }

    async fn wait_in_line(&self, _: &Site<'_, E>, _: Mode, _: u128) -> Outcome<()> {
        Ok(())
    }

    fn closing(&self, site: &Site<'_, E>, _: Mode, (): ()) -> Option<Verb<'static>> {
        Some(Verb::Read { addr: site.lock, words: 1 })
    }

    fn closed(&self, _: &Site<'_, E>, _: Mode, (): (), _: u128) -> bool {
        true
    }

    fn trying(&self, site: &Site<'_, E>, _: Mode, _: Option<u128>) -> Option<Verb<'static>> {
        Some(Verb::Read { addr: site.lock, words: 1 })
    }

    fn tried(&self, _: &Site<'_, E>, _: Mode, _: Option<u128>, _: u128) -> Tried<()> {
        Tried::Granted(())
    }
}
