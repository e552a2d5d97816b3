package index

import (
	"cmp"
	"context"
	"slices"
	"time"

	"ronbox/appliance/flow"
)

// Paces of the janitors, and of the prefetcher's probes.
const (
	cacheEvery   = time.Second
	breakerEvery = 250 * time.Millisecond
	probeEvery   = 2 * time.Second
	repairEvery  = time.Minute // between two walks over all provider records, however often a damaged row is met
)

// Bounds of a tick of the cache janitor, so that it takes a few milliseconds however much is cached.
const (
	maxTracked = 20_000 // entries it looks at; the cache's own clock drops the others
	hotKeys    = 64
	hotHits    = 5 // of one entry: a key with fewer is not hot
)

// CacheMeta is what the cache janitor knows of the cache. A value is not changed once it is published.
type CacheMeta struct {
	Tracked int      // entries it watches
	Purges  uint64   // times that all was dropped
	Hot     []string // keys and content ids that were asked for most, the hottest first
}

// runCacheJanitor drops entries whose time is over, publishes cache_meta, of which it is the only writer, and has the store remove expired records.
func (e *Engine) runCacheJanitor(ctx context.Context) error {
	defer e.cacheTick.Stop()
	var tracked []*entry
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
			tracked = e.sweep(tracked, e.now().UnixNano())
			e.fences.sweep(e.now().UnixNano())
			if err := e.purgeExpired(ctx); err != nil {
				e.log.Debug("not_purged", "reason", err.Error()) // the next tick tries again
			}
			if e.damage.repair.Load() && time.Since(repaired) >= repairEvery {
				e.damage.repair.Store(false)
				if err := e.repairProviders(ctx); err != nil {
					e.damage.repair.Store(true)
					e.log.Warn("not_repaired", "reason", err.Error(), "next", "it is tried again every "+repairEvery.String())
				}
				repaired = time.Now()
			}
		}
	}
}

// sweep evicts entries and returns those that stay.
func (e *Engine) sweep(tracked []*entry, now int64) []*entry {
	next := CacheMeta{Purges: e.purges.Load()}
	if next.Purges != e.Meta().Purges {
		tracked = nil
	}
	var hot []*entry
	tracked = slices.DeleteFunc(tracked, func(n *entry) bool {
		switch over := now >= n.stale || !n.fence.holds(); {
		case n.replaced.Load():
			return true
		case over:
			e.cache.Del(n.key)
			e.m.evicted(1)
			return true
		case now < n.fresh && n.hits.Load() >= hotHits:
			hot = append(hot, n)
		}
		return false
	})
	slices.SortFunc(hot, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(b.hits.Load(), a.hits.Load()), cmp.Compare(a.key, b.key))
	})
	for _, n := range hot[:min(len(hot), hotKeys)] {
		next.Hot = append(next.Hot, keyText(n.key))
	}
	next.Tracked = len(tracked)
	e.meta.Store(&next)
	return tracked
}

// Meta is cache_meta as the janitor last published it.
func (e *Engine) Meta() CacheMeta { return *e.meta.Load() }

// runBreakerJanitor steps the breakers: nobody else changes their state.
func (e *Engine) runBreakerJanitor(ctx context.Context) error {
	defer e.breakerTick.Stop()
	rule := e.boot.Breaker // that the breakers go by
	for {
		current, changed := e.config.Load()
		if current.Breaker != rule {
			rule = current.Breaker
			for _, p := range e.peers {
				p.breaker.Reload(rule.rule())
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		case <-e.breakerTick.C():
			for _, p := range e.peers {
				e.step(p)
			}
		}
	}
}

// step brings one breaker to now and shows what it has become.
func (e *Engine) step(p *peer) {
	before := p.breaker.State()
	after := p.breaker.Step(time.Now())
	if before == after {
		return
	}
	p.state[before](0)
	p.state[after](1)
	if after == flow.BreakerOpen {
		e.log.Warn("breaker_open", "target", p.Target())
	} else {
		e.log.Info("breaker_"+after.String(), "target", p.Target())
	}
}
