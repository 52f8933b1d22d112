package human

// A Tone is what a status means to a person. Terminals, pages, reports and drawings choose their colours by it.
type Tone uint8

// The tones.
const (
	Plain  Tone = iota // not a status
	Good               // it has succeeded
	Reused             // it has a result, and nothing ran for that
	Bad                // it has failed
	Shaken             // it did not end as it should, and may yet
	Held               // a person, or a start, is to act
	Busy               // a command is at work, or would be
	Quiet              // it is not its turn, or will not be
	Absent             // there is nothing yet
)

// A Look is how a status is shown everywhere. Marks differ by shape, because a colour alone says nothing.
type Look struct {
	Mark string
	Tone Tone
}

// looks are the words of all statuses: of tasks, runs, jobs, outputs and steps of a plan.
var looks = map[string]Look{
	"success": {"✓", Good}, "completed": {"✓", Good}, "current": {"✓", Good}, "ran": {"✓", Good},
	"cached": {"↺", Reused}, "hit": {"↺", Reused},
	"failed": {"✗", Bad}, "error": {"✗", Bad}, "crashed": {"✗", Bad}, "damaged": {"✗", Bad}, "stuck": {"✗", Bad},
	"retrying": {"⟳", Shaken}, "interrupted": {"◼", Shaken},
	"allowed": {"!", Held}, "left out": {"!", Held}, // it has failed, as it may
	"deferred": {"‖", Held}, // U+23F8 is missing in common fonts
	"stale":    {"·", Held},
	"running":  {"▶", Busy}, "claimed": {"▶", Busy}, "run": {"▶", Busy}, "would run": {"▶", Busy},
	"delayed": {"»", Quiet}, "waits": {"○", Quiet}, "queued": {"○", Quiet}, "ready": {"○", Quiet},
	"cancelled": {"◼", Quiet}, "unfinished": {"◼", Quiet}, "skipped": {"⊘", Quiet}, "abandoned": {"⊘", Quiet},
	"unknown": {"·", Quiet}, "missing": {"·", Absent}, "none": {"·", Absent},
}

// LookOf returns the look of a status by its word. A word that is none has a dot and no colour.
func LookOf(status string) Look {
	if l, ok := looks[status]; ok {
		return l
	}
	return Look{Mark: "·"}
}

// Statuses returns the words of all statuses, in no order.
func Statuses() []string {
	words := make([]string, 0, len(looks))
	for word := range looks {
		words = append(words, word)
	}
	return words
}

// meanings are statuses of tasks that do not explain themselves, in a few words.
var meanings = map[string]string{
	"deferred": "waits for approval", "waits": "not begun yet", "abandoned": "the run ended before its turn", "skipped": "needs what failed",
	"allowed": "failed, as it may", "cached": "its result was there", "claimed": "a worker has taken it", "interrupted": "its run died meanwhile",
	"retrying": "its next attempt follows",
}

// Meaning explains a status in a few words; "" where its word does.
func Meaning(status string) string { return meanings[status] }
