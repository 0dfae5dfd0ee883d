//! Regions: created or attached by name, grown, listed, retired.
//!
//! A region is a file in a directory of its user. It is built under a name of its own and renamed
//! once it is whole, unless there is one of that name by then: so nobody sees half a region, and a
//! creator that dies leaves at most a file that the next creator removes. Where its tokens begin is
//! not its creator's business: an attacher that finds no origin there draws one, and the first
//! that is put into the header counts. So nobody waits for a creator, wherever it was stopped.
//!
//! A remover works under the directory's lock, and only a remover takes a file away.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use super::barrier::register_for_barriers;
use super::error::GrowError;
use super::file::{self, PrivateDir, io_error};
use super::latch::Latch;
use super::layout::{self, BLOCK_BYTES, Capacity, Layout, PERHAPS, Sound, copy_of};
use super::mapping::{self, Mapping, Memory};
use super::mark::Marks;
use super::primitive::{AtomicU64, Ordering};
use super::process::{Keepers, Process};
use super::tether::Tethers;
use super::{fork, incarnation, primitive, tether, wide};
use crate::addr::{Addr, RegionId};
use crate::connection::Origin;
use crate::error::{ConnectError, Malformed};

/// The region id in every address of a shared-memory region: a process sees one region a handle.
pub const REGION: RegionId = RegionId(1);

/// Bytes in the longest name of a region.
const NAME_BYTES_MAX: usize = 200;

/// How to open a region. Capacities matter only to its creator.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory of regions, on a filesystem in memory. Made with mode 0700 where missing.
    pub dir: PathBuf,
    /// The directory of durable incarnations, on disk. Made with mode 0700 where missing. Where it
    /// cannot be written, tokens increase as long as the clock does.
    pub state_dir: PathBuf,
    /// The region's name.
    pub name: String,
    /// What `ls` calls endpoints attached through this handle; at most 40 bytes are shown.
    pub label: String,
    /// Places for endpoints.
    pub endpoints: u16,
    /// Slots an endpoint.
    pub slots: u8,
    /// Bytes of the heap at first, rounded up to whole blocks.
    pub heap_bytes: u64,
    /// Bytes to which the region's file may grow. Address space, not memory.
    pub max_bytes: u64,
    /// How many of these, the last ones, a process does without that has no addresses for them:
    /// what lies there is beyond the region for it.
    pub spare_bytes: u64,
    /// Whether a region that is not there is created.
    pub create: bool,
    /// How long to wait for others who remove regions at that moment, and may be stopped: for ever
    /// where `None`.
    pub patience: Option<Duration>,
    /// Whether endpoints may only read: their writes and atomics end with
    /// [`NoRight`](crate::Fault::NoRight).
    pub read_only: bool,
    /// The seed of the endpoints' random numbers; from the system where `None`.
    pub seed: Option<u64>,
}

impl Options {
    /// The defaults: 1024 endpoints of 8 slots, a heap of 4 MiB that grows up to 1 GiB.
    pub fn new(
        dir: impl Into<PathBuf>,
        state_dir: impl Into<PathBuf>,
        name: impl Into<String>,
    ) -> Self {
        Self {
            dir: dir.into(),
            state_dir: state_dir.into(),
            name: name.into(),
            label: String::new(),
            endpoints: 1024,
            slots: 8,
            heap_bytes: 4 << 20,
            max_bytes: 1 << 30,
            spare_bytes: 0,
            create: true,
            patience: None,
            read_only: false,
            seed: None,
        }
    }

    /// The same, but the heap may become so many bytes longer than it is at first.
    #[must_use]
    pub fn growing_by(mut self, bytes: u64) -> Self {
        let Self { endpoints, slots, heap_bytes, .. } = self;
        // More than there can be are refused when the region is opened.
        let endpoints = endpoints.min(layout::ENDPOINTS_MAX);
        let fixed = Layout::new(Capacity { endpoints, slots, max_bytes: 0 }).heap;
        self.max_bytes = (fixed + heap_bytes).next_multiple_of(BLOCK_BYTES) + bytes;
        self
    }

