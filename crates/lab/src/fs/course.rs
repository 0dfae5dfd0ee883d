//! What clients do, as numbers: which files there are, which records in them, and which client
//! reads and writes which of them.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::layout::{Layout, Shape, WORD};

/// Data files of OLTP.
const OLTP_FILES: u64 = 10;
/// Bytes of each file of OLTP: 10 MB.
const OLTP_BYTES: u64 = 10 << 20;
/// Bytes that are read or written of a data file at once.
const OLTP_IO_BYTES: u64 = 8 << 10;
/// Bytes that are written to the log at once.
const OLTP_LOG_BYTES: u64 = 256 << 10;
/// Clients of a machine of OLTP: a log writer, writers, readers.
const OLTP_CLIENTS: usize = 61;
const OLTP_WRITERS: usize = 10;
/// Records of all data files, and of the log.
const OLTP_RECORDS: u64 = OLTP_FILES * (OLTP_BYTES / OLTP_IO_BYTES);
const OLTP_LOG_RECORDS: u64 = OLTP_BYTES / OLTP_LOG_BYTES;

/// Bytes of a grid point of BT-IO: five numbers of 8 bytes.
const POINT_BYTES: u64 = 40;
/// How often BT-IO writes its grid, in classes A to D with 200 or 250 steps, of which each fifth.
const BTIO_DUMPS: u64 = 50;

/// What clients do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Workload {
    /// Filebench's OLTP: readers and writers of data files, and writers of a log.
    Oltp,
    /// NAS's BT-IO: processes that write rows of a cube to one file, and read them back.
    Btio {
        /// Points of an edge of the cube; of class D 408.
        grid: u64,
        /// Planes that are written, of all dumps together.
        planes: u64,
    },
}

/// What a client is there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Writes to the log.
    Log,
    /// Writes to data files.
    Writer,
    /// Reads data files.
    Reader,
    /// Writes rows and reads them back.
    Process,
}

/// What a run is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FsCourse {
    /// What clients do.
    pub workload: Workload,
    /// How many they are.
    pub clients: usize,
    /// How many machines they share.
    pub machines: usize,
    /// Bytes of a unit of a lock.
    pub unit: u64,
    /// Whether requests take all of a lock, also of one that is had in parts.
    pub whole: bool,
    /// Whether readers share what they read, where the lock can.
    pub shares: bool,
    /// How long a reader of OLTP computes between two reads, in nanoseconds.
    pub think_ns: u64,
    /// Whether bytes are moved, or lengths alone.
    pub has_bytes: bool,
}

/// Where a record lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// In which file, by its number among those of the course.
    pub(super) file: usize,
    /// From where on.
    pub(super) offset: u64,
    /// How many bytes.
    pub(super) bytes: u64,
}

impl Place {
    pub(super) fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes
    }
}

impl FsCourse {
    /// How many files there are.
    pub(super) const fn files(&self) -> u32 {
        match self.workload {
            Workload::Oltp => OLTP_FILES as u32 + 1,
            Workload::Btio { .. } => 1,
        }
    }

    /// The name of a file.
    pub(super) fn name(&self, file: u32) -> String {
        match self.workload {
            Workload::Oltp if u64::from(file) == OLTP_FILES => "log".to_owned(),
            Workload::Oltp => format!("data-{file}"),
            Workload::Btio { .. } => "btio".to_owned(),
        }
    }

    /// How many bytes a file has at first.
    pub(super) const fn begun_bytes(&self) -> u64 {
        match self.workload {
            Workload::Oltp => OLTP_BYTES,
            Workload::Btio { .. } => 0,
        }
    }

    /// Bytes that a file has room for. Where no bytes are moved that is all that BT-IO would write,
    /// so that its lock is as large as there.
    const fn file_bytes(&self) -> u64 {
        match self.workload {
            Workload::Oltp => OLTP_BYTES,
            Workload::Btio { grid, planes } => {
                let planes = if self.has_bytes { planes } else { grid * BTIO_DUMPS };
                grid * grid * POINT_BYTES * planes
            }
        }
    }

