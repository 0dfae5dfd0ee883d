//! The file system in memory that processes share: one memory node, which has all of it.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use farlock_check::client::block_on;
use farlock_fabric::Addr;
use farlock_locks::registry::{self, SpecError};

use super::client::FsClient;
use super::course::FsCourse;
use super::judge::lost_writes;
use super::layout::{Layout, WORD};
use crate::drive::{Failure, Laps, Tally};
use crate::judge::Judge;
use crate::subject::Hooked;

/// Words that a file system takes under locks of this kind; none if the name is not understood.
pub(crate) fn words(subject: &str, course: &FsCourse) -> usize {
    let shape = registry::kind(subject).map(|kind| course.shape(kind.bytes()));
    shape.map_or(0, |shape| ((shape.metadata_bytes() + shape.data_bytes(1)) / WORD) as usize)
}

/// The files of a trial whose memory begins there.
fn layout(subject: &str, course: &FsCourse, base: Addr) -> Result<Layout, SpecError> {
    let shape = course.shape(registry::kind(subject)?.bytes());
    Ok(Layout::new(shape, base, vec![base.plus(shape.metadata_bytes())]))
}

/// A client in this process: it is to be driven as soon as all are ready.
pub(crate) struct FsPlayer(FsClient<Hooked>);

impl FsPlayer {
    /// The client with this number, of files whose memory begins there.
    pub(crate) fn new(
        subject: &str,
        endpoint: Hooked,
        base: Addr,
        course: &FsCourse,
        number: usize,
    ) -> Result<Self, SpecError> {
        let layout = Rc::new(layout(subject, course, base)?);
        FsClient::new(subject, endpoint, layout, *course, number).map(Self)
    }

    /// What it does again and again.
    pub(crate) fn laps(&self) -> &dyn Laps {
        &self.0
    }

    /// Runs a future of it to its end on this thread.
    pub(crate) fn block_on(
        &self,
        driven: impl Future<Output = Result<Tally, Failure>>,
    ) -> Result<Tally, Failure> {
        block_on(self.0.locks(), driven)
    }
}

/// Records that are not what was written to them last, when all clients have ended: the files begin
/// with the first of these words.
pub(crate) fn lost(
    subject: &str,
    course: &FsCourse,
    judge: Judge<'_>,
    files: &[AtomicU64],
) -> Result<u64, SpecError> {
    let layout = layout(subject, course, Addr::from_bits(0))?;
    let peek = |addr: Addr| files[(addr.offset() / WORD) as usize].load(Ordering::Relaxed);
    Ok(lost_writes(course, &layout, judge, peek))
}
