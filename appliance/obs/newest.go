package obs

import "sync"

// Older is the label value under which a Newest sums up what it does not name any more.
const Older = "older"

// Newest counts by a label whose values come without end, such as epochs. The newest values have a series each, the older ones one together, so that
// the number of series stays bounded and no count is lost.
type Newest struct {
	counter func(value string) func(n int)
	remove  func(value string)
	most    int

	mu     sync.Locker
	order  []string       // of the values that have a series, the newest last; guarded by mu
	counts map[string]int // of these; guarded by mu
}

// Newest resolves a counter family by its one label, at most so many values by name. mu guards what it holds, at the caller's place in the lock order.
func (m *Metrics) Newest(mu sync.Locker, most int, name, service, label string) *Newest {
	n := &Newest{
		counter: func(v string) func(int) { return m.Counter(name, service, label, v) },
		remove:  func(v string) { m.Remove(name, service, label, v) },
		most:    most, mu: mu, counts: map[string]int{},
	}
	n.counter(Older)
	return n
}

// Add counts one under value. A value that is new may move the oldest one under Older.
func (n *Newest) Add(value string) {
	gone, count := n.note(value)
	n.counter(value)(1)
	if count > 0 {
		n.counter(Older)(count)
		n.remove(gone)
	}
}

// note takes value in, and tells which one has to go for it, with its count, if one has.
func (n *Newest) note(value string) (gone string, count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.counts[value]++; n.counts[value] > 1 {
		return "", 0
	}
	if n.order = append(n.order, value); len(n.order) <= n.most {
		return "", 0
	}
	gone, n.order = n.order[0], n.order[1:]
	count = n.counts[gone]
	delete(n.counts, gone)
	return gone, count
}
