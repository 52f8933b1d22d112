package queue

import (
	"sync"
	"time"
)

// eager is the pause before the next look at a store that does not notify: a tenth of the time since the last sign
// that more may come. So a wait lasts at most a tenth longer than what it waits for, and the number of looks grows
// with the logarithm of the time.
func eager(since, least, most time.Duration) time.Duration {
	return max(min(since/10, most), least)
}

// Bounds of what looks cost where each is a request.
const (
	// crowdPace is the pause of an eager worker for each worker of the queue: all of them together look some 500 times
	// a second at most, of the 3,000 that a partition allows.
	crowdPace = 2 * time.Millisecond
	// outPace is the pause of an eager waiter for each job that is out, as a look reads all of them: some 1,000 read
	// units of 4 KiB a second at most.
	outPace = 250 * time.Microsecond
	// idleDelayed is the longest interval of looks at the delayed entries, and idleCancels that of looks at requests
	// to cancel by a process without jobs: another one serves those.
	idleDelayed = 10 * time.Second
	idleCancels = 30 * time.Second
)

// news is when a process last saw a sign that more may come.
type news struct {
	mu sync.Mutex
	at time.Time
}

func (n *news) note(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at = now
}

// age is how long ago that was.
func (n *news) age(now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return now.Sub(n.at)
}
