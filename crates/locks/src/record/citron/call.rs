//! Calls: a waiter asks newcomers to wait until it has had its turn.
//!
//! It calls at a node above its next one for those that come to that node, or at the parent of its
//! next leaf for those that want the unit for which it waits. Both set one bit of the node's word.
//! One that comes for units of a leaf and finds it set looks around for those that call for one of
//! its own.

use farlock_fabric::{Fault, Verb, WideAtomics};

use super::course::{Call, Course, Half, Stand, execute};
use super::living::{Living, living};
use super::repair::Params;
use super::tree::Node;
use super::word;
use crate::site::Site;
use crate::slot::Phase;

impl Params {
    /// Asks newcomers to wait where this request calls, but for where it has `called` before.
    pub(super) async fn call_out<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
        called: Option<Call>,
    ) -> Result<(), Fault> {
        let words = course.words_called(site.lock, course.called, called);
        let call = |addr| Verb::MaskedCas64 { addr, op: word::CALL_OUT };
        execute(site.endpoint, words.map(call)).await
    }

    /// Asks newcomers to wait once more: the word is as `seen`, since another that asked the same
    /// has been there.
    pub(super) async fn call_again<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
        seen: u64,
    ) -> Result<(), Fault> {
        site.endpoint.checkpoint(&[seen]);
        self.call_out(site, course, None).await
    }

    /// Asks nobody to wait any more. It may have its next node if it `claims` that.
    pub(super) async fn hush<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        claims: bool,
    ) -> Result<(), Fault> {
        self.hush_but_for(site, course, None).await?;
        self.hush_for_unit(site, course, claims).await
    }

    /// Asks nobody to wait any more but by this, and for its unit.
    pub(super) async fn hush_but_for<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        still: Option<Call>,
    ) -> Result<(), Fault> {
        if course.called.is_some() {
            let words = course.words_called(site.lock, course.called, still);
            let hush = |addr| Verb::MaskedCas64 { addr, op: word::HUSH };
            execute(site.endpoint, words.map(hush)).await?;
            course.called = None;
        }
        Ok(())
    }

    /// Asks newcomers that want the unit for which this request waits to wait.
    pub(super) async fn call_for_unit<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
    ) -> Result<(), Fault> {
        course.passes.begins();
        course.publish(site, Stand { phase: Phase::Waiting, claims: false, ticket: None });
        let addr = course.word_above_leaf(site.lock);
        site.endpoint.verb(Verb::MaskedCas64 { addr, op: word::CALL_OUT }).await
    }

    /// Asks them no more. Others may still call there, or call anew before those that wait have
    /// seen that nobody did: so a count changes as well, which comes back to no value. Two that
    /// stop at once may each leave the bit to the other: a newcomer takes it back.
    pub(super) async fn hush_for_unit<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        claims: bool,
    ) -> Result<(), Fault> {
        let Some(above) = course.next_parent().filter(|_| course.passes.calls) else {
            return Ok(());
        };
        course.passes.ends(course.plan.calls_after.unwrap_or(0));
        // Those that it wakes are to see that it does not call.
        let phase = if claims { Phase::Claiming } else { Phase::Waiting };
        course.publish(site, Stand { phase, claims, ticket: None });
        let living = living(site, self.plan, site.lock).await?;
        let addr = course.word_above_leaf(site.lock);
        let is_called = living.iter().any(|other| other.unit_called_below(above).is_some());
        let hush = (!is_called).then_some(Verb::MaskedCas64 { addr, op: word::HUSH });
        let tell = Verb::MaskedFaa64 { addr, op: word::COME_AND_GO };
        execute(site.endpoint, hush.into_iter().chain([tell])).await
    }

    /// Whether another waits for one of the units that this request is about to take, and asks
    /// newcomers to wait.
    pub(super) async fn is_called<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &Course,
    ) -> Result<bool, Fault> {
        let (leaf, wanted) = (course.next(), course.units_to_take());
        let living = living(site, self.plan, site.lock).await?;
        Ok(living.iter().any(|other| other.calls_for(leaf, wanted)))
    }

    /// Whether one that asks newcomers of this node to wait does so because readers are still at a
    /// node further below, which keep it out, or since a unit is held that it waits for.
    pub(super) async fn is_call_in_use<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        node: Node,
        half: Half,
    ) -> Result<bool, Fault> {
        let living = living(site, self.plan, site.lock).await?;
        let callers = living.iter().filter(|other| other.calls_at(node));
        if half == Half::Readers {
            let is_read = |below: Node| living.iter().any(|other| other.may_read(below));
            return Ok(callers.flat_map(|caller| caller.nodes_kept_from(node)).any(is_read));
        }
        for (leaf, unit) in callers.filter_map(|caller| caller.unit_called_below(node)) {
            let owned = living.iter().fold(0, |bits, other: &Living| bits | other.bits(leaf));
            site.endpoint.read64(self.plan.word(site.lock, leaf, Half::Writers)).await?;
            if owned & unit & site.endpoint.old() as u64 != 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
