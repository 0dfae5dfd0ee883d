//! The file system: files that are opened, read, written, appended to and truncated by verbs alone.
//!
//! Nothing is cached. A file is protected by one lock, of any kind: where that is had in parts a
//! request takes the units of its bytes, else all of it. What is protected by what:
//!
//! | what | protected by |
//! | --- | --- |
//! | bytes | their units of the lock |
//! | the size | a compare, and the units behind it |
//! | a name | the one compare that makes the file |
//!
//! A client that lowers the size, or appends, holds all units from there on; one that raises it
//! beyond holds some of those. Bytes beyond the size are zero. So a writer raises the size before
//! it writes, and a truncation lowers it after it has written zeros: a client that dies in the
//! middle leaves zeros in the file, or a part of its bytes, and none beyond the end.

use std::ops::Range;
use std::rc::Rc;

use farlock_check::client::{AnyClient, Held};
use farlock_fabric::{Fault, MaskedCas, WideAtomics};
use farlock_locks::{AcquireError, Mode, ReleaseError};
use thiserror::Error;

use super::layout::Layout;
use super::transfer;

/// Bytes of the longest name: what one compare stores.
pub const NAME_BYTES: usize = 16;
/// Zeros that a truncation writes at once, in bytes.
const ZEROS_BYTES: u64 = 1 << 18;

/// Why a request failed. What it has written until then stays written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FsError {
    /// A name has 1 to 16 bytes, none of them zero.
    #[error("this is no name of a file")]
    Name,
    /// All inodes are files of other names.
    #[error("there is no inode left")]
    Full,
    /// The bytes lie beyond those that a file has room for.
    #[error("a file has no room for that")]
    Room,
    /// The lock was not acquired.
    #[error("a file's lock was not acquired")]
    Acquire(#[from] AcquireError),
    /// The lock was not released, or was lost before.
    #[error("a file's lock was not released")]
    Release(#[from] ReleaseError),
    /// A verb failed.
    #[error("a verb to a file failed")]
    Verb(#[from] Fault),
}

/// A file that was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct File {
    number: u32,
}

/// A client of a file system.
pub struct FileSystem<E> {
    client: Rc<dyn AnyClient<E>>,
    layout: Rc<Layout>,
    in_parts: bool,
}

/// Bytes of a file that are held.
pub struct Hold<'s, E> {
    system: &'s FileSystem<E>,
    file: File,
    bytes: Range<u64>,
    guard: Held<'s>,
}

impl<E: WideAtomics> FileSystem<E> {
    /// The file system that lies there, by a client of its locks, which are had `in_parts` or as a
    /// whole.
    pub fn new(client: Rc<dyn AnyClient<E>>, layout: Rc<Layout>, in_parts: bool) -> Self {
        Self { client, layout, in_parts }
    }

    /// The client of its locks.
    pub fn client(&self) -> &dyn AnyClient<E> {
        &*self.client
    }

    /// The file of this name; `None` if there is none and none is to be made. One that is made is
    /// empty, and there for good.
    ///
    /// # Errors
    /// [`FsError::Name`], [`FsError::Full`] or [`FsError::Verb`].
    pub async fn open(&self, name: &str, make: bool) -> Result<Option<File>, FsError> {
        let name = packed(name)?;
        let files = self.layout.shape().files;
        let first = (spread(name) % u64::from(files)) as u32;
        for number in (first..files).chain(0..first) {
            let old = self.claim(number, name, make).await?;
            if old == name || old == 0 {
                return Ok((old == name || make).then_some(File { number }));
            }
        }
        if make { Err(FsError::Full) } else { Ok(None) }
    }

    /// The name of an inode, which has this name from now on if it had none and is to get one.
    async fn claim(&self, number: u32, name: u128, make: bool) -> Result<u128, FsError> {
        let swap = if make { name } else { 0 };
        let op = MaskedCas { compare: 0, compare_mask: u128::MAX, swap, swap_mask: u128::MAX };
        let endpoint = self.client.endpoint();
        endpoint.masked_cas128(self.layout.name(number), op, None).await?;
        Ok(endpoint.old())
    }

    /// How many bytes a file has at this moment.
    ///
    /// # Errors
    /// [`FsError::Verb`].
    pub async fn size(&self, file: File) -> Result<u64, FsError> {
        let endpoint = self.client.endpoint();
        endpoint.read64(self.layout.size(file.number)).await?;
        Ok(endpoint.old() as u64)
    }

    /// Reads up to so many bytes: as many as there are of them.
    ///
    /// # Errors
    /// The lock was not had, or a verb failed.
    pub async fn read(&self, file: File, offset: u64, bytes: u64) -> Result<Vec<u8>, FsError> {
        let end = self.layout.shape().file_bytes.min(offset.saturating_add(bytes));
        if end <= offset {
            return Ok(Vec::new());
        }
        let mut into = vec![0; (end - offset) as usize];
        let hold = self.hold(file, offset..end, Mode::Shared).await?;
        let found = hold.read(offset, &mut into).await?;
        hold.release().await?;
        into.truncate(found);
        Ok(into)
    }

    /// Writes these bytes. Beyond the end the file grows, and bytes between are zero.
    ///
    /// # Errors
    /// [`FsError::Room`], or the lock was not had, or a verb failed.
    pub async fn write(&self, file: File, offset: u64, bytes: &[u8]) -> Result<(), FsError> {
        let end = self.end(offset, bytes)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let hold = self.hold(file, offset..end, Mode::Exclusive).await?;
        hold.write(offset, bytes).await?;
        hold.release().await
    }

