//! Planted bugs: what the judges must find, or they would not find ours.

/// A mistake that the store makes on purpose.
#[cfg_attr(not(feature = "museum"), allow(unreachable_pub, reason = "only the museum shows it"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Flaw {
    /// A reader takes what it read for a value though the checksum is wrong.
    TornValue,
    /// A reader takes a block for the one that its slot named, whichever use of the block it is.
    RecycledBlock,
    /// A writer whose completion was lost writes its value once more.
    DoubleExecution,
    /// The version in a slot has one bit.
    VersionWrap,
    /// A deletion reports success though its compare has failed.
    LostDelete,
    /// An insertion does not look for others of its key.
    DuplicateKey,
    /// A client frees a block that another one's death left in doubt, though a slot points to it.
    LiveBlockFreed,
    /// A reader takes a slot that has moved for an empty one.
    OldLevelAlone,
    /// A client marks a slot as moved before it has copied what is there.
    MovedBeforeCopied,
    /// A client that moves a slot without a key leaves its heirs as they are.
    EmptyMovesAlone,
    /// A client that moves a value leaves the other heir as it is.
    OtherHeirForgotten,
    /// An insertion at a new level leaves the old slots of its key where they are.
    UnmovedInsertion,
    /// A client that moves a slot reads its heirs after it.
    HeirsReadLate,
    /// A client marks a slot as moved though a heir says something else than what was copied.
    CopyUnchecked,
    /// A client that moves a slot in which an insertion is pending copies it as it is.
    PendingMoves,
    /// A client that was not first to make a level keeps the chunks that it has claimed for it.
    RunForgotten,
    /// A client that goes through the index does not follow slots that have moved.
    ScanStopsAtMoved,
    /// A client that waits for an absent key waits for the first of its slots alone.
    WatchesOneSlot,
    /// A reader takes the key in a block for its own if its slot has the fingerprint.
    OtherKey,
    /// An executor whose operation has failed says that it has succeeded.
    FalseSuccess,
    /// Whichever key it is, it is taken for the same.
    CombinesAcrossKeys,
    /// A writer that has written and whose turn is over writes once more, as if its turn had begun
    /// anew.
    ExecutesAgain,
    /// An increment is taken for an overwrite.
    CombinesIncrements,
    /// An overwrite that comes second counts as done before the first, whatever that was.
    AbsorbedByAny,
    /// An overwrite counts as done before another one that may have been answered before it began.
    AbsorbedByEarlier,
    /// A task that asks while another one reads has its answer.
    DelegatesLate,
    /// A client that remembers a value takes it for what is there.
    TrustsMemory,
    /// A reader takes the block that its slot named before for the one that the slot names now.
    TrustsSlot,
    /// A client that replaces a node of a tree copies it without freezing it.
    UnfrozenNode,
    /// A client believes a node that it remembers, though that was replaced.
    StaleNode,
    /// A client whose completion was lost writes its node once more.
    NodeWrittenAgain,
    /// The counts of a chunk that gets another class begin anew.
    CountsBeginAnew,
    /// A client that has lost the completion of counts that it wrote writes them once more and uses
    /// the chunk.
    CountsWrittenAgain,
}
