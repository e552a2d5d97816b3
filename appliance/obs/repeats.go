package obs

import (
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// repeatLimit is how many lines of one kind are written each second: enough to see what happens, few enough to stay readable.
	repeatLimit = 10
	// repeatKinds bounds the table. Kinds are closed sets but for the texts of libraries; those that find it full are counted as one kind
	// for each level.
	repeatKinds = 1024
	// otherKinds is the event of what is counted so.
	otherKinds = "other"
)

// kind is what makes two lines repeats of each other.
type kind struct {
	level                         hclog.Level
	service, event, route, status string
}

// repeats counts the lines of each kind within a second that begins with its first one.
type repeats struct {
	mu   sync.Mutex
	by   map[kind]*repeat // guarded by mu
	next time.Time        // when the first second of any kind may end; guarded by mu
}

type repeat struct {
	since time.Time
	n     int // lines in this second
	held  int // of those, not written
}

// sum is a line that stands for others.
type sum struct {
	kind
	held int
}

// pass reports whether a line of kind k is written now.
func (r *repeats) pass(k kind, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	one, ok := r.by[k]
	if !ok && len(r.by) >= repeatKinds {
		k = kind{level: k.level, event: otherKinds}
		one, ok = r.by[k]
	}
	if !ok {
		one = &repeat{since: now}
		r.by[k] = one
		if len(r.by) == 1 {
			r.next = now.Add(time.Second)
		}
	}
	if one.n++; one.n <= repeatLimit {
		return true
	}
	one.held++
	return false
}

// over takes the seconds that have ended out of the table, all of them when final, and gives what they held back.
func (r *repeats) over(now time.Time, final bool) []sum {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.by) == 0 || !final && now.Before(r.next) {
		return nil
	}
	var out []sum
	r.next = now.Add(time.Second)
	for k, one := range r.by {
		switch end := one.since.Add(time.Second); {
		case !final && now.Before(end):
			if end.Before(r.next) {
				r.next = end
			}
			continue
		case one.held > 0:
			out = append(out, sum{k, one.held})
		}
		delete(r.by, k)
	}
	return out
}

// line is what a sum is written as.
func (s sum) line(now time.Time) line {
	l := line{at: now, level: s.level, service: s.service, event: s.event}
	for _, f := range []field{{key: "route", text: s.route}, {key: "status", text: s.status, bare: true}} {
		if f.text != "" {
			l.fields = append(l.fields, f)
		}
	}
	l.fields = append(l.fields, field{key: "repeated", text: strconv.Itoa(s.held), bare: true})
	return l
}
