package index

import (
	"context"
	"time"

	"ronbox/engines/index/lookup"
)

// Periods of the janitors and of the prefetcher's probes.
const (
	cacheEvery  = time.Second
	probeEvery  = 2 * time.Second
	repairEvery = time.Minute // shortest time between two repairs, which walk all provider records
)

// Bounds of a tick of the cache janitor, so that a tick takes a few milliseconds at most.
const (
	maxTracked = 20_000 // entries that it watches; the cache's own clock drops the others
	hotKeys    = 64
)

// CacheMeta describes the cache. A published value is immutable.
type CacheMeta struct {
	Tracked int      // watched entries
	Purges  uint64   // number of purges
	Hot     []string // keys and content ids with the most hits, the hottest first
}

// runCacheJanitor evicts expired entries, publishes cache_meta as its only writer, and has the
// store remove expired records.
func (e *Engine) runCacheJanitor(ctx context.Context) error {
	defer e.cacheTick.Stop()
	var tracked []*lookup.Entry
	var repaired time.Time
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case n, ok := <-e.fills.C():
			if !ok {
				return nil // drained: no worker is left
			}
			if len(tracked) < maxTracked {
				tracked = append(tracked, n)
			}
		case <-e.cacheTick.C():
			tracked = e.sweep(tracked)
			if err := e.records.Expire(ctx); err != nil {
				e.log.Debug("not_purged", "reason", err.Error()) // the next tick tries again
			}
			if e.records.Suspect() && time.Since(repaired) >= repairEvery {
				if err := e.records.Repair(ctx); err != nil {
					e.log.Warn("not_repaired", "reason", err.Error(), "next",
						"it is tried again every "+repairEvery.String())
				}
				repaired = time.Now()
			}
		}
	}
}

// sweep evicts entries, publishes cache_meta and returns the remaining entries.
func (e *Engine) sweep(tracked []*lookup.Entry) []*lookup.Entry {
	next := CacheMeta{Purges: e.purges.Load()}
	if next.Purges != e.Meta().Purges {
		tracked = nil
	}
	tracked, hot, evicted := e.answers.Sweep(tracked, e.now().UnixNano())
	e.m.evicted(evicted)
	for _, n := range hot[:min(len(hot), hotKeys)] {
		next.Hot = append(next.Hot, keyText(n.Key))
	}
	next.Tracked = len(tracked)
	e.meta.Store(&next)
	return tracked
}

// Meta returns the cache_meta that the janitor has published last.
func (e *Engine) Meta() CacheMeta { return *e.meta.Load() }
