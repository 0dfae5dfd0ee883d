//! [`RangeLocked`]: a slice whose parts are handed out to threads, each exclusively or shared.
//!
//! The one module of the core with unsafe code: it turns the right to a range of positions into a
//! reference to the elements there. Assumes that the list lets no exclusive range overlap another
//! held one. It never hands out an element without the range that covers it.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Bound, Deref, DerefMut, RangeBounds};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use crate::guard::deadline_after;
use crate::list::NO_DEADLINE;
use crate::{OfTask, OfThread, Preference, Range, RangeRwLock, RangeRwLockGuard};

/// Why a part of a slice cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SliceError {
    /// The bounds leave no element.
    #[error("the bounds {start}..{end} leave no element")]
    Empty {
        /// The first element asked for.
        start: usize,
        /// The element after the last.
        end: usize,
    },
    /// The bounds end behind the last element.
    #[error("the bounds end at {end}, but there are {len} elements")]
    TooLong {
        /// The element after the last asked for.
        end: usize,
        /// How many there are.
        len: usize,
    },
}

/// What a range-locked thing is made of. Sealed: slices.
pub trait Sequence: sealed::Sealed {
    /// The type of an element.
    type Element;
}

mod sealed {
    pub trait Sealed {}
    impl<T> Sealed for [T] {}
}

impl<T> Sequence for [T] {
    type Element = T;
}

/// A slice of which threads lock parts: `&mut [T]` to one part beside `&[T]` to another.
///
/// ```
/// use farlock_local::RangeLocked;
///
/// let pixels = RangeLocked::<[u8]>::from(vec![0; 1000]);
/// std::thread::scope(|scope| {
///     for tile in 0..10 {
///         let pixels = &pixels;
///         scope.spawn(move || {
///             let mut part = pixels.write(tile * 100..(tile + 1) * 100)?;
///             part.fill(tile as u8);
///             Ok::<(), farlock_local::SliceError>(())
///         });
///     }
/// });
/// assert_eq!(pixels.read(250..251)?[0], 2);
/// # Ok::<(), farlock_local::SliceError>(())
/// ```
pub struct RangeLocked<S: Sequence + ?Sized> {
    lock: RangeRwLock,
    cells: Box<[UnsafeCell<S::Element>]>,
}

// SAFETY: a thread reaches an element by reference only through a guard whose range covers it:
// exclusively, which needs the element to be `Send`, or shared with others, which needs it `Sync`.
unsafe impl<T: Send + Sync> Sync for RangeLocked<[T]> {}

// The guards keep pointers, not references: a reference must not be reachable any more when the
// range is released, and one in a value that is being dropped still counts as reachable.

/// A part of a slice, to read.
#[must_use = "a guard that is dropped at once protects nothing"]
pub struct PartRef<'a, T, H = OfThread> {
    elements: NonNull<[T]>,
    _lent: PhantomData<&'a [T]>,
    _held: RangeRwLockGuard<'a, H>,
}

/// A part of a slice, to write.
#[must_use = "a guard that is dropped at once protects nothing"]
pub struct PartMut<'a, T, H = OfThread> {
    elements: NonNull<[T]>,
    _lent: PhantomData<&'a mut [T]>,
    _held: RangeRwLockGuard<'a, H>,
}

// SAFETY: the holder of the part has `&[T]`, which may be sent if `T` is `Sync`; a task's range may
// be released by any thread.
unsafe impl<T: Sync> Send for PartRef<'_, T, OfTask> {}
// SAFETY: the holder of the part has `&mut [T]`, which may be sent if `T` is `Send`; a task's range
// may be released by any thread.
unsafe impl<T: Send> Send for PartMut<'_, T, OfTask> {}
// SAFETY: a shared part gives nothing but `&[T]`.
unsafe impl<T: Sync, H> Sync for PartRef<'_, T, H> {}
// SAFETY: as above.
unsafe impl<T: Sync, H> Sync for PartMut<'_, T, H> {}

impl<T> From<Vec<T>> for RangeLocked<[T]> {
    fn from(elements: Vec<T>) -> Self {
        Self {
            lock: RangeRwLock::new(Preference::Readers),
            cells: elements.into_iter().map(UnsafeCell::new).collect(),
        }
    }
}

