package store

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestHeartbeat(t *testing.T) {
	const (
		quick    = 600 * time.Millisecond // two syncs of a slow SD card
		middling = 900 * time.Millisecond
		late     = 1200 * time.Millisecond
		stuck    = 2500 * time.Millisecond
	)
	for _, tt := range []struct {
		name    string
		commits []time.Duration
		slow    bool
	}{
		{"none", nil, false},
		{"quick", []time.Duration{quick, quick}, false},
		{"two late", []time.Duration{late, late}, false},
		{"three late", []time.Duration{late, late, late}, true},
		{"late with a break", []time.Duration{late, late, middling, late}, false},
		{"one stuck", []time.Duration{quick, stuck}, true},
		{"two quick do not heal", []time.Duration{stuck, quick, quick}, true},
		{"three quick heal", []time.Duration{stuck, quick, quick, quick}, false},
		{"quick with a break", []time.Duration{stuck, quick, quick, middling, quick}, true},
	} {
		var h heartbeat
		now := int64(0)
		for _, d := range tt.commits {
			h.begin(now)
			now += int64(d)
			h.end(now)
		}
		if err := h.cause(now); errors.Is(err, ErrSlow) != tt.slow {
			t.Errorf("%s: %v", tt.name, err)
		}
		h.begin(now)
		if err := h.cause(now + int64(stuck)); !errors.Is(err, ErrSlow) {
			t.Errorf("%s: a commit that hangs shows as %v", tt.name, err)
		}
	}
}

// A slow store heals by its own probes, though nobody commits.
func TestProbesHeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where no disk is slow
		r := inMemory(t, Options{})
		r.heart.slow.Store(true)
		if err := r.Health(); !errors.Is(err, ErrSlow) {
			t.Errorf("health: %v", err)
		}
		var g group
		g.open(r.Store)
		before := *r.Info()
		for range streak {
			if err := g.run(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Health(); err != nil || r.Info().Seq != before.Seq {
			t.Errorf("health after %d probes: %v, seq %d", streak, err, r.Info().Seq)
		}
		r.stop()
	})
}

// Groups that touch no disk say nothing about its pace.
func TestRefusalsDoNotHeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where the probes of its own, which heal it, do not come meanwhile
		r := inMemory(t, Options{}).start()
		defer r.stop()
		r.heart.slow.Store(true)
		for range streak {
			if _, err := Commit(t.Context(), r.Store, Work, put{Key: "k", Refuse: true}); !errors.Is(err, errRefused) {
				t.Fatal(err)
			}
		}
		if err := r.Health(); !errors.Is(err, ErrSlow) {
			t.Errorf("health after %d refusals: %v", streak, err)
		}
	})
}
