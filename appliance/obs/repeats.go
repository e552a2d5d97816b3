package obs

import (
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// repeatLimit is the number of lines of one kind that are written each second.
	repeatLimit = 10
	// repeatKinds bounds the table. Only texts of libraries can exceed it. Kinds beyond it are
	// counted as one kind per level.
	repeatKinds = 1024
	// otherKinds is the event of kinds beyond repeatKinds.
	otherKinds = "other"
)

// kind is the identity of a line: lines of the same kind are repeats of each other.
type kind struct {
	level                         hclog.Level
	service, event, route, status string
}

// repeats counts the lines of each kind within a second that begins with the first one.
type repeats struct {
	mu   sync.Mutex       // a leaf
	by   map[kind]*repeat // guarded by mu
	next time.Time        // earliest end of a second of any kind; guarded by mu
}

type repeat struct {
	since time.Time
	n     int // lines in this second
	held  int // lines that were not written
}

// sum is a line that reports suppressed lines.
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

// over removes the seconds that have ended, or all of them if final, and returns their sums.
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

// line returns the line to write.
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