impl<T> RangeLocked<[T]> {
    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Waits until no holder writes in this part, then lends it to read.
    ///
    /// # Panics
    ///
    /// In debug builds, if this thread itself writes in an overlapping part; see
    /// [`RangeRwLock::read`].
    ///
    /// # Errors
    ///
    /// [`SliceError`] if the bounds are empty or leave the slice.
    pub fn read(&self, bounds: impl RangeBounds<usize>) -> Result<PartRef<'_, T>, SliceError> {
        let held = self.lock.wait(self.range(bounds)?, true, None);
        Ok(self.part_ref(held.expect(NO_DEADLINE)))
    }

    /// Waits until no holder reads or writes in this part, then lends it to write.
    ///
    /// # Panics
    ///
    /// In debug builds, if this thread itself has an overlapping part; see [`RangeRwLock::write`].
    ///
    /// # Errors
    ///
    /// [`SliceError`] if the bounds are empty or leave the slice.
    pub fn write(&self, bounds: impl RangeBounds<usize>) -> Result<PartMut<'_, T>, SliceError> {
        let held = self.lock.wait(self.range(bounds)?, false, None);
        Ok(self.part_mut(held.expect(NO_DEADLINE)))
    }

    /// Lends this part to read if no holder is in the way now.
    ///
    /// # Errors
    ///
    /// [`SliceError`] if the bounds are empty or leave the slice.
    pub fn try_read(
        &self,
        bounds: impl RangeBounds<usize>,
    ) -> Result<Option<PartRef<'_, T>>, SliceError> {
        let held = self.lock.attempt(self.range(bounds)?, true);
        Ok(held.map(|held| self.part_ref(held)))
    }

    /// Lends this part to write if no holder is in the way now.
    ///
    /// # Errors
    ///
    /// [`SliceError`] if the bounds are empty or leave the slice.
    pub fn try_write(
        &self,
        bounds: impl RangeBounds<usize>,
    ) -> Result<Option<PartMut<'_, T>>, SliceError> {
        let held = self.lock.attempt(self.range(bounds)?, false);
        Ok(held.map(|held| self.part_mut(held)))
    }

    /// Waits for at most `patience` to read this part.
    ///
    /// # Errors
    ///
    /// [`SliceError`] if the bounds are empty or leave the slice.
    pub fn try_read_for(
        &self,
        bounds: impl RangeBounds<usize>,
        patience: Duration,
    ) -> Result<Option<PartRef<'_, T>>, SliceError> {
        let held = self.lock.wait(self.range(bounds)?, true, deadline_after(patience));
        Ok(held.map(|held| self.part_ref(held)))
    }

    /// Waits for at most `patience` to write this part.
    ///
    /// # Errors
    ///
    /// [`SliceError`] if the bounds are empty or leave the slice.
    pub fn try_write_for(
        &self,
        bounds: impl RangeBounds<usize>,
        patience: Duration,
    ) -> Result<Option<PartMut<'_, T>>, SliceError> {
        let held = self.lock.wait(self.range(bounds)?, false, deadline_after(patience));
        Ok(held.map(|held| self.part_mut(held)))
    }

    /// Waits until `deadline` to read this part.
    ///
    /// # Errors
    ///
    /// [`SliceError`] if the bounds are empty or leave the slice.
    pub fn try_read_until(
        &self,
        bounds: impl RangeBounds<usize>,
        deadline: Instant,
    ) -> Result<Option<PartRef<'_, T>>, SliceError> {
        let held = self.lock.wait(self.range(bounds)?, true, Some(deadline));
        Ok(held.map(|held| self.part_ref(held)))
    }

    /// Waits until `deadline` to write this part.
    ///
    /// # Errors
    ///
    /// [`SliceError`] if the bounds are empty or leave the slice.
    pub fn try_write_until(
        &self,
        bounds: impl RangeBounds<usize>,
        deadline: Instant,
    ) -> Result<Option<PartMut<'_, T>>, SliceError> {
        let held = self.lock.wait(self.range(bounds)?, false, Some(deadline));
        Ok(held.map(|held| self.part_mut(held)))
    }

    /// Waits to read this part without blocking a thread. Dropping the future gives up.
    ///
    /// # Errors
    ///
    /// [`SliceError`] if the bounds are empty or leave the slice.
    pub async fn read_async(
        &self,
        bounds: impl RangeBounds<usize>,
    ) -> Result<PartRef<'_, T, OfTask>, SliceError> {
        let range = self.range(bounds)?;
        Ok(self.part_ref(self.lock.read_async(range).await))
    }

    /// Waits to write this part without blocking a thread. Dropping the future gives up.
    ///
    /// # Errors
    ///
    /// [`SliceError`] if the bounds are empty or leave the slice.
    pub async fn write_async(
        &self,
        bounds: impl RangeBounds<usize>,
    ) -> Result<PartMut<'_, T, OfTask>, SliceError> {
        let range = self.range(bounds)?;
        Ok(self.part_mut(self.lock.write_async(range).await))
    }

    /// All elements, without locking: the borrow says that no other thread is here.
    pub fn get_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.cells.iter_mut().map(UnsafeCell::get_mut)
    }

    /// The elements.
    #[must_use]
    pub fn into_inner(self) -> Vec<T> {
        self.cells.into_iter().map(UnsafeCell::into_inner).collect()
    }

    fn range(&self, bounds: impl RangeBounds<usize>) -> Result<Range, SliceError> {
        let start = match bounds.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match bounds.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len(),
        };
        if end > self.len() {
            return Err(SliceError::TooLong { end, len: self.len() });
        }
        Range::new(start as u64, end as u64).map_err(|_| SliceError::Empty { start, end })
    }

    /// The elements of a range, as their cells allow to write them.
    fn elements(&self, range: Range) -> NonNull<[T]> {
        let cells = &self.cells[range.start() as usize..=range.last() as usize];
        let first = UnsafeCell::raw_get(cells.as_ptr());
        let first = NonNull::new(first).expect("a slice does not lie at address 0");
        NonNull::slice_from_raw_parts(first, cells.len())
    }

    fn part_ref<'a, H>(&'a self, held: RangeRwLockGuard<'a, H>) -> PartRef<'a, T, H> {
        PartRef { elements: self.elements(held.range()), _lent: PhantomData, _held: held }
    }

    fn part_mut<'a, H>(&'a self, held: RangeRwLockGuard<'a, H>) -> PartMut<'a, T, H> {
        PartMut { elements: self.elements(held.range()), _lent: PhantomData, _held: held }
    }
}