    /// Writes these bytes behind the last one. Returns where they begin.
    ///
    /// # Errors
    /// [`FsError::Room`], or the lock was not had, or a verb failed.
    pub async fn append(&self, file: File, bytes: &[u8]) -> Result<u64, FsError> {
        loop {
            let seen = self.size(file).await?;
            let hold = self.hold(file, seen..u64::MAX, Mode::Exclusive).await?;
            // While the units from its end on are held a file neither grows nor becomes smaller. It
            // may have become smaller before: then other units are wanted.
            let size = self.size(file).await?;
            if size >= seen {
                self.end(size, bytes)?;
                hold.write(size, bytes).await?;
                hold.release().await?;
                return Ok(size);
            }
            hold.release().await?;
        }
    }

    /// Makes a file as long as this: what is beyond goes, and what is added is zero.
    ///
    /// # Errors
    /// [`FsError::Room`], or the lock was not had, or a verb failed.
    pub async fn truncate(&self, file: File, size: u64) -> Result<(), FsError> {
        self.end(size, &[])?;
        let hold = self.hold(file, size..u64::MAX, Mode::Exclusive).await?;
        let mut old = self.size(file).await?;
        for start in (size..old).step_by(ZEROS_BYTES as usize) {
            let zeros = vec![0; ZEROS_BYTES.min(old - start) as usize];
            let (endpoint, layout) = (self.client.endpoint(), &self.layout);
            transfer::write(endpoint, layout, file.number, start, &zeros).await?;
        }
        while old > size {
            old = self.resize(file, old, size).await?;
        }
        self.raise(file, old, size).await?;
        hold.release().await
    }

    /// Holds these bytes of a file, and what else its lock takes with them: at least a unit.
    ///
    /// # Errors
    /// [`FsError::Acquire`].
    pub async fn hold(
        &self,
        file: File,
        bytes: Range<u64>,
        mode: Mode,
    ) -> Result<Hold<'_, E>, FsError> {
        let lock = self.layout.lock(file.number);
        let unit = self.layout.shape().unit;
        let bounded = |unit: u64| u32::try_from(unit).unwrap_or(u32::MAX);
        let start = bounded(bytes.start / unit).min(u32::MAX - 1);
        let units = start..bounded(bytes.end.div_ceil(unit)).max(start + 1);
        let guard = match self.in_parts {
            true => self.client.acquire_part(lock, mode, units, None).await?,
            false => self.client.acquire(lock, mode).await?,
        };
        Ok(Hold { system: self, file, bytes, guard })
    }

    /// Where these bytes end, if a file has room for that.
    fn end(&self, offset: u64, bytes: &[u8]) -> Result<u64, FsError> {
        let end = offset.checked_add(bytes.len() as u64);
        end.filter(|end| *end <= self.layout.shape().file_bytes).ok_or(FsError::Room)
    }

    /// A file that had this size a moment ago has at least the other from now on.
    async fn raise(&self, file: File, mut size: u64, least: u64) -> Result<(), FsError> {
        while size < least {
            size = self.resize(file, size, least).await?;
        }
        Ok(())
    }

    /// The size becomes the other one, if it is the first. Returns what it is then.
    async fn resize(&self, file: File, size: u64, other: u64) -> Result<u64, FsError> {
        let endpoint = self.client.endpoint();
        endpoint.cas64(self.layout.size(file.number), size, other).await?;
        let old = endpoint.old() as u64;
        Ok(if old == size { other } else { old })
    }
}

impl<E: WideAtomics> Hold<'_, E> {
    /// Reads bytes that are held. Returns how many of them there are before the file's end.
    ///
    /// # Errors
    /// [`FsError::Verb`].
    pub async fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, FsError> {
        self.assert_held(offset, into.len());
        let FileSystem { client, layout, .. } = self.system;
        let size =
            transfer::read(client.endpoint(), layout, self.file.number, offset, into).await?;
        Ok(into.len().min(size.saturating_sub(offset) as usize))
    }

    /// Writes bytes that are held, alone.
    ///
    /// # Errors
    /// [`FsError::Verb`].
    pub async fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), FsError> {
        self.assert_held(offset, bytes.len());
        if bytes.is_empty() {
            return Ok(());
        }
        let FileSystem { client, layout, .. } = self.system;
        let size = self.system.size(self.file).await?;
        self.system.raise(self.file, size, offset + bytes.len() as u64).await?;
        transfer::write(client.endpoint(), layout, self.file.number, offset, bytes).await?;
        Ok(())
    }

    /// Lets go of them.
    ///
    /// # Errors
    /// [`FsError::Release`].
    pub async fn release(self) -> Result<(), FsError> {
        Ok(self.guard.release().await?)
    }

    fn assert_held(&self, offset: u64, bytes: usize) {
        let end = offset + bytes as u64;
        assert!(self.bytes.start <= offset && end <= self.bytes.end, "these bytes are not held");
    }
}

/// The word of an inode of this name.
fn packed(name: &str) -> Result<u128, FsError> {
    let is_name = (1..=NAME_BYTES).contains(&name.len()) && !name.bytes().any(|byte| byte == 0);
    let mut bytes = [0; NAME_BYTES];
    let (into, from) = (bytes.iter_mut(), name.bytes());
    into.zip(from).for_each(|(into, byte)| *into = byte);
    if is_name { Ok(u128::from_le_bytes(bytes)) } else { Err(FsError::Name) }
}

/// Names that are alike lie apart.
fn spread(name: u128) -> u64 {
    let mixed = (name as u64 ^ (name >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}
