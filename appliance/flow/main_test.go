package flow

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// fakeMeter counts in a map, by family, service and labels.
type fakeMeter struct {
	mu     sync.Mutex
	counts map[string]int
	gauges map[string]func() float64
}

func newFakeMeter() *fakeMeter {
	return &fakeMeter{counts: map[string]int{}, gauges: map[string]func() float64{}}
}

func series(family, service string, pairs []string) string {
	return fmt.Sprintf("%s{%s}", family, strings.Join(append([]string{service}, pairs...), ","))
}

func (m *fakeMeter) Counter(family, service string, pairs ...string) func(int) {
	key := series(family, service, pairs)
	return func(n int) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.counts[key] += n
	}
}

func (m *fakeMeter) Gauge(family, service string, read func() float64, pairs ...string) {
	m.gauges[series(family, service, pairs)] = read
}

func (m *fakeMeter) count(key string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts[key]
}

// wantPanic calls f and returns the text of its panic.
func wantPanic(t *testing.T, f func()) (text string) {
	t.Helper()
	defer func() {
		v := recover()
		if v == nil {
			t.Error("no panic")
		}
		text = fmt.Sprint(v)
	}()
	f()
	return ""
}

// newQueue returns a queue in a catalogue of its own.
func newQueue[T any](capacity int) *Queue[T] {
	return NewQueue[T](NewCatalog(nil, nil), Spec{Service: "t", Name: "jobs_tx", Cap: capacity, Policy: RejectNew})
}
