package obs

import "sync"

// Older is the label value under which a Newest adds up values that no longer have a series.
const Older = "older"

// Newest counts by a label with unbounded values, such as epochs. The newest values have one series
// each. The older values share one. So the number of series stays bounded and no count is lost.
type Newest struct {
	counter func(value string) func(n int)
	remove  func(value string)
	most    int

	mu     sync.Locker
	order  []string       // values that have a series, oldest first; guarded by mu
	counts map[string]int // counts of these; guarded by mu
}

// Newest resolves a counter family with one label. At most most values have a series of their own.
// mu guards its state; it has the rank that the caller chooses.
func (m *Metrics) Newest(mu sync.Locker, most int, name, service, label string) *Newest {
	n := &Newest{
		counter: func(v string) func(int) { return m.Counter(name, service, label, v) },
		remove:  func(v string) { m.Remove(name, service, label, v) },
		most:    most, mu: mu, counts: map[string]int{},
	}
	n.counter(Older)
	return n
}

// Add counts one under value. If value is new, the oldest value may move to Older.
func (n *Newest) Add(value string) {
	gone, count := n.note(value)
	n.counter(value)(1)
	if count > 0 {
		n.counter(Older)(count)
		n.remove(gone)
	}
}

// note adds value. If another value has lost its series, note returns it with its count.
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
