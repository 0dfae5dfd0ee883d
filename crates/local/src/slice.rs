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

use crate::list::owner_of_thread;
use crate::{ListRw, OfThread, Preference, Range, RangeGuard};

/// Why a part of a slice cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
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
    list: ListRw,
    cells: Box<[UnsafeCell<S::Element>]>,
}

// SAFETY: a thread reaches an element by reference only through a guard whose range covers it:
// exclusively, which needs the element to be `Send`, or shared with others, which needs it `Sync`.
unsafe impl<T: Send + Sync> Sync for RangeLocked<[T]> {}

// The guards keep pointers, not references: a reference must not be reachable any more when the
// range is released, and one in a value that is being dropped still counts as reachable.

/// A part of a slice, to read.
#[must_use = "a guard that is dropped at once protects nothing"]
pub struct PartRef<'a, T> {
    elements: NonNull<[T]>,
    _lent: PhantomData<&'a [T]>,
    _held: RangeGuard<'a, ListRw, OfThread>,
}

/// A part of a slice, to write.
#[must_use = "a guard that is dropped at once protects nothing"]
pub struct PartMut<'a, T> {
    elements: NonNull<[T]>,
    _lent: PhantomData<&'a mut [T]>,
    _held: RangeGuard<'a, ListRw, OfThread>,
}

impl<T> From<Vec<T>> for RangeLocked<[T]> {
    fn from(elements: Vec<T>) -> Self {
        Self {
            list: ListRw::new(Preference::Readers),
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

    /// Waits until nobody writes in this part, then lends it to read.
    ///
    /// # Errors
    ///
    /// [`SliceError`] if the bounds are empty or leave the slice.
    pub fn read(&self, bounds: impl RangeBounds<usize>) -> Result<PartRef<'_, T>, SliceError> {
        let range = self.range(bounds)?;
        let token = self.list.lock_as(owner_of_thread(), range, true, None);
        let held = RangeGuard::new(&self.list, token.expect("without a deadline"), range);
        Ok(self.part_ref(held))
    }

    /// Waits until nobody reads or writes in this part, then lends it to write.
    ///
    /// # Errors
    ///
    /// [`SliceError`] if the bounds are empty or leave the slice.
    pub fn write(&self, bounds: impl RangeBounds<usize>) -> Result<PartMut<'_, T>, SliceError> {
        let range = self.range(bounds)?;
        let token = self.list.lock_as(owner_of_thread(), range, false, None);
        let held = RangeGuard::new(&self.list, token.expect("without a deadline"), range);
        Ok(self.part_mut(held))
    }

    /// Lends this part to read if nobody is in the way now.
    ///
    /// # Errors
    ///
    /// [`SliceError`] if the bounds are empty or leave the slice.
    pub fn try_read(
        &self,
        bounds: impl RangeBounds<usize>,
    ) -> Result<Option<PartRef<'_, T>>, SliceError> {
        let range = self.range(bounds)?;
        let token = self.list.try_lock_as(owner_of_thread(), range, true);
        Ok(token.map(|token| self.part_ref(RangeGuard::new(&self.list, token, range))))
    }

    /// Lends this part to write if nobody is in the way now.
    ///
    /// # Errors
    ///
    /// [`SliceError`] if the bounds are empty or leave the slice.
    pub fn try_write(
        &self,
        bounds: impl RangeBounds<usize>,
    ) -> Result<Option<PartMut<'_, T>>, SliceError> {
        let range = self.range(bounds)?;
        let token = self.list.try_lock_as(owner_of_thread(), range, false);
        Ok(token.map(|token| self.part_mut(RangeGuard::new(&self.list, token, range))))
    }

    /// All elements, without locking: the borrow says that nobody else is here.
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

    fn part_ref<'a>(&'a self, held: RangeGuard<'a, ListRw>) -> PartRef<'a, T> {
        PartRef { elements: self.elements(held.range()), _lent: PhantomData, _held: held }
    }

    fn part_mut<'a>(&'a self, held: RangeGuard<'a, ListRw>) -> PartMut<'a, T> {
        PartMut { elements: self.elements(held.range()), _lent: PhantomData, _held: held }
    }
}

impl<T> Deref for PartRef<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the pointer covers live cells of one slice, laid out as their elements, and while
        // the part lives it holds a range over them: nobody holds an exclusive one.
        unsafe { self.elements.as_ref() }
    }
}

impl<T> Deref for PartMut<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: as for `PartRef`; this range is exclusive.
        unsafe { self.elements.as_ref() }
    }
}

impl<T> DerefMut for PartMut<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `PartRef`, and the range is exclusive: no other part covers any of these
        // elements, and this part is borrowed mutably.
        unsafe { self.elements.as_mut() }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
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
