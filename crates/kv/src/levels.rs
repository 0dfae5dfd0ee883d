//! What a client knows of the levels of the index: where their tables lie, and what of them has
//! moved. Nothing here posts a verb.
//!
//! All that it knows stays true: a table that was made stays where it is, and what has moved does
//! not come back.

use farlock_fabric::Addr;

use crate::shape::{LEVELS, Shape};
use crate::word::ChunkWord;

/// The levels that one client knows.
#[derive(Debug)]
pub(crate) struct Levels {
    shape: Shape,
    /// Where the table of each level lies that this client knows, from level 0 on.
    tables: Vec<Addr>,
    /// The first level that has, as far as this client knows, slots that have not moved.
    lowest: u32,
    /// How many groups of that level have moved, counted from the first.
    moved: u64,
    /// Slots of a group; 1 if the index keeps its size.
    group: u64,
}

impl Levels {
    /// Level 0 alone.
    pub(crate) fn new(shape: Shape, group: u64) -> Self {
        Self { shape, tables: vec![shape.first_table()], lowest: 0, moved: 0, group }
    }

    /// These words are in the header now, from [`Shape::levels`] on.
    pub(crate) fn learn(&mut self, words: &[u64]) {
        let (tables, moved) = words.split_at(LEVELS);
        for (level, &word) in (0..).zip(tables).skip(self.tables.len()) {
            let Some(table) = self.shape.table(level, word) else { break };
            self.tables.push(table);
        }
        self.moved = self.moved.max(moved[self.lowest as usize]);
        while self.is_growing() && self.moved >= self.groups(self.lowest) {
            self.lowest += 1;
            self.moved = moved[self.lowest as usize];
        }
    }

    /// The first level that may have slots that have not moved: where a key is looked for first.
    pub(crate) fn lowest(&self) -> u32 {
        self.lowest
    }

    /// The highest level that this client knows.
    pub(crate) fn highest(&self) -> u32 {
        self.tables.len() as u32 - 1
    }

    /// Whether the lowest level is moving to the next, as far as this client knows.
    pub(crate) fn is_growing(&self) -> bool {
        self.lowest < self.highest()
    }

    /// How many groups of the lowest level have moved, counted from the first.
    pub(crate) fn moved(&self) -> u64 {
        self.moved
    }

    /// How many groups a level has.
    pub(crate) fn groups(&self, level: u32) -> u64 {
        self.shape.table_bytes(level) / (self.group * 8)
    }

    /// A byte of the table of a level; `None` if this client does not know the level.
    pub(crate) fn addr(&self, level: u32, offset: u64) -> Option<Addr> {
        Some(self.tables.get(level as usize)?.plus(offset))
    }

    /// The level of a slot, and its place in the table in bytes; `None` if it is in no table that
    /// this client knows.
    pub(crate) fn place(&self, slot: Addr) -> Option<(u32, u64)> {
        (0..).zip(&self.tables).find_map(|(level, table)| {
            let offset = slot.offset().checked_sub(table.offset())?;
            (offset < self.shape.table_bytes(level)).then_some((level, offset))
        })
    }

    /// Whether a chunk is part of a table.
    pub(crate) fn holds(&self, chunk: u32) -> bool {
        (1..).zip(&self.tables[1..]).any(|(level, &table)| {
            let first = self.shape.chunk_of(table);
            let chunks = self.shape.table_chunks(level).unwrap_or(0);
            (first..first + chunks).contains(&chunk)
        })
    }
}

/// A run of chunks that is being made the table of a level. It outlives the operation that began
/// it, since the compares that claim it may be on their way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) level: u32,
    pub(crate) first: u32,
    /// The words of its chunks, as they were.
    pub(crate) words: Vec<ChunkWord>,
}

/// The run that a client makes a level of, if it does.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    current: Option<Run>,
    begun: u64,
}

impl Runs {
    /// The run that was begun and has not ended.
    pub(crate) fn current(&self) -> Option<Run> {
        self.current.clone()
    }

    /// How many were begun so far.
    pub(crate) fn begun(&self) -> u64 {
        self.begun
    }

    /// Begins a run that was looked for when so many had been begun, and none was under way.
    /// `false`: another task of this client has begun one since. That one may have claimed some of
    /// the same chunks, and by the same words; it would be unknown which run they are of.
    pub(crate) fn begin(&mut self, run: &Run, begun: u64) -> bool {
        let is_first = self.begun == begun && self.current.is_none();
        if is_first {
            self.current = Some(run.clone());
            self.begun += 1;
        }
        is_first
    }

    /// The run has become a level, or its chunks are given back.
    pub(crate) fn end(&mut self, run: &Run) {
        self.current.take_if(|current| current == run);
    }
}

impl Run {
    /// What the header says where it has become the level.
    pub(crate) fn word(&self) -> u64 {
        u64::from(self.first) + 1
    }
}
