package testserver

import (
	"net/http"
	"time"
)

// Bandwidth bounds the bytes a second of all answers together; 0 is no bound.
func (p *Proxy) Bandwidth(bytesPerSecond int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bandwidth, p.free = bytesPerSecond, time.Time{}
}

// pace waits for the turn of n bytes of an answer.
func (p *Proxy) pace(r *http.Request, n int) {
	p.mu.Lock()
	if p.bandwidth == 0 {
		p.mu.Unlock()
		return
	}
	now := time.Now()
	if p.free.Before(now) {
		p.free = now
	}
	p.free = p.free.Add(time.Duration(int64(n) * int64(time.Second) / p.bandwidth))
	wait := p.free.Sub(now)
	p.mu.Unlock()
	p.wait(r, wait)
}
