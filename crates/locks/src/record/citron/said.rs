//! What the record of a request says of it.

use farlock_fabric::{Endpoint, Publication};

use super::course::{Course, Stand};
use super::record::{NextWord, ReachWord, units_word};
use crate::site::Site;
use crate::slot::{self, SlotWord};

impl Course {
    /// The word of a record that names these units.
    pub(super) fn units_word(&self) -> u64 {
        self.plan.said(units_word(&self.units(), self.is_part)).0
    }

    /// Publishes which units are wanted. The record must say that it has no node.
    pub(super) fn publish_units<E: Endpoint>(&self, site: &Site<'_, E>) {
        site.endpoint.publish(site.slot(), slot::PART, self.units_word());
    }

    /// Publishes where the request stands.
    pub(super) fn publish<E: Endpoint>(&self, site: &Site<'_, E>, stand: Stand) {
        let said = self.says(site, stand, self.asks);
        site.endpoint.publish(said.slot, said.word, said.value);
    }

    /// What its record says where it stands there, and `asks` for its next node or does not.
    pub(super) fn says<E: Endpoint>(
        &self,
        site: &Site<'_, E>,
        stand: Stand,
        asks: bool,
    ) -> Publication {
        let reach = self.reach().with(ReachWord::CLAIMS, stand.claims.into());
        let reach = reach.with(ReachWord::ASKS, asks.into());
        let ticket = stand.ticket.map_or(0, |ticket| u64::from(ticket) + 1);
        let next = NextWord::new()
            .with(NextWord::TICKET, ticket)
            .with(NextWord::PART, self.part.into())
            .with(NextWord::SINGLE, self.one_by_one.into())
            .with(NextWord::LEAVES_OF, self.leaves_of.into())
            .with(NextWord::LEAVES, (stand.claims && self.leaves != 0).into());
        let state = SlotWord::of(stand.phase, self.mode, reach.0, next.0 as u32);
        Publication { slot: site.slot(), word: slot::STATE, value: state.0 }
    }

    /// What its record says of the nodes that it has.
    pub(super) fn reach(&self) -> ReachWord {
        ReachWord::new()
            .with(ReachWord::HAS, self.has as u64)
            .with(ReachWord::CLEANS, self.cleans.into())
            .with(ReachWord::TRIES, self.tries.is_some().into())
            .with(ReachWord::CALLS, self.called.is_some().into())
            .with(ReachWord::CALLS_UNIT, self.passes.calls.into())
            .with(ReachWord::BOTH, self.both.into())
            .with(ReachWord::BEHIND, self.is_behind().into())
    }
}
