package origin_test

import (
	"context"
	"io"
	"testing"
	"time"

	"ronbox/appliance/upstream"
	"ronbox/engines/edge/origin"
)

// Failed connections, whole tries without an answer, and 502 to 504 of three paths within a minute
// count against a host.
func TestBlame(t *testing.T) {
	t.Parallel()
	now := time.Now()
	down, late := &upstream.StatusError{Status: 503}, context.DeadlineExceeded
	var h origin.Host
	for i, step := range []struct {
		url   string
		after time.Duration
		err   error
		want  bool
	}{
		{"a", 0, late, true}, {"a", 0, io.ErrUnexpectedEOF, false}, {"a", 0, &upstream.StatusError{Status: 500}, false},
		{"a", 0, down, false}, {"a", 0, down, false}, {"b", 0, down, false}, {"a", 0, down, false},
		{"c", 0, down, true}, {"a", 0, down, true},
		{"d", 61 * time.Second, down, false}, {"a", 0, down, false}, {"b", 0, down, true},
	} {
		now = now.Add(step.after)
		if got := h.Blames(step.url, step.err, now); got != step.want {
			t.Errorf("step %d: %t", i, got)
		}
	}
}
