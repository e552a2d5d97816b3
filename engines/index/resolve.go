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
	entry  *entry
	source name.Source
}

type call = flow.Call[flightKey, struct{}, result]

// turn is an item of work_tx: the right to take one job from the line.
type turn struct{}

// job is a lookup in a queue. It is answered exactly once. A job of bg_tx has no waiter.
type job struct {
	text         string   // key of the cache
	key          name.Key // name to look up; zero: look up cid
	cid          b3.Digest
	region       string // region of the first caller, for the order of peers
	fresh, local bool
	from         netip.Addr // network of the first caller
	cost         int        // rate tokens taken if the lookup leaves this node
	quiet        bool       // its network has asked little
	fence        mark
	deadline     time.Time
	call         *call         // nil for a job of bg_tx
	probe        *peers.Peer   // of bg_tx: probe only this peer
	read         bool          // this node's file was read, and peers are to be asked
	asked        time.Duration // time spent asking peers

	set     *peers.Set          // peers and owners when this node's file was read
	owner   *peers.Owner        // other node that owns the name; nil: none
	held    *records.Kept       // kept record of the owner; nil: none
	renews  bool                // of bg_tx: asks the owner alone, to renew the kept record
	trusted []ed25519.PublicKey // keys that are trusted for key
	known   []name.Provider     // providers of cid in this node's file
}

// Network returns the network of the first caller.
func (j *job) Network() netip.Addr { return j.from }

// Quiet reports whether that network has asked little.
func (j *job) Quiet() bool { return j.quiet }

func (j *job) isName() bool { return !j.key.IsZero() }

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
		text: key.String(), key: key, fresh: o.Fresh, local: o.Local, from: o.From.Network, cost: o.From.Cost,
	})
	e.m.latency(e.now().Sub(begun).Seconds())
	if err != nil {
		return name.Answer{}, err
	}
	n := res.entry
	a := name.Answer{
		Key:      key,
		Manifest: n.manifest,
		Seq:      n.seq,
		Source:   res.source,
		Age:      age(n, begun),
		ETag:     n.etag,
		Conflict: n.conflict,
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
func (e *Engine) recordOf(key name.Key, n *entry) ([]byte, error) {
	if n.record != nil {
		return n.record, nil
	}
	ttl := nameTTL
	if e.peers.Load().Owns(key, e.id) {
		ttl = siteTTL
	}
	r := name.NameRecord{
		Key:       key,
		Manifest:  n.manifest,
		Seq:       n.seq,
		UpdatedMS: n.updated,
		ExpiresMS: e.wall().Add(ttl).UnixMilli(),
	}
	return r.Sign(e.key)
}

// Providers returns the providers of cid, the best first: from this node's file or, if it has none,
// from the peers. Otherwise it behaves as Resolve.
func (e *Engine) Providers(ctx context.Context, cid b3.Digest, o name.ProvidersOptions) (name.ProviderSet, error) {
	begun := e.now()
	res, err := e.answer(ctx, begun, job{
		text:   name.ProvidersKey(cid),
		cid:    cid,
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
	set := name.Rank(n.providers, o.Region, o.Limit, e.now().UnixMilli())
	if len(set) == 0 {
		return name.ProviderSet{}, name.ErrNotFound
	}
	return name.ProviderSet{CID: cid, Providers: set, Source: res.source, Age: age(n, begun), ETag: n.etag}, nil
}

func age(n *entry, now time.Time) time.Duration { return max(0, now.Sub(time.Unix(0, n.filled))) }

// answer returns a hit of the cache, or joins a lookup.
func (e *Engine) answer(ctx context.Context, now time.Time, j job) (result, error) {
	s := e.live()
	if s.InlineHits && !j.fresh {
		if n, ok := e.hit(j.text, j.local, now); ok {
			return n.answer()
		}
	}
	miss := j // the copy is allocated on the heap; a hit does not need it
	return e.join(ctx, s, &miss)
}

// answer returns the entry as a cache hit.
func (n *entry) answer() (result, error) {
	if !n.found {
		return result{}, n.missing()
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
	j.fence = e.mark(s, j)
	c, first, err := e.flight.Join(flightKey{j.text, j.fence.at, e.peers.Load().Era, j.fresh, j.local}, struct{}{})
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

// mark returns the fence with which j begins. Its cell lives as long as the lookup may take.
func (e *Engine) mark(s *settings, j *job) mark {
	return e.fences.mark(j.text, e.now().Add(2*s.deadline).UnixNano())
}

// begin answers j from this node's file, or queues it for the peers. A read of the file therefore
// waits for no other lookup.
func (e *Engine) begin(ctx context.Context, s *settings, j *job) {
	if s.InlineHits && e.here(context.WithoutCancel(ctx), s, j) { // other callers may wait for it too
		return
	}
	j.quiet = e.quiet != nil && e.quiet(j.from)
	evicted, err := e.line.Push(j, s.deadline-s.fair)
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