    /// The shape of its file system, with locks of so many bytes.
    pub(super) const fn shape(&self, lock_bytes: u64) -> Shape {
        let (files, file_bytes) = (self.files(), self.file_bytes());
        Shape { files, file_bytes, lock_bytes, unit: self.unit }
    }

    /// Bytes of most requests.
    pub(super) fn io_bytes(&self) -> u64 {
        match self.workload {
            Workload::Oltp => OLTP_IO_BYTES,
            Workload::Btio { grid, .. } => POINT_BYTES * grid / self.edge(),
        }
    }

    /// Records that are judged.
    pub(super) fn records(&self) -> u64 {
        match self.workload {
            Workload::Oltp => OLTP_RECORDS + OLTP_LOG_RECORDS,
            Workload::Btio { grid, planes } => planes * grid * self.edge(),
        }
    }

    /// Words of the judge: of the records, and two of each machine by which its readers pace its
    /// writers.
    pub(crate) fn judged(&self) -> u64 {
        self.records() + 2 * self.machines as u64
    }

    /// The words by which the readers of this client's machine pace its writers and the log's.
    pub(super) fn gates(&self, client: usize) -> [u64; 2] {
        let first = self.records() + 2 * (client % self.machines) as u64;
        [first, first + 1]
    }

    /// Where a record lies.
    pub(super) fn place(&self, record: u64) -> Place {
        let of = |file: u64, number: u64, bytes| Place {
            file: file as usize,
            offset: number * bytes,
            bytes,
        };
        match self.workload {
            Workload::Oltp if record >= OLTP_RECORDS => {
                of(OLTP_FILES, record - OLTP_RECORDS, OLTP_LOG_BYTES)
            }
            Workload::Oltp => of(record % OLTP_FILES, record / OLTP_FILES, OLTP_IO_BYTES),
            Workload::Btio { .. } => of(0, record, self.io_bytes()),
        }
    }

    /// A record of data files, or of the log, by chance.
    pub(super) const fn drawn(&self, role: Role, chance: u64) -> u64 {
        match role {
            Role::Log => OLTP_RECORDS + chance % OLTP_LOG_RECORDS,
            _ => chance % OLTP_RECORDS,
        }
    }

    /// What a client is there for. Of a machine with fewer clients than 61 as many write as of one
    /// with so many, to the ratio.
    pub(super) fn role(&self, client: usize) -> Role {
        if let Workload::Btio { .. } = self.workload {
            return Role::Process;
        }
        let (machine, place) = (client % self.machines, client / self.machines);
        let here = (self.clients - machine).div_ceil(self.machines);
        match place {
            0 => Role::Log,
            place if place <= (here * OLTP_WRITERS / OLTP_CLIENTS).max(1) => Role::Writer,
            _ => Role::Reader,
        }
    }

    /// Bytes of a request of this client.
    pub(super) fn bytes_of(&self, client: usize) -> u64 {
        if self.role(client) == Role::Log { OLTP_LOG_BYTES } else { self.io_bytes() }
    }

    /// What a process of BT-IO does at its step with this number: the record of a row of the cube,
    /// and whether it writes it or reads it back. It writes its rows of a plane, then reads those,
    /// and begins anew when the last plane is done.
    ///
    /// Processes divide the cube as BT's multipartition does: at each depth each has another cell.
    pub(super) fn row(&self, client: usize, step: u64) -> (u64, bool) {
        let Workload::Btio { grid, planes } = self.workload else {
            unreachable!("only a process has rows");
        };
        let (edge, client) = (self.edge(), client as u64);
        let rows = grid / edge;
        let (plane, within) = (step / (2 * rows) % planes, step % (2 * rows));
        let depth = plane % grid / rows;
        let cell_x = (client % edge + depth) % edge;
        let cell_y = (client / edge + edge - depth) % edge;
        let y = cell_y * rows + within % rows;
        ((plane * grid + y) * edge + cell_x, within < rows)
    }

    /// Processes of BT-IO along an edge of the cube.
    fn edge(&self) -> u64 {
        (self.clients as u64).isqrt()
    }