    /// The same, and so many bytes more where a process has addresses for them.
    #[must_use]
    pub fn sparing(mut self, bytes: u64) -> Self {
        (self.max_bytes, self.spare_bytes) = (self.max_bytes + bytes, bytes);
        self
    }
}

/// A region, mapped into this process. Clones share the mapping.
#[derive(Clone, Debug)]
pub struct Region {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    mapping: Mapping,
    /// The device and the inode of its file.
    inode: (u64, u64),
    name: String,
    label: String,
    read_only: bool,
    seed: Option<u64>,
    /// Threads that attach take turns.
    attaching: Mutex<()>,
    /// The marks of lanes; opened for the first.
    marks: OnceLock<Marks>,
    /// How many places each thread keeps.
    keepers: Keepers,
    /// The process that opened it, and alone may attach; looked up for the first endpoint.
    process: OnceLock<Process>,
    /// The count of forks when it was opened: a forked child has another.
    forks: u64,
}

impl Region {
    /// Attaches to a region, or creates it where it is missing.
    ///
    /// A crash during creation leaves nothing that is in anybody's way; at most an incarnation is
    /// skipped.
    ///
    /// # Errors
    /// See [`ConnectError`]; a full filesystem is [`ConnectError::NoSpace`] here, never a signal
    /// later.
    pub fn open(options: &Options) -> Result<Self, ConnectError> {
        if !wide::is_supported() {
            return Err(ConnectError::NoWideAtomics);
        }
        check_name(&options.name)?;
        if !options.create && is_missing(&options.dir) {
            let (name, dir) = (options.name.clone(), options.dir.clone());
            return Err(ConnectError::Absent { name, dir });
        }
        let dir = PrivateDir::open(&options.dir)?;
        Self::open_in(&dir, options, None)
    }

    /// Attaches to a region, or creates it where it is missing, above an origin.
    fn open_in(
        dir: &PrivateDir,
        options: &Options,
        mut floor: Option<Origin>,
    ) -> Result<Self, ConnectError> {
        loop {
            match Self::attach(dir, options)? {
                Found::Whole(region) => return Ok(region),
                _ if !options.create => {
                    let (name, dir) = (options.name.clone(), options.dir.clone());
                    return Err(ConnectError::Absent { name, dir });
                }
                Found::Nothing => {}
                Found::Retired => {
                    let _lock = dir.lock(until(options))?;
                    floor = floor.max(Self::clear_retired(dir, &options.name)?);
                }
            }
            // Another creator may be quicker; then its region is found.
            Self::install(dir, options, floor)?;
        }
    }

    /// Removes a region. Its endpoints, wherever they are, get [`Stale`](crate::Fault::Stale) with
    /// their next verb; those that sleep are woken. Returns whether there was such a region.
    ///
    /// # Errors
    /// See [`ConnectError`]. A malformed region is removed without an error.
    pub fn remove(dir: &Path, name: &str) -> Result<bool, ConnectError> {
        Self::remove_if(dir, name, Fate::Certain)
    }

    /// The same, unless anybody is attached to it. Nobody can attach between the look and the end.
    ///
    /// # Errors
    /// [`ConnectError::InUse`]; see [`ConnectError`].
    pub fn remove_unused(dir: &Path, name: &str) -> Result<bool, ConnectError> {
        Self::remove_if(dir, name, Fate::Open)
    }

    fn remove_if(dir: &Path, name: &str, fate: Fate) -> Result<bool, ConnectError> {
        check_name(name)?;
        // Of what is not there nothing is left behind either.
        if is_missing(dir) {
            return Ok(false);
        }
        let dir = PrivateDir::open(dir)?;
        if dir.inode(name)?.is_none() {
            return Ok(false);
        }
        let _lock = dir.lock(None)?;
        let (was_there, _) = Self::remove_locked(&dir, name, fate)?;
        Ok(was_there)
    }

