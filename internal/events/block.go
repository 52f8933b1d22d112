package events

// The types of events about blocks, in the journal: decisions about a task that waits for approval, with or without a
// run at work. Data has the block, its type, its step, the key of the task, and the run that asked last.
const (
	BlockApproved  Type = "block.approved"  // Data.By, Data.At, Data.Message: the note
	BlockRejected  Type = "block.rejected"  // like block.approved
	BlockWithdrawn Type = "block.withdrawn" // the decision was taken back: the task waits again
	BlockClosed    Type = "block.closed"    // no run waits for a decision any more; Data.Message says why
)

// ReasonWaits is the reason of a run.cancelled if all remaining tasks waited for approval.
const ReasonWaits = "waits"
