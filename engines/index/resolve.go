package index

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/netip"
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
	from         netip.Addr // the network of the first who asked
	cost         int        // of its rate, if the lookup leaves this node
	fence        mark
	deadline     time.Time
	call         *call         // nil: of bg_tx
	probe        *peer         // of bg_tx: this peer alone is asked, for a sign of life
	read         bool          // this node's file was looked at, and peers are to be asked
	asked        time.Duration // how long peers were asked

	trusted []ed25519.PublicKey // whose word counts for key
	known   []Provider          // what the file has on cid
}

func (j *job) isName() bool { return !j.key.IsZero() }

// Resolve returns the manifest that key stands for: from the cache, this node's file or, if their word is trusted for it, a peer. It does not
// wait for room in the queue and takes about index.dht.deadline_ms at most. ErrNotFound is final for now; after flow.ErrBusy, a *RateError, ErrTimeout,
// ErrUpstream, a *BreakerOpenError or flow.ErrCanceled the same call may succeed later. A damaged row is a
// [store.RowError].
func (e *Engine) Resolve(ctx context.Context, key Key, o ResolveOptions) (Answer, error) {
	if key.IsZero() {
		return Answer{}, &KeyError{"must not be empty"}
	}
	begun := e.now()
	res, err := e.answer(ctx, begun, job{
		text: key.text, key: key, fresh: o.Fresh, local: o.Local, from: o.From.Network, cost: o.From.Cost,
	})
	e.m.latency(e.now().Sub(begun).Seconds())
	if err != nil {
		return Answer{}, err
	}
	n := res.entry
	a := Answer{Key: key, Manifest: n.manifest, Seq: n.seq, Source: res.source, Age: age(n, begun), ETag: n.etag, Conflict: n.conflict}
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
	res, err := e.answer(ctx, begun, job{
		text: cidText(cid), cid: cid, region: o.Region, fresh: o.Fresh, local: o.Local, from: o.From.Network, cost: o.From.Cost,
	})
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

// join waits for the lookup of j, which it begins if none is under way. A lookup that another caller began and that
// was refused for that caller's share or rate is begun again, once.
func (e *Engine) join(ctx context.Context, s *settings, j *job) (result, error) {
	res, first, err := e.joinOnce(ctx, s, j)
	if !first && refused(err) {
		res, _, err = e.joinOnce(ctx, s, j)
	}
	switch {
	case err == nil:
		return res, nil
	case errors.Is(err, flow.ErrUnknown): // a lookup changes nothing: only the caller has left
		err = context.Cause(ctx)
	}
	return result{}, fmt.Errorf("lookup: %w", err)
}

// refused reports whether err is a refusal that depends on the network of the caller.
func refused(err error) bool {
	_, rate := errors.AsType[*RateError](err)
	return rate || errors.Is(err, flow.ErrBusy)
}

func (e *Engine) joinOnce(ctx context.Context, s *settings, j *job) (res result, first bool, err error) {
	j.fence = e.mark(s, j)
	c, first, err := e.flight.Join(flightKey{j.text, j.fence.at, j.fresh, j.local}, struct{}{})
	switch {
	case err != nil:
		return result{}, true, err
	case first:
		j.call, j.deadline = c, time.Now().Add(s.deadline)
		e.begin(ctx, s, j)
	default:
		e.m.joined(1)
	}
	res, err = c.Wait(ctx)
	return res, first, err
}

// mark returns the fence that j begins with. Its cell is there for as long as the lookup may take.
func (e *Engine) mark(s *settings, j *job) mark {
	return e.fences.mark(j.text, e.now().Add(2*s.deadline).UnixNano())
}

// begin answers j from this node's file, or queues it for the peers. So a read of the file waits for no lookup.
func (e *Engine) begin(ctx context.Context, s *settings, j *job) {
	if s.InlineHits && e.here(context.WithoutCancel(ctx), s, j) { // others may wait for it too
		return
	}
	gaveWay, err := e.line.push(j, s.deadline-s.fair)
	if gaveWay != nil { // its turn is j's now
		e.m.dropped(1)
		gaveWay.call.Fail(flow.ErrBusy)
		return
	}
	if err != nil {
		e.m.dropped(1)
		j.call.Fail(err)
		return
	}
	if err := e.work.TrySend(turn{}); err != nil { // closed: the line is never longer than the queue
		if other := e.line.withdraw(j); other != nil {
			other.call.Fail(err)
		}
	}
}