    /// Removes the region and creates it anew, empty, with a later origin.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn reset(options: &Options) -> Result<Self, ConnectError> {
        Self::reset_if(options, Fate::Certain)
    }

    /// The same, unless anybody is attached to it, as [`Region::remove_unused`].
    ///
    /// # Errors
    /// [`ConnectError::InUse`]; see [`ConnectError`].
    pub fn reset_unused(options: &Options) -> Result<Self, ConnectError> {
        Self::reset_if(options, Fate::Open)
    }

    fn reset_if(options: &Options, fate: Fate) -> Result<Self, ConnectError> {
        if !wide::is_supported() {
            return Err(ConnectError::NoWideAtomics);
        }
        check_name(&options.name)?;
        let dir = PrivateDir::open(&options.dir)?;
        let floor = {
            let _lock = dir.lock(until(options))?;
            let (_, origin) = Self::remove_locked(&dir, &options.name, fate)?;
            origin
        };
        Self::open_in(&dir, options, floor)
    }

    /// Whether a region can have this name.
    ///
    /// # Errors
    /// [`ConnectError::Name`].
    pub fn check_name(name: &str) -> Result<(), ConnectError> {
        check_name(name)
    }

    /// Whether the state directory keeps what keeps tokens of the region from going back; a region
    /// whose state directory does not is opened all the same, and the clock has to do.
    ///
    /// # Errors
    /// Why it does not.
    pub fn check_state(options: &Options) -> Result<(), ConnectError> {
        incarnation::check(PrivateDir::open(&options.state_dir), &options.name)
    }

    /// The names of the regions in a directory, sorted. A directory that is missing has none.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn list(dir: &Path) -> Result<Vec<String>, ConnectError> {
        let failed = |source| io_error("list", dir, source);
        let entries = match std::fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let is_file = entry.file_type().map_err(failed)?.is_file();
            if let Ok(name) = entry.file_name().into_string()
                && is_file
                && check_name(&name).is_ok()
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// The region's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Where the region's fencing tokens begin, above those of every region of its name before.
    pub fn origin(&self) -> Origin {
        self.mapping().origin()
    }

    /// The region's durable incarnation: the upper bits of its tokens.
    pub fn incarnation(&self) -> u16 {
        self.origin().incarnation
    }

    /// Whether the region's file was deleted or moved, but not by [`Region::remove`]: who opens a
    /// region of this name finds another one.
    ///
    /// Nor is it found where its directory was moved, once there is another in its place.
    pub fn is_deleted(&self) -> bool {
        let (dir, own) = (self.mapping().tethers().dir(), self.inner.inode);
        match dir.inode_by_path(&self.inner.name) {
            Some(named) => named != own,
            // By that path nobody finds any. A process that has another root by now asks its own.
            // Where the directory cannot be looked at, nothing is known.
            None => dir.inode(&self.inner.name).is_ok_and(|named| named != Some(own)),
        }
    }

    /// Places for endpoints.
    pub fn endpoints(&self) -> u16 {
        self.mapping().layout().capacity.endpoints
    }

    /// Slots an endpoint has.
    pub fn slots(&self) -> u8 {
        self.mapping().layout().capacity.slots
    }

    /// Where the words of users begin, and how many bytes of them there are now.
    pub fn heap(&self) -> (Addr, u64) {
        let layout = self.mapping().layout();
        let bytes = self.mapping().bytes().unwrap_or(layout.heap);
        (Addr::new(REGION, layout.heap), bytes - layout.heap)
    }

    /// The words of the heap, as long as it is now, for those who prepare or inspect memory. What
    /// is done here is no verb: it wakes nobody, and no gate stops it.
    pub fn words(&self) -> &[AtomicU64] {
        self.mapping().heap()
    }

    /// Makes the heap at least `bytes` longer than it is now, in whole blocks of 64 KiB, zeroed.
    /// Every process can use the new words at once. Returns the new size of the heap in bytes. Two
    /// that do so at one time may see the same size now, and then make it longer once.
    ///
    /// A crash in the middle leaves the old size, or the new one. A process that is stopped in the
    /// middle keeps nobody waiting: the system gives a range its memory again without harm, and the
    /// size that is published only grows.
    ///
    /// # Errors
    /// See [`GrowError`].
    pub fn grow(&self, bytes: u64) -> Result<u64, GrowError> {
        let max_bytes = self.mapping().layout().capacity.max_bytes;
        self.check_forks().map_err(|source| GrowError::Io { what: "open", source })?;
        if self.is_retired() {
            return Err(GrowError::Stale);
        }
        let old = self.mapping().bytes().ok_or(GrowError::Stale)?;
        let new = old
            .checked_add(bytes)
            .and_then(|new| new.checked_next_multiple_of(BLOCK_BYTES))
            .filter(|new| *new <= max_bytes)
            .ok_or(GrowError::Limit { max_bytes })?;
        allocate(self.mapping().file(), old, new - old).map_err(|error| match error {
            Errno::NOSPC | Errno::FBIG | Errno::DQUOT => GrowError::NoSpace { bytes: new - old },
            other => GrowError::Io { what: "allocate", source: other.into() },
        })?;
        let longer = |old| (old < new).then_some(new);
        let bytes = &self.mapping().header().bytes;
        // Where another was first and grew it further, that stays.
        let _ = bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, longer);
        Ok(self.heap().1)
    }

    /// Why it did not grow, for those who connect to it.
    pub(super) fn why_it_stays(&self, error: GrowError) -> ConnectError {
        let path = PathBuf::from(self.name());
        match error {
            GrowError::Limit { max_bytes } => ConnectError::Capacity {
                what: "bytes",
                value: max_bytes,
                bound: "it was made to stay smaller than is needed now",
            },
            GrowError::NoSpace { bytes } => ConnectError::NoSpace { path, bytes },
            GrowError::Stale => ConnectError::Stale,
            GrowError::Io { what, source } => ConnectError::Io { what, path, source },
        }
    }

    /// Attaches to a whole and current region, if there is one.
    fn attach(dir: &PrivateDir, options: &Options) -> Result<Found, ConnectError> {
        let Some(file) = dir.open_file(&options.name, OFlags::RDWR)? else {
            return Ok(Found::Nothing);
        };
        let path = dir.path_of(&options.name);
        let sound = mapping::examine(&file)
            .map_err(|source| io_error("read", &path, source))?
            .map_err(|why| ConnectError::Malformed { path: path.clone(), why })?;
        if sound.retired {
            return Ok(Found::Retired);
        }
        let memory = Memory::new(&file, &sound.layout, options.spare_bytes)
            .map_err(|source| io_error("map", &path, source))?
            .map_err(|why| ConnectError::Malformed { path: path.clone(), why })?;
        let origin = match sound.origin {
            // Nobody has ever used it.
            None if !options.create => return Ok(Found::Nothing),
            None => draw_origin(&memory, &sound, options)?
                .ok_or(ConnectError::Malformed { path, why: Malformed::Incarnation })?,
            // A handle that only reads repairs nothing.
            Some(origin) if options.read_only => origin,
            Some(origin) => {
                let state = PrivateDir::open(&options.state_dir);
                incarnation::repair(state, &options.name, origin)?;
                put_origin(&memory, origin);
                origin
            }
        };
        Self::map(dir, file, memory, sound.layout, origin, options).map(Found::Whole)
    }

    /// Gives a new region its name, unless there is one of that name by then.
    fn install(
        dir: &PrivateDir,
        options: &Options,
        floor: Option<Origin>,
    ) -> Result<(), ConnectError> {
        let path = dir.path_of(&options.name);
        let capacity = Capacity {
            endpoints: options.endpoints,
            slots: options.slots,
            max_bytes: options.max_bytes,
        };
        layout::check_capacity(&capacity, options.heap_bytes)?;
        let mut layout = Layout::new(capacity);
        let bytes = layout.heap + options.heap_bytes.next_multiple_of(BLOCK_BYTES);
        layout.capacity.max_bytes = capacity.max_bytes.next_multiple_of(BLOCK_BYTES).max(bytes);

        remove_abandoned(dir, &options.name)?;
        let fresh = format!("{}{:016x}{FRESH_SUFFIX}", fresh_prefix(&options.name), random());
        // Of that name there is none but by a chance that nobody will see.
        let Some(file) = dir.create_file(&fresh)? else { return Ok(()) };
        let build = || {
            let io = |what| {
                let path = &path;
                move |source| io_error(what, path, source)
            };
            // While it is locked it is not abandoned. It is unlocked when it is a region: who grows
            // or removes that waits for nobody who was stopped here.
            if !file::try_lock_whole(&file).map_err(io("lock"))? {
                return Ok(false);
            }
            allocate(&file, 0, bytes).map_err(|error| match error {
                Errno::NOSPC | Errno::FBIG | Errno::DQUOT => {
                    ConnectError::NoSpace { path: path.clone(), bytes }
                }
                other => io_error("allocate", &path, other.into()),
            })?;
            let header = layout.header(floor, bytes, primitive::boot_time());
            let header: Vec<u8> = header.into_iter().flat_map(u64::to_le_bytes).collect();
            file.write_all_at(&header, 0).map_err(io("write"))?;
            file::unlock_whole(&file).map_err(io("unlock"))?;
            dir.rename_new(&fresh, &options.name)
        };
        let built = build();
        if !matches!(built, Ok(true)) {
            // What counts is why it failed; the next creator removes the file too.
            let _ = dir.remove_file(&fresh);
        }
        built.map(|_| ())
    }

    fn map(
        dir: &PrivateDir,
        file: File,
        memory: Memory,
        layout: Layout,
        origin: Origin,
        options: &Options,
    ) -> Result<Self, ConnectError> {
        let io = |what| {
            let path = dir.path_of(&options.name);
            move |source| io_error(what, &path, source)
        };
        fork::watch().map_err(io("watch for forks of"))?;
        // Here and not when it attaches: in a process that has threads by then it takes 10 ms.
        register_for_barriers();
        let tethers = Tethers::new(dir, &options.name, origin).map_err(io("open"))?;
        let metadata = file.metadata().map_err(io("examine"))?;
        let inner = Inner {
            inode: (metadata.dev(), metadata.ino()),
            mapping: Mapping::new(memory, file, layout, origin, tethers),
            name: options.name.clone(),
            label: options.label.clone(),
            read_only: options.read_only,
            seed: options.seed,
            attaching: Mutex::new(()),
            marks: OnceLock::new(),
            keepers: Keepers::default(),
            process: OnceLock::new(),
            forks: fork::fork_count(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Removes the file of a retired region, whose remover died, if that is what there is. Returns
    /// its origin. The caller holds the directory's lock.
    fn clear_retired(dir: &PrivateDir, name: &str) -> Result<Option<Origin>, ConnectError> {
        let Some(file) = dir.open_file(name, OFlags::RDWR)? else { return Ok(None) };
        let examined = mapping::examine(&file);
        match examined.map_err(|source| io_error("read", &dir.path_of(name), source))? {
            Ok(sound) if sound.retired => {
                tether::remove_all(dir, name)?;
                dir.remove_file(name)?;
                Ok(sound.origin.max(sound.floor))
            }
            _ => Ok(None),
        }
    }

    /// Retires the region of this name and removes its files. Returns whether it was there, and
    /// its origin. The caller holds the directory's lock.
    fn remove_locked(
        dir: &PrivateDir,
        name: &str,
        fate: Fate,
    ) -> Result<(bool, Option<Origin>), ConnectError> {
        let path = dir.path_of(name);
        // What comes from here on is not what is to be removed.
        let Some(file) = dir.open_file(name, OFlags::RDWR)? else { return Ok((false, None)) };
        let mut origin = None;
        let examined = mapping::examine(&file).map_err(|e| io_error("read", &path, e))?;
        if let Ok(sound) = examined {
            origin = sound.origin.max(sound.floor);
            let memory = Memory::new(&file, &sound.layout, sound.layout.capacity.max_bytes);
            // One that was cut short since has nothing to retire any more.
            if let Ok(memory) = memory.map_err(|e| io_error("map", &path, e))? {
                let (layout, options) = (sound.layout, Options::new("", "", name));
                let origin = origin.unwrap_or(Origin::FIRST);
                let region = Self::map(dir, file, memory, layout, origin, &options)?;
                match fate {
                    Fate::Certain => region.retire(),
                    Fate::Open => region.retire_unused()?,
                }
            }
        }
        if fate == Fate::Open && origin.is_none() && tether::is_any_held(dir, name)? {
            return Err(ConnectError::InUse { name: name.to_owned(), user: "a command".into() });
        }
        // Before the file: once that is gone, another region may have tethers of that name.
        tether::remove_all(dir, name)?;
        Ok((dir.remove_file(name)?, origin))
    }

    pub(super) fn mapping(&self) -> &Mapping {
        &self.inner.mapping
    }

    pub(super) fn label(&self) -> &str {
        &self.inner.label
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.inner.read_only
    }

    pub(super) fn seed(&self) -> Option<u64> {
        self.inner.seed
    }

    /// Whether it is removed. While that is being decided it waits.
    pub(super) fn is_retired(&self) -> bool {
        let retired = &self.mapping().header().retired;
        loop {
            match retired.load(Ordering::SeqCst) {
                0 => return false,
                PERHAPS => {
                    // The remover has the directory's lock. If that can be had, it is dead.
                    let Ok(_lock) = self.mapping().tethers().dir().lock(None) else { return true };
                    let (was, is) = (PERHAPS, 0);
                    let _ = retired.compare_exchange(was, is, Ordering::SeqCst, Ordering::SeqCst);
                }
                _ => return true,
            }
        }
    }

    /// Marks the place of a lane, which was seen without a mark under this latch.
    pub(super) fn mark(&self, latch: &Latch<'_>) -> std::io::Result<()> {
        let marks = match self.inner.marks.get() {
            Some(marks) => marks,
            None => {
                let opened = Marks::new(self.mapping().file())?;
                self.inner.marks.get_or_init(|| opened)
            }
        };
        marks.set(latch)
    }

    /// Takes the mark of a place away: its lane is gone.
    pub(super) fn unmark(&self, index: u16) {
        let marks = self.inner.marks.get().expect("a marked place was marked through this handle");
        // What stays marked is a place that nobody takes while this process lives.
        let _ = marks.clear(index);
    }

    pub(super) fn keepers(&self) -> &Keepers {
        &self.inner.keepers
    }

    /// The process that opened it.
    pub(super) fn process(&self) -> Process {
        *self.inner.process.get_or_init(Process::own)
    }

    /// This thread's turn to attach: the threads of a process share their latches. It is short,
    /// for nobody waits for anything in it.
    pub(super) fn attaching(&self) -> std::io::Result<MutexGuard<'_, ()>> {
        self.check_forks()?;
        Ok(self.inner.attaching.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A forked child shares the kernel's locks of its parent, so it is refused.
    pub(super) fn check_forks(&self) -> std::io::Result<()> {
        if fork::fork_count() != self.inner.forks {
            return Err(std::io::Error::other("it was opened before a fork; open it again"));
        }
        Ok(())
    }
}

/// Whether a region is removed in any case, or only if nobody is attached to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Certain,
    Open,
}

/// What there is of a region's name.
enum Found {
    Whole(Region),
    /// Nothing that can be used: a process removes the region, or died while it did.
    Retired,
    Nothing,
}

/// Where the tokens of a region begin that nobody has used: what the first draws that puts it
/// there. `None` where that word is damaged.
fn draw_origin(
    memory: &Memory,
    sound: &Sound,
    options: &Options,
) -> Result<Option<Origin>, ConnectError> {
    let copy = &memory.header().origin_copy;
    let is_inhabited = memory.taken().first_from(1, sound.layout.capacity.places()).is_some();
    // Every attacher moved in after the origin was there.
    if is_inhabited && copy.load(Ordering::SeqCst) == 0 {
        return Ok(None);
    }
    let state = PrivateDir::open(&options.state_dir);
    let drawn = incarnation::draw(state, &options.name, sound.floor, SystemTime::now())?;
    let drawn_copy = copy_of(drawn.to_word());
    let origin = match copy.compare_exchange(0, drawn_copy, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => Some(drawn),
        Err(of_another) => Origin::of_word(copy_of(of_another)),
    };
    if let Some(origin) = origin {
        put_origin(memory, origin);
    }
    Ok(origin)
}

/// Puts an origin beside its copy, where its attacher has not come to that.
fn put_origin(memory: &Memory, origin: Origin) {
    let word = &memory.header().origin;
    // Where it is there it was compared with the copy, or is by the next attacher.
    let _ = word.compare_exchange(0, origin.to_word(), Ordering::SeqCst, Ordering::SeqCst);
}

/// How names of regions end that are being created.
const FRESH_SUFFIX: &str = ".new";

/// How they begin.
fn fresh_prefix(name: &str) -> String {
    format!(".{name}.")
}

/// Removes what creators of this region left that died.
fn remove_abandoned(dir: &PrivateDir, name: &str) -> Result<(), ConnectError> {
    let prefix = fresh_prefix(name);
    let is_fresh = |file: &String| file.starts_with(&prefix) && file.ends_with(FRESH_SUFFIX);
    for file_name in dir.names()?.into_iter().filter(is_fresh) {
        let opened = dir.open_file(&file_name, OFlags::RDWR)?;
        // Its creator has it locked while it lives; one that has just begun begins anew.
        if opened.is_some_and(|file| file::try_lock_whole(&file).unwrap_or(false)) {
            dir.remove_file(&file_name)?;
        }
    }
    Ok(())
}

/// A number by which concurrent creators differ.
fn random() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_le_bytes(bytes),
        _ => primitive::boot_time() ^ u64::from(std::process::id()) << 32,
    }
}

