package front

import "sync/atomic"

// places bounds how many are inside at once. It never waits.
type places struct {
	max int64
	n   atomic.Int64
}

func newPlaces(limit int) *places { return &places{max: int64(limit)} }

func (p *places) enter() bool {
	if p.n.Add(1) <= p.max {
		return true
	}
	p.n.Add(-1)
	return false
}

func (p *places) leave() { p.n.Add(-1) }
