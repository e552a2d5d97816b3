package index

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
)

// flightKey is what callers join a lookup for. The fence is in it: a caller that has seen a write is not given what was looked up before it.
type flightKey struct {
	text         string
	fence        uint64
	fresh, local bool
}

// result is what a lookup gives to all who wait for it.
type result struct {
	entry  *entry
	source Source
}

type call = flow.Call[flightKey, struct{}, result]

// job is a lookup on its way through a queue. It is answered exactly once; one of bg_tx has nobody who waits.
type job struct {
	text         string // of the cache
	key          Key    // of a name; zero: cid is asked for
	cid          b3.Digest
	region       string // of the first who asked: which peers come first
	fresh, local bool
	fence        mark
	deadline     time.Time
	call         *call // nil: of bg_tx
	probe        *peer // of bg_tx: this peer alone is asked, for a sign of life

	trusted []ed25519.PublicKey // whose word counts for key
	known   []Provider          // what the file has on cid
}

func (j *job) isName() bool { return !j.key.IsZero() }

// Resolve returns the manifest that key stands for: from the cache, this node's file or, if their word is trusted for it, a peer. It does not
// wait for room in the queue and takes about index.dht.deadline_ms at most. ErrNotFound is final for now; after flow.ErrBusy, ErrTimeout, ErrUpstream,
// a *BreakerOpenError or flow.ErrCanceled the same call may succeed later.
func (e *Engine) Resolve(ctx context.Context, key Key, o ResolveOptions) (Answer, error) {
	if key.IsZero() {
		return Answer{}, &KeyError{"must not be empty"}
	}
	begun := e.now()
	res, err := e.answer(ctx, begun, job{text: key.text, key: key, fresh: o.Fresh, local: o.Local})
	e.m.latency(e.now().Sub(begun).Seconds())
	if err != nil {
		return Answer{}, err
	}
	n := res.entry
	a := Answer{Key: key, Manifest: n.manifest, Seq: n.seq, Source: res.source, Age: age(n, begun), ETag: n.etag}
	if o.Local {
		r := NameRecord{Key: key, Manifest: n.manifest, Seq: n.seq, UpdatedMS: n.updated, ExpiresMS: begun.Add(nameTTL).UnixMilli()}
		a.Record, err = r.Sign(e.key)
	}
	return a, err
}

// Providers lists the providers of cid, the best first: of this node's file and, if that knows nobody, of the peers. Else it is as
// Resolve.
func (e *Engine) Providers(ctx context.Context, cid b3.Digest, o ProvidersOptions) (ProviderSet, error) {
	begun := e.now()
	res, err := e.answer(ctx, begun, job{text: cidText(cid), cid: cid, region: o.Region, fresh: o.Fresh, local: o.Local})
	e.m.latency(e.now().Sub(begun).Seconds())
	if err != nil {
		return ProviderSet{}, err
	}
	n := res.entry
	set := rank(n.providers, o.Region, o.Limit, e.now().UnixMilli())
	if len(set) == 0 {
		return ProviderSet{}, ErrNotFound
	}
	return ProviderSet{CID: cid, Providers: set, Source: res.source, Age: age(n, begun), ETag: n.etag}, nil
}

func age(n *entry, now time.Time) time.Duration { return max(0, now.Sub(time.Unix(0, n.filled))) }

// answer takes a hit from the cache, or joins a lookup.
func (e *Engine) answer(ctx context.Context, now time.Time, j job) (result, error) {
	s := e.live()
	if s.InlineHits && !j.fresh {
		if n, ok := e.hit(j.text, j.local, now); ok {
			return n.answer()
		}
	}
	miss := j // the copy is on the heap, a hit's is not
	return e.join(ctx, s, &miss)
}

// answer is the entry as a hit.
func (n *entry) answer() (result, error) {
	if !n.found {
		return result{}, ErrNotFound
	}
	return result{n, SourceCache}, nil
}

// join waits for the lookup of j, which it begins if none is under way.
func (e *Engine) join(ctx context.Context, s *settings, j *job) (result, error) {
	j.fence = e.fences.mark(j.text)
	c, first, err := e.flight.Join(flightKey{j.text, j.fence.at, j.fresh, j.local}, struct{}{})
	if err != nil {
		return result{}, fmt.Errorf("lookup: %w", err)
	}
	if first {
		j.call, j.deadline = c, time.Now().Add(s.deadline)
		if err := e.work.TrySend(j); err != nil {
			c.Fail(err)
		}
	} else {
		e.m.joined(1)
	}
	res, err := c.Wait(ctx)
	switch {
	case err == nil:
		return res, nil
	case errors.Is(err, flow.ErrUnknown): // a lookup changes nothing: only the caller has left
		err = context.Cause(ctx)
	}
	return result{}, fmt.Errorf("lookup: %w", err)
}
