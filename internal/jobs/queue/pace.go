package queue

import (
	"sync"
	"time"
)

// eager is the pause before the next look at a store that does not notify: a tenth of the time since the last sign of
// more to come. So a wait is at most a tenth too long, and the number of looks grows with the logarithm of the time.
func eager(since, least, most time.Duration) time.Duration {
	return max(min(since/10, most), least)
}

// Limits of the cost of looks on a store that charges for requests.
const (
	// crowdPace is the pause of an eager worker for each worker of the queue: together they look at most some 500 times
	// a second, of the 3,000 that a partition allows.
	crowdPace = 2 * time.Millisecond
	// outPace is the pause of an eager waiter for each unfinished job, as a look reads all of them: at most some 1,000
	// read units of 4 KiB a second.
	outPace = 250 * time.Microsecond
	// idleDelayed is the longest interval of looks at the delayed entries. idleCancels is that of looks for requests to
	// cancel by a process without jobs, since other processes serve them.
	idleDelayed = 10 * time.Second
	idleCancels = 30 * time.Second
	// idleRepair is the interval of repairs by a process that has seen no work for long.
	idleRepair = 2 * time.Minute
)

// news is when a process last saw a sign of more to come.
type news struct {
	mu sync.Mutex
	at time.Time
}

func (n *news) note(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at = now
}

// age is the time since then.
func (n *news) age(now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return now.Sub(n.at)
}