/// Until when an opening with these options waits for others.
fn until(options: &Options) -> Option<Instant> {
    // A limit beyond what the clock can express is none.
    Instant::now().checked_add(options.patience?)
}

/// Gives a range of a file its memory, so that no later access can fail. Beyond what this process
/// may write the kernel would send a signal; here it is an error.
pub(super) fn allocate(file: &File, offset: u64, bytes: u64) -> Result<(), Errno> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    if limit.is_some_and(|limit| limit < offset + bytes) {
        return Err(Errno::FBIG);
    }
    rustix::io::retry_on_intr(|| {
        rustix::fs::fallocate(file, FallocateFlags::empty(), offset, bytes)
    })
}

/// Whether there is nothing of this name, not even a link to nothing.
fn is_missing(dir: &Path) -> bool {
    let found = std::fs::symlink_metadata(dir);
    found.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

/// Names of regions are names of files: no separator, not hidden, with room for a suffix.
fn check_name(name: &str) -> Result<(), ConnectError> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name.len() > NAME_BYTES_MAX {
        "it is longer than 200 bytes"
    } else if name.starts_with('.') {
        "it begins with a dot"
    } else if name.contains(['/', '\0']) {
        "it contains a slash or NUL"
    } else if name.contains(char::is_control) {
        "it contains a control character"
    } else {
        return Ok(());
    };
    Err(ConnectError::Name { name: name.to_owned(), why })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::super::testing::TestDir;
    use super::*;
    use crate::addr::{Mailbox, Slot};
    use crate::endpoint::{Endpoint, Wait, block_on};

    #[test]
    fn names_are_names_of_visible_files() {
        for good in ["a", "a.b", "ä", "with space", &"x".repeat(200)] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", ".a", "a/b", "/", "a\0", "a\nb", "\u{1b}[31m", &"x".repeat(201)]
        {
            assert!(matches!(check_name(bad), Err(ConnectError::Name { .. })), "{bad:?}");
        }
    }

    #[test]
    fn a_remover_that_died_while_it_looked_is_in_nobodys_way() {
        let dir = TestDir::new("died-looking");
        let options = Options::new(dir.path(), dir.path().join("state"), "looked-at");
        let region = Region::open(&options).unwrap();
        region.mapping().header().retired.store(PERHAPS, Ordering::SeqCst);
        let endpoint = region.endpoint().unwrap();
        let later = Region::open(&options).unwrap();
        assert_eq!(later.inner.inode, region.inner.inode);
        region.mapping().header().retired.store(PERHAPS, Ordering::SeqCst);
        block_on(&endpoint, endpoint.faa64(region.heap().0, 1)).unwrap();
        assert!(matches!(
            Region::remove_unused(dir.path(), "looked-at"),
            Err(ConnectError::InUse { .. })
        ));
        later.grow(1).unwrap();
    }

    /// The message behind the half-written one is here, and rang long ago: what wakes its receiver
    /// is the end of the sender before it.
    #[test]
    fn a_receiver_behind_a_half_written_message_is_woken_by_the_end_of_its_sender() {
        let dir = TestDir::new("half-written");
        let options = Options::new(dir.path(), dir.path().join("state"), "half");
        let region = Region::open(&options).unwrap();
        let receiver = region.endpoint().unwrap();
        let sender = region.endpoint().unwrap();
        let slot = Slot(0);
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            let theirs = region.clone();
            scope.spawn(move || {
                let dying = theirs.endpoint().unwrap();
                tell.send(dying.id()).unwrap();
                std::thread::sleep(Duration::from_millis(100));
                drop(dying);
            });
            let dying = told.recv().unwrap();
            let (cells, position) = receiver.mailbox(slot);
            cells.half_write(receiver.id().incarnation, position, dying);
            let to = Mailbox { endpoint: receiver.id(), slot };
            block_on(&sender, sender.send(to, [7; 4])).unwrap();
            let envelope = loop {
                if let Some(envelope) = receiver.receive(slot) {
                    break envelope;
                }
                block_on(&receiver, receiver.wait(Wait { mail: Some(slot), ..Wait::default() }));
            };
            assert_eq!(envelope.message, [7; 4]);
        });
        assert_eq!(receiver.late_wakes(), 0, "a timer woke it");
    }

    #[test]
    fn a_place_into_which_the_living_still_write_is_nobodys() {
        let dir = TestDir::new("written-into");
        let mut options = Options::new(dir.path(), dir.path().join("state"), "r");
        options.endpoints = 2;
        let region = Region::open(&options).unwrap();
        let writer = region.endpoint().unwrap();
        let left = region.endpoint().unwrap();
        let (cells, position) = left.mailbox(Slot(0));
        cells.half_write(left.id().incarnation, position, writer.id());
        let index = left.id().index;
        drop(left);
        assert!(matches!(region.endpoint(), Err(ConnectError::Full { .. })));
        drop(writer);
        let indices = [region.endpoint().unwrap(), region.endpoint().unwrap()];
        assert!(indices.iter().any(|endpoint| endpoint.id().index == index));
    }
}
