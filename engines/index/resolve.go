package index

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/index/lookup"
	"ronbox/engines/index/name"
	"ronbox/engines/index/peers"
	"ronbox/engines/index/records"
)

// flightKey identifies a lookup that callers may join. It includes the fence and the era of the
// owners: a caller that has seen a write, or another owner, does not join a lookup that began
// before.
type flightKey struct {
	text         string
	fence, era   uint64
	fresh, local bool
}

// result is the result of a lookup for all its waiters.
type result struct {
	entry  *lookup.Entry
	source name.Source
}

type call = flow.Call[flightKey, struct{}, result]

// turn is an item of work_tx: the right to take one job from the line.
type turn struct{}

// job is a lookup in a queue. It is answered exactly once. A job of bg_tx has no waiter.
type job struct {
	lookup.Call         // its peers are set when they are asked
	region       string // region of the first caller, for the order of peers
	fresh, local bool
	from         netip.Addr    // network of the first caller
	cost         int           // rate tokens taken if the lookup leaves this node
	quiet        bool          // its network has asked little
	call         *call         // nil for a job of bg_tx
	probe        *peers.Peer   // of bg_tx: probe only this peer
	read         bool          // this node's file was read, and peers are to be asked
	asked        time.Duration // time spent asking peers

	set    *peers.Set    // peers and owners when this node's file was read
	by     *peers.Owner  // other node that owns the name; nil: none
	kept   *records.Kept // kept record of the owner; nil: none
	renews bool          // of bg_tx: asks the owner alone, to renew the kept record
}

// Network returns the network of the first caller.
func (j *job) Network() netip.Addr { return j.from }

// Quiet reports whether that network has asked little.
func (j *job) Quiet() bool { return j.quiet }

// Resolve returns the manifest of key: from the cache, from this node's file or, if a key is
// trusted for the name, from a peer. It does not wait for room in the queue and takes about
// index.dht.deadline_ms at most. ErrNotFound is final for now. After flow.ErrBusy, a *RateError,
// ErrTimeout, ErrUpstream, a *BreakerOpenError or flow.ErrCanceled a retry may succeed. A damaged
// row is a [store.RowError].
func (e *Engine) Resolve(ctx context.Context, key name.Key, o name.ResolveOptions) (name.Answer, error) {
	if key.IsZero() {
		return name.Answer{}, &name.KeyError{Reason: "must not be empty"}
	}
	begun := e.now()
	res, err := e.answer(ctx, begun, job{
		Call:  lookup.Call{Text: key.String(), Key: key},
		fresh: o.Fresh,
		local: o.Local,
		from:  o.From.Network,
		cost:  o.From.Cost,
	})
	e.m.latency(e.now().Sub(begun).Seconds())
	if err != nil {
		return name.Answer{}, err
	}
	n := res.entry
	a := name.Answer{
		Key:      key,
		Manifest: n.Manifest,
		Seq:      n.Seq,
		Source:   res.source,
		Age:      age(n, begun),
		ETag:     n.ETag,
		Conflict: n.Conflict,
	}
	if o.Local {
		a.Record, err = e.recordOf(key, n)
	}
	return a, err
}

// nameTTL is the lifetime of a signed name record. Another node may serve the record for that time,
// even if this node is gone.
const nameTTL = time.Hour

// siteTTL is the lifetime of the record of a name that the fleet gives to this node. Others renew
// it every hour, so that they serve the name for about two days without its owner.
const siteTTL = 48 * time.Hour

// recordOf returns the signed record of a name for a node that asks: that of the owner, or one of
// this node's own file.
func (e *Engine) recordOf(key name.Key, n *lookup.Entry) ([]byte, error) {
	if n.Record != nil {
		return n.Record, nil
	}
	ttl := nameTTL
	if e.peers.Load().Owns(key, e.id) {
		ttl = siteTTL
	}
	r := name.NameRecord{
		Key:       key,
		Manifest:  n.Manifest,
		Seq:       n.Seq,
		UpdatedMS: n.Updated,
		ExpiresMS: e.wall().Add(ttl).UnixMilli(),
	}
	return r.Sign(e.key)
}

