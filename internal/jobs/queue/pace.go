package queue

import (
	"slices"
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

// news is when a process last saw a sign of more to come, and how soon more came after earlier signs.
type news struct {
	mu   sync.Mutex
	at   time.Time
	gaps [4]time.Duration // the last ones; 0: none yet
	next int              // where the next one goes
}

// mostQuiet bounds how long a process that has become used to long gaps does not look after a sign.
const mostQuiet = 100 * time.Millisecond

// came records that what the last sign announced has come, which is a sign itself.
func (n *news) came(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gaps[n.next%len(n.gaps)] = max(now.Sub(n.at), 1)
	n.next++
	n.at = now
}

// quiet is how long no look is worth while: until three quarters of the shortest of the last gaps have passed.
func (n *news) quiet(now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return min(slices.Min(n.gaps[:])*3/4, mostQuiet) - now.Sub(n.at)
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
