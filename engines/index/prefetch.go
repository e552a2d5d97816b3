package index

import (
	"context"
	"fmt"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/index/lookup"
	"ronbox/engines/index/name"
)

// MaxReindex bounds the keys of one call of Reindex.
const MaxReindex = 1000

// Reindex queues lookups of keys or content ids that bypass the cache and run after all other work.
// Without keys it uses those with the most hits. It returns the number of lookups and does not wait
// for them. It returns flow.ErrBusy if the queue is full.
func (e *Engine) Reindex(_ context.Context, by engines.Actor, keys []string, corrID string) (int, error) {
	if len(keys) > MaxReindex {
		return 0, &name.RecordError{Field: "keys", Reason: fmt.Sprintf("must be at most %d", MaxReindex)}
	}
	if len(keys) == 0 {
		keys = e.Meta().Hot
	}
	n := 0
	for _, text := range keys {
		jobs, err := lookups(text)
		if err != nil {
			return 0, err
		}
		n += len(jobs)
	}
	if n == 0 { // no key is hot
		return 0, nil
	}
	if err := e.reindexes.TrySend(keys); err != nil {
		return 0, fmt.Errorf("reindex: %w", err)
	}
	e.log.Info("reindex", "keys", len(keys), "principal", by.Principal, "corr_id", corrID)
	return n, nil
}

// lookups returns the jobs for a text: of a name, of a content id, or of both if it may be either.
func lookups(text string) (jobs []*job, err error) {
	key, err := name.ParseKey(text)
	if err == nil {
		jobs = append(jobs, &job{Call: lookup.Call{Text: key.String(), Key: key}, fresh: true})
	}
	if cid, cidErr := name.ParseCID(text); cidErr == nil {
		jobs = append(jobs, &job{Call: lookup.Call{Text: name.ProvidersKey(cid), CID: cid}, fresh: true})
	}
	if len(jobs) == 0 {
		return nil, err
	}
	return jobs, nil
}

// keyText returns the external form of a key of the cache.
func keyText(cached string) string {
	if len(cached) == 33 && cached[0] == 'p' {
		return name.CIDText([32]byte([]byte(cached[1:])))
	}
	return cached
}

// runPrefetcher is the only producer of bg_tx and waits for room in it. It sends the warm-up keys
// at the start, the keys of reindexes, and probes of peers with a half-open breaker.
func (e *Engine) runPrefetcher(ctx context.Context) error {
	defer e.probeTick.Stop()
	if !e.warmed.Swap(true) {
		if err := e.prefetch(ctx, e.boot.Cache.WarmupKeys); err != nil {
			return err
		}
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case keys, ok := <-e.reindexes.C():
			if !ok {
				return nil // drained
			}
			if err := e.prefetch(ctx, keys); err != nil {
				return err
			}
		case <-e.probeTick.C():
			for _, p := range e.peers.Load().Peers {
				if p.Breaker.State() != flow.BreakerHalfOpen {
					continue
				}
				if err := e.bg.Send(ctx, &job{probe: p}); err != nil {
					return err
				}
			}
		}
	}
}

// prefetch queues the lookups of valid keys.
func (e *Engine) prefetch(ctx context.Context, keys []string) error {
	for _, text := range keys {
		jobs, _ := lookups(text)
		for _, j := range jobs {
			if err := e.bg.Send(ctx, j); err != nil {
				return err
			}
		}
	}
	return nil
}

// renew queues a lookup of a name that asks its owner alone, to renew the kept record. It waits for
// room in bg_tx.
func (e *Engine) renew(ctx context.Context, key name.Key) error {
	return e.bg.Send(ctx, &job{Call: lookup.Call{Text: key.String(), Key: key}, fresh: true, renews: true})
}

// runObserver counts the events of events_tx.
func (e *Engine) runObserver(ctx context.Context) error {
	sub := e.events.Subscribe(taskObserver)
	defer sub.Close()
	for {
		ev, _, err := sub.Recv(ctx)
		switch {
		case err == nil:
			e.m.events[ev.Kind](1)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		default:
			return nil // drained
		}
	}
}
