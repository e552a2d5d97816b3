package ledger

import (
	"errors"
	"time"

	"ronbox/appliance/obs"
)

// enterSafeMode ends writing, for good: what was read contradicts itself, and only a verification can tell how far the journal holds.
func (l *Local) enterSafeMode(cause error) {
	why := cause.Error()
	if !l.safe.CompareAndSwap(nil, &why) {
		return
	}
	l.books.barred.Store(true)
	l.m.gaps(1)
	l.m.safeMode(1)
	l.log.Error("safe_mode", "reason", why)
	l.board.Set(service, keySafeMode, ErrSafeMode)
}

// SafeMode is why nothing is written, "" while it is.
func (l *Local) SafeMode() string {
	if why := l.safe.Load(); why != nil {
		return *why
	}
	return ""
}

// Readiness keys.
const (
	keyLoaded   = "loaded"    // the journal was read
	keySafeMode = "safe_mode" // it checked
)

// probeEvery is the least time between two looks at a readiness key.
const probeEvery = 250 * time.Millisecond

// probes are hard: without them nothing is written.
func (l *Local) probes() []obs.Probe {
	return []obs.Probe{
		{Service: service, Key: keyLoaded, Hard: true, Plane: obs.WritePlane, Every: probeEvery, Bad: 1, Good: 1, Func: func() error {
			if !l.books.loaded.Load() {
				return ErrLoading
			}
			return nil
		}},
		{Service: service, Key: keySafeMode, Hard: true, Plane: obs.WritePlane, Every: probeEvery, Bad: 1, Good: 1, Func: func() error {
			if why := l.SafeMode(); why != "" {
				return errors.New(why)
			}
			return nil
		}},
	}
}
