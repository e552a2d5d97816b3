package lookup

import (
	"context"
	"crypto/ed25519"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/index/name"
	"ronbox/engines/index/peers"
)

// Pace is the part of the configuration that a lookup uses.
type Pace struct {
	Alpha, Beta int           // peers of the first and of the second wave
	Hedge       time.Duration // after which the second wave begins
	Fair        time.Duration // a call cut off by the deadline after less time does not count against its peer
	LateFor     time.Duration // time for which lookups do not wait for a peer that missed the hedge time
	TTL         time.Duration // of answers that were found
	Neg         time.Duration // of "not found"
	StaleFor    time.Duration // time after TTL for which an answer may be served stale
}

// Call holds the key of a lookup and the peers to ask.
type Call struct {
	Text     string    // key of the cache
	Key      name.Key  // name to look up; zero: look up CID
	CID      b3.Digest // content id
	Fence    Mark
	Deadline time.Time
	Trusted  []ed25519.PublicKey // keys that are trusted for Key
	Known    []name.Provider     // providers of CID in this node's file
	Held     *Sighting           // kept record of the owner of the name; nil: none

	Order []*peers.Peer // peers to ask, in this order
	Owner *peers.Peer   // owner of the name, the first in Order; nil: it has none
	Sole  bool          // the owner alone is trusted for the name, so that its "not found" is final
}

// IsName reports whether a name is looked up.
func (c *Call) IsName() bool { return !c.Key.IsZero() }

// Outcome is the result of a lookup: an entry, found or not, or an error.
type Outcome struct {
	Entry   *Entry
	TTL     time.Duration
	Until   int64 // the first signed expiry, Unix ms; 0: none
	Err     error
	Without []*peers.Peer // of a "not found": the peers that gave this answer
	Late    bool          // the deadline ended the lookup
	Denied  bool          // of a "not found": the sole owner of the name gave it
}

// Asker asks peers. Its methods are safe for concurrent use.
type Asker struct {
	log       hclog.Logger
	now, wall func() time.Time
	answers   *Answers
	retry     flow.Retrier
	m         metrics
}

// Deps holds what an asker uses. Metrics may be nil.
type Deps struct {
	Catalog *flow.Catalog
	Metrics *obs.Metrics
	Log     hclog.Logger
	Now     func() time.Time // the clock of everything that is stored
	Wall    func() time.Time // the clock of signed records
	Answers *Answers
}

// metrics holds the series of calls of peers.
type metrics struct {
	lookupMS   func(float64)
	integrity  func(int)
	conflicts  func(int)
	won, lost  func(int)            // lookups with a second wave
	peerErrors map[string]func(int) // by kind
	legs       atomic.Int64         // concurrent calls of peers
}

// New returns an asker. It starts nothing.
func New(d Deps) *Asker {
	reg := d.Metrics
	a := &Asker{log: d.Log, now: d.Now, wall: d.Wall, answers: d.Answers}
	a.retry = flow.Retry(retryDelay, maxRetries+1, retryable).Counting(d.Catalog, service, "dht")
	a.m.lookupMS = reg.HistogramOnUse("index_dht_lookup_ms", service)
	a.m.integrity = reg.Counter("index_integrity_fail_total", service)
	a.m.conflicts = reg.Counter("index_name_conflicts_total", service)
	a.m.won = reg.Counter("dht_hedged_requests_total", service, "result", "win")
	a.m.lost = reg.Counter("dht_hedged_requests_total", service, "result", "lose")
	a.m.peerErrors = map[string]func(int){}
	for _, kind := range []string{"transient", "no_route", "timeout", "invalid", "overtaken"} {
		a.m.peerErrors[kind] = reg.Counter("dht_errors_total", service, "kind", kind)
	}
	reg.Gauge("dht_legs_inflight", service, func() float64 { return float64(a.m.legs.Load()) })
	return a
}

// LookUp asks peers as p and c say, and returns after every leg has ended. done is called as soon
// as the outcome is known, even if a leg ignores the end of its context.
func (a *Asker) LookUp(ctx context.Context, p *Pace, c Call, done func(Outcome)) {
	(&lookup{Asker: a, Pace: p, Call: c, done: done}).run(ctx)
}
