package testserver

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// A Fault is what befalls a request.
type Fault int

// What can befall a request.
const (
	None        Fault = iota
	Throttle          // the service has too much to do: nothing happens, and it says so
	Fail              // an error of the service's own: nothing happens, and it says so
	DropBefore        // the connection breaks and nothing happens
	DropAfter         // it takes effect, and the connection breaks before the answer: the lost response
	DropWithin        // it takes effect, and the connection breaks in the middle of the answer's body
	DelayBefore       // it takes effect later by the rule's delay
	DelayAfter        // it takes effect, and the answer comes later by the rule's delay
	Hang              // nothing happens until Release; then it takes effect, also where its sender has given up
	Double            // it is delivered twice, one after the other, as by a proxy that tries again; the second answer is the one that comes
)

// String names the fault.
func (f Fault) String() string {
	names := [...]string{"none", "throttle", "fail", "drop before", "drop after", "drop within", "delay before", "delay after", "hang", "double"}
	if f < 0 || int(f) >= len(names) {
		return fmt.Sprintf("fault %d", int(f))
	}
	return names[f]
}

// A Rule says which requests meet a fault.
type Rule struct {
	Op          string  // the operation; "" is all
	Probability float64 // of each request that matches; 0 is all of them
	Skip        int     // the first so many that match are spared
	Times       int     // how many requests it strikes at most; 0 is no bound
	Fault       Fault
	Delay       time.Duration // of DelayBefore and DelayAfter
}

// rule is a Rule and what it has done.
type rule struct {
	Rule
	skipped, struck int
}

// Faults puts rules in the place of those before, and releases what hangs. The first rule that strikes a request is its fate. Chance
// is drawn from the seed in the order in which requests arrive.
func (p *Proxy) Faults(seed uint64, rules ...Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.random = rand.New(rand.NewPCG(seed, 0))
	p.rules = nil
	for _, r := range rules {
		p.rules = append(p.rules, rule{Rule: r})
	}
	close(p.released)
	p.released = make(chan struct{})
}

// Release lets go on what hangs.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.released)
	p.released = make(chan struct{})
}

// draw returns what is to befall a request, and when it is released if it hangs.
func (p *Proxy) draw(op string) (Fault, time.Duration, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.rules {
		r := &p.rules[i]
		switch {
		case r.Op != "" && r.Op != op:
			continue
		case r.Probability > 0 && p.random.Float64() >= r.Probability:
			continue
		case r.skipped < r.Skip:
			r.skipped++
			continue
		case r.Times > 0 && r.struck >= r.Times:
			continue
		}
		r.struck++
		p.struck[r.Fault]++
		return r.Fault, r.Delay, p.released
	}
	return None, 0, nil
}

// Weather returns rules for a random schedule: a mix of faults, each as likely as the drawn weather makes it, together at most
// as likely as most. Nothing hangs, and delays are at most delay.
func Weather(random *rand.Rand, most float64, delay time.Duration) []Rule {
	kinds := []Fault{Throttle, Fail, DropBefore, DropAfter, DropWithin, DelayBefore, DelayAfter}
	random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	kinds = kinds[:1+random.IntN(len(kinds))]
	var rules []Rule
	for _, fault := range kinds {
		rules = append(rules, Rule{
			Fault:       fault,
			Probability: max(random.Float64(), 0.01) * most / float64(len(kinds)),
			Delay:       time.Duration(random.Int64N(int64(delay) + 1)),
		})
	}
	return rules
}

// refuse answers as the service does that a request failed.
func refuse(w http.ResponseWriter, r *http.Request, op string, fault Fault) {
	if r.Header.Get("X-Amz-Target") != "" {
		status, kind := http.StatusInternalServerError, "InternalServerError"
		if fault == Throttle {
			status, kind = http.StatusBadRequest, "ProvisionedThroughputExceededException"
			if op == "CreateTable" || op == "DescribeTable" || op == "DeleteTable" {
				kind = "ThrottlingException"
			}
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":"by the proxy of the test"}`, kind)
		return
	}
	status, kind := http.StatusInternalServerError, "InternalError"
	if fault == Throttle {
		status, kind = http.StatusServiceUnavailable, "SlowDown"
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>by the proxy of the test</Message></Error>`, kind)
	}
}