    /// What is wrong with it, if something is.
    pub(super) fn flaw(&self) -> Option<String> {
        match self.workload {
            Workload::Oltp if self.clients < 3 * self.machines => {
                Some("each machine has a log writer, a writer and a reader".to_owned())
            }
            Workload::Btio { grid, .. } => {
                let edge = self.edge();
                let fits = edge * edge == self.clients as u64 && grid.is_multiple_of(edge);
                let flaw =
                    || format!("clients are a square, whose root divides the grid of {grid}");
                (!fits).then(flaw)
            }
            Workload::Oltp => None,
        }
    }

    /// The words of a record, by their addresses.
    pub(super) fn words(
        &self,
        record: u64,
        layout: &Layout,
        file: u32,
    ) -> impl Iterator<Item = farlock_fabric::Addr> + use<> {
        let Place { offset, bytes, .. } = self.place(record);
        let words = offset / WORD..(offset + bytes) / WORD;
        let pieces: Vec<_> = layout.pieces(file, words).collect();
        pieces.into_iter().flat_map(|piece| {
            (0..piece.words.end - piece.words.start).map(move |word| piece.addr.plus(word * WORD))
        })
    }
}

/// Planes of this share of all that BT-IO would write, in hundredths.
pub(super) fn planes(grid: u64, percent: u64) -> u64 {
    (grid * BTIO_DUMPS * percent / 100).max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn course(workload: Workload, clients: usize, machines: usize) -> FsCourse {
        let (unit, whole, shares, think_ns, has_bytes) = (512, false, true, 0, true);
        FsCourse { workload, clients, machines, unit, whole, shares, think_ns, has_bytes }
    }

    #[test]
    fn machines_of_the_paper_have_a_log_writer_ten_writers_and_fifty_readers() {
        let course = course(Workload::Oltp, 183, 3);
        let count = |role, machine| {
            let own = (machine..183).step_by(3);
            own.filter(|client| course.role(*client) == role).count()
        };
        for machine in 0..3 {
            let roles = [Role::Log, Role::Writer, Role::Reader].map(|role| count(role, machine));
            assert_eq!(roles, [1, 10, 50]);
        }
        assert_eq!(course.flaw(), None);
    }

    #[test]
    fn records_of_oltp_fill_their_files() {
        let course = course(Workload::Oltp, 3, 1);
        let ends = |file| {
            let places = (0..course.records()).map(|record| course.place(record));
            places.filter(|place| place.file == file).map(|place| place.bytes).sum::<u64>()
        };
        assert!((0..11).all(|file| ends(file) == OLTP_BYTES));
        assert_eq!(course.place(OLTP_RECORDS).file, 10);
    }

    /// Each row of the cube is one process's, and lies where the file has it.
    #[test]
    fn processes_of_btio_write_each_record_once() {
        for clients in [1, 4, 16] {
            let (grid, planes) = (16, 20);
            let course = course(Workload::Btio { grid, planes }, clients, 1);
            let edge = clients.isqrt() as u64;
            let steps = 2 * planes * grid / edge;
            let mut written = BTreeSet::new();
            for (client, step) in
                (0..clients).flat_map(|client| (0..steps).map(move |s| (client, s)))
            {
                let (record, writes) = course.row(client, step);
                assert!(record < course.records());
                assert_eq!(written.insert(record), writes, "what is read was written before");
            }
            assert_eq!(written.len() as u64, course.records());
            assert_eq!(course.records() * course.io_bytes(), grid * grid * 40 * planes);
        }
    }

    #[test]
    fn class_d_has_the_granularities_of_the_paper() {
        let workload = Workload::Btio { grid: 408, planes: planes(408, 1) };
        let bytes = |clients| course(workload, clients, 1).io_bytes();
        assert_eq!([1, 4, 64].map(bytes), [16_320, 8_160, 2_040]);
        let whole = FsCourse { has_bytes: false, ..course(workload, 64, 1) };
        assert_eq!(whole.file_bytes() / 100_000_000, 1_358, "135.8 GB");
        assert!(whole.shape(8).units() <= 1 << 28);
    }
}
