package upkeep

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/store"
)

// A job that finds the store busy is due again after a minute, or after its interval if that is
// shorter. One that fails otherwise waits for its interval.
func TestBusyJobIsDueAgainSoon(t *testing.T) {
	for _, tt := range []struct {
		every time.Duration
		err   error
		want  time.Duration // until the second start
	}{
		{24 * time.Hour, fmt.Errorf("snapshot: %w", store.ErrBusy), time.Minute},
		{10 * time.Second, store.ErrBusy, 10 * time.Second},
		{time.Hour, errors.New("another reason"), time.Hour},
		{time.Hour, nil, time.Hour},
	} {
		at, starts := time.Unix(1000, 0), []time.Time{}
		j := NewJanitor(JanitorDeps{
			Catalog: flow.NewCatalog(nil, nil), Service: "node", Log: hclog.NewNullLogger(),
			Now: func() time.Time { return at },
		})
		job := &Job{Name: "snapshot", Every: Fixed(tt.every), Do: func(context.Context) error {
			starts = append(starts, at)
			return tt.err
		}}
		for ; len(starts) < 2; at = at.Add(time.Second) {
			j.Turn(t.Context(), []*Job{job})
		}
		if got := starts[1].Sub(starts[0]); got != tt.want {
			t.Errorf("each %v, %v: it starts again after %v, want %v", tt.every, tt.err, got, tt.want)
		}
		j.tick.Stop()
	}
}