impl<T, H> Deref for PartRef<'_, T, H> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the pointer covers live cells of one slice, laid out as their elements, and while
        // the part lives it holds a range over them: no thread holds an exclusive one.
        unsafe { self.elements.as_ref() }
    }
}

impl<T, H> Deref for PartMut<'_, T, H> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: as for `PartRef`; this range is exclusive.
        unsafe { self.elements.as_ref() }
    }
}

impl<T, H> DerefMut for PartMut<'_, T, H> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `PartRef`, and the range is exclusive: no other part covers any of these
        // elements, and this part is borrowed mutably.
        unsafe { self.elements.as_mut() }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn parts_that_do_not_overlap_are_lent_at_once() {
        let slice = RangeLocked::from(vec![1, 2, 3, 4]);
        let mut left = slice.write(..2).unwrap();
        let right = slice.read(2..).unwrap();
        left[0] = right[1];
        assert!(slice.try_read(1..3).unwrap().is_none());
        assert!(slice.try_read(3..).unwrap().is_some());
        drop((left, right));
        assert_eq!(slice.into_inner(), [4, 2, 3, 4]);
    }

    #[test]
    fn bounds_outside_or_without_elements_are_errors() {
        let slice = RangeLocked::from(vec![0_u8; 4]);
        assert_eq!(slice.read(2..5).err(), Some(SliceError::TooLong { end: 5, len: 4 }));
        assert_eq!(slice.read(2..2).err(), Some(SliceError::Empty { start: 2, end: 2 }));
        assert!(RangeLocked::from(Vec::<u8>::new()).read(..).is_err());
    }

    #[test]
    fn a_wait_for_a_part_ends_with_its_patience_and_leaves_nothing() {
        let slice = RangeLocked::from(vec![0_u8; 4]);
        let first = slice.write(..2).unwrap();
        let soon = Duration::from_millis(5);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(slice.try_read_for(1.., soon).unwrap().is_none());
                assert!(slice.try_write_for(1.., soon).unwrap().is_none());
                assert!(slice.try_read_until(..1, Instant::now() + soon).unwrap().is_none());
                assert!(slice.try_write_until(2.., Instant::now() + soon).unwrap().is_some());
                assert!(slice.try_read_for(2..9, soon).is_err());
            });
        });
        drop(first);
        assert!(slice.try_write_for(.., Duration::MAX).unwrap().is_some());
    }

    #[test]
    fn a_task_takes_its_part_to_another_thread() {
        fn moves<T: Send>(value: T) -> T {
            value
        }
        let slice = RangeLocked::from(vec![0_u8; 4]);
        let context = &mut Context::from_waker(Waker::noop());
        let future = pin!(moves(slice.write_async(..2)));
        let Poll::Ready(Ok(mut part)) = future.poll(context) else { panic!("it is free") };
        assert!(pin!(slice.read_async(1..)).poll(context).is_pending());
        std::thread::scope(|scope| {
            scope.spawn(move || part[1] = 7);
        });
        let future = pin!(moves(slice.read_async(1..)));
        let Poll::Ready(Ok(part)) = future.poll(context) else { panic!("it is free again") };
        assert_eq!(moves(part)[0], 7);
        assert!(pin!(slice.read_async(9..)).poll(context).is_ready());
    }

    #[test]
    fn threads_count_in_their_own_part_and_in_a_common_one() {
        let slice = RangeLocked::from(vec![0_u64; 5]);
        std::thread::scope(|scope| {
            for own in 0..4 {
                let slice = &slice;
                scope.spawn(move || {
                    for _ in 0..5000 {
                        slice.write(own..=own).unwrap()[0] += 1;
                        slice.write(4..).unwrap()[0] += 1;
                    }
                });
            }
        });
        assert_eq!(slice.into_inner(), [5000, 5000, 5000, 5000, 20_000]);
    }
}