// Providers returns the providers of cid, the best first: from this node's file or, if it has none,
// from the peers. Otherwise it behaves as Resolve.
func (e *Engine) Providers(ctx context.Context, cid b3.Digest, o name.ProvidersOptions) (name.ProviderSet, error) {
	begun := e.now()
	res, err := e.answer(ctx, begun, job{
		Call:   lookup.Call{Text: name.ProvidersKey(cid), CID: cid},
		region: o.Region,
		fresh:  o.Fresh,
		local:  o.Local,
		from:   o.From.Network,
		cost:   o.From.Cost,
	})
	e.m.latency(e.now().Sub(begun).Seconds())
	if err != nil {
		return name.ProviderSet{}, err
	}
	n := res.entry
	set := name.Rank(n.Providers, o.Region, o.Limit, e.now().UnixMilli())
	if len(set) == 0 {
		return name.ProviderSet{}, name.ErrNotFound
	}
	return name.ProviderSet{CID: cid, Providers: set, Source: res.source, Age: age(n, begun), ETag: n.ETag}, nil
}

func age(n *lookup.Entry, now time.Time) time.Duration {
	return max(0, now.Sub(time.Unix(0, n.Filled)))
}

// answer returns a hit of the cache, or joins a lookup.
func (e *Engine) answer(ctx context.Context, now time.Time, j job) (result, error) {
	s := e.live()
	if s.InlineHits && !j.fresh {
		if n, ok := e.answers.Hit(j.Text, j.local, now); ok {
			return cached(n)
		}
	}
	miss := j // the copy is allocated on the heap; a hit does not need it
	return e.join(ctx, s, &miss)
}

// cached returns an entry of the cache as a result.
func cached(n *lookup.Entry) (result, error) {
	if !n.Found {
		return result{}, n.Missing()
	}
	return result{n, name.SourceCache}, nil
}

// join waits for the lookup of j, and begins it if it is not running. If the lookup of another
// caller was refused for that caller's share or rate, join begins it again once, unless it found no
// worker in time.
func (e *Engine) join(ctx context.Context, s *settings, j *job) (result, error) {
	res, first, err := e.joinOnce(ctx, s, j)
	if !first && refused(err) && !errors.Is(err, errNoWorker) {
		res, _, err = e.joinOnce(ctx, s, j)
	}
	switch {
	case err == nil:
		return res, nil
	case errors.Is(err, flow.ErrUnknown): // a lookup has no effects: the caller has left
		err = context.Cause(ctx)
	}
	return result{}, fmt.Errorf("lookup: %w", err)
}

// refused reports whether err is a refusal that depends on the network of the caller.
func refused(err error) bool {
	_, rate := errors.AsType[*name.RateError](err)
	return rate || errors.Is(err, flow.ErrBusy)
}

func (e *Engine) joinOnce(ctx context.Context, s *settings, j *job) (res result, first bool, err error) {
	j.Fence = e.mark(s, j)
	c, first, err := e.flight.Join(flightKey{j.Text, j.Fence.At, e.peers.Load().Era, j.fresh, j.local}, struct{}{})
	switch {
	case err != nil:
		return result{}, true, err
	case first:
		j.call, j.Deadline = c, time.Now().Add(s.deadline)
		e.begin(ctx, s, j)
	default:
		e.m.joined(1)
	}
	res, err = c.Wait(ctx)
	return res, first, err
}

// mark returns the fence with which j begins. Its cell lives as long as the lookup may take.
func (e *Engine) mark(s *settings, j *job) lookup.Mark {
	return e.answers.Mark(j.Text, e.now().Add(2*s.deadline).UnixNano())
}

// begin answers j from this node's file, or queues it for the peers. A read of the file therefore
// waits for no other lookup.
func (e *Engine) begin(ctx context.Context, s *settings, j *job) {
	if s.InlineHits && e.here(context.WithoutCancel(ctx), s, j) { // other callers may wait for it too
		return
	}
	j.quiet = e.quiet != nil && e.quiet(j.from)
	evicted, err := e.line.Push(j, s.deadline-s.pace.Fair)
	if evicted != nil { // j takes its turn
		e.m.dropped(1)
		evicted.call.Fail(flow.ErrBusy)
		return
	}
	if err != nil {
		e.m.dropped(1)
		j.call.Fail(err)
		return
	}
	if err := e.work.TrySend(turn{}); err != nil { // closed; it cannot be full, since the line is never longer
		if other := e.line.Withdraw(j); other != nil {
			other.call.Fail(err)
		}
	}
}
