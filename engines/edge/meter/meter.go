package meter

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/fleet"
	"ronbox/engines/fleet/usage"
	"ronbox/store"
)

// TaskName exists only in a fleet.
const TaskName = "meter"

// service is the name of the edge in metrics, logs and the catalogue.
const service = "edge"

// Signer returns the identity of this node and its key, which sign the statements of usage.
type Signer func() (peer string, key ed25519.PrivateKey)

// Bounds of metering. What exceeds them is not counted: a node may attest less than it received,
// never more.
const (
	// maxPending is the number of objects that wait for the next command. It is 1000 objects a
	// second for a minute, in 8 MiB of memory.
	maxPending = 60_000
	// maxCounted is the number of objects that are counted in an epoch. Each has a row until the
	// statement of the epoch is final, so that it is counted once; together they take 17 MB.
	maxCounted = 250_000
	// maxOpenEpochs is the number of epochs without a final statement. There are two, unless the
	// store refuses writes.
	maxOpenEpochs = 8
	// countBurst is the number of objects of one command, so that commands of other services can
	// run in between.
	countBurst = 1000
	// countEvery is the longest time that a count stays in memory, which a crash loses.
	countEvery = time.Minute
	// countWithin bounds the commands of one run, the one at the stop included.
	countWithin = 2 * time.Second
)

// Meter counts the bytes that this node received from other nodes of the fleet.
type Meter struct {
	d     Deps
	tick  *flow.Ticker
	mu    *flow.Mutex
	wait  map[objectKey]receipt // guarded by mu
	last  time.Time             // of the last run; owned by the task
	since openEpoch             // the epoch that was opened last; owned by the task
}

// Deps holds the dependencies of a meter.
type Deps struct {
	Catalog *flow.Catalog
	Store   *store.Store
	Log     hclog.Logger
	Now     func() time.Time   // wall clock
	Signer  Signer             // signs the statements of usage
	View    func() *fleet.View // returns the current version of the registry, or nil
	Damaged func(what string)  // counts and logs a damaged row
}

// openEpoch names an epoch of a length.
type openEpoch struct {
	number uint64
	length time.Duration
}

// objectKey is the first half of a digest. Two objects with one key count once.
type objectKey [16]byte

// receipt is an object that a node has sent.
type receipt struct {
	Object objectKey
	Node   string
	Size   uint64
	Placed bool
}

// New returns a meter, and declares its ticker and its buckets.
func New(d Deps) *Meter {
	d.Store.Declare(service, Buckets()...)
	return &Meter{
		d:    d,
		mu:   flow.NewMutex(d.Catalog, service, flow.RankCounters),
		wait: map[objectKey]receipt{},
		tick: flow.Every(d.Catalog, flow.Spec{
			Service:   service,
			Name:      "meter_tick",
			Consumers: []string{TaskName},
			Doc:       "checks whether counts are to be written or an epoch has ended",
		}, time.Second),
	}
}

// Tasks returns the task of the meter. A nil meter has none.
func (m *Meter) Tasks() []flow.Task {
	if m == nil {
		return nil
	}
	return []flow.Task{{
		Service:    service,
		Name:       TaskName,
		Count:      1,
		Restart:    flow.Always,
		Background: true,
		Lanes:      []string{"store.work"},
		Doc:        "writes what was received from other nodes, and the statements of epochs",
		Run:        m.run,
	}}
}

// Received counts an object whose hash was verified. It does not block. Objects of nodes that the
// registry does not name are not counted, nor is an object beyond maxPending.
func (m *Meter) Received(node string, d b3.Digest, size int64, placed bool) {
	if m == nil {
		return
	}
	view := m.d.View()
	if _, member := view.Node(node); !member || node == view.Self || size <= 0 {
		return
	}
	r := receipt{Object: objectKey(d[:]), Node: node, Size: uint64(size), Placed: placed}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, counted := m.wait[r.Object]; !counted && len(m.wait) < maxPending {
		m.wait[r.Object] = r
	}
}

// take returns the waiting objects, at most countBurst. The caller owns them.
func (m *Meter) take() (some []receipt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, r := range m.wait {
		if len(some) == countBurst {
			break
		}
		some = append(some, r)
		delete(m.wait, key)
	}
	return some
}

// putBack returns objects that were not written.
func (m *Meter) putBack(some []receipt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range some {
		if _, counted := m.wait[r.Object]; !counted && len(m.wait) < maxPending {
			m.wait[r.Object] = r
		}
	}
}

// run writes counts and statements until ctx ends, and then the remaining counts.
func (m *Meter) run(ctx context.Context) error {
	defer m.tick.Stop()
	tick := m.tick.C()
	for {
		select {
		case <-ctx.Done():
			m.step(context.WithoutCancel(ctx), true)
			return context.Cause(ctx)
		case <-tick:
			m.step(ctx, false)
		}
	}
}

// step writes the waiting counts, and then the statements of epochs that have ended. It does so
// once in countEvery, and more often in epochs of less than 4 minutes; with stop, at once and
// without statements.
func (m *Meter) step(ctx context.Context, stop bool) {
	view := m.d.View()
	if view == nil || view.Self == "" || view.Epoch < time.Second {
		return
	}
	now := m.d.Now()
	ran := now.Sub(m.last)
	if !stop && ran >= 0 && ran < min(countEvery, view.Epoch/4) {
		return
	}
	m.last = now
	ctx, cancel := context.WithTimeout(ctx, countWithin)
	defer cancel()
	err := m.count(ctx, view)
	if err == nil && !stop {
		err = m.finish(ctx, view)
	}
	if errors.Is(err, store.ErrCorrupt) {
		m.d.Damaged(err.Error())
		_, err = store.Commit(ctx, m.d.Store, store.Work, resetCounts{})
		m.since = openEpoch{}
	}
	if err != nil && ctx.Err() == nil {
		m.d.Log.Warn("usage", "reason", err.Error(), "effect", "what was received is not written", "next",
			"it is tried again within a minute")
	}
}

// count writes the waiting counts. At the first call in an epoch it opens the epoch, so that an
// epoch without a count has a statement, too. Counts of which it is unknown whether they were
// written are dropped: in another epoch they would count again.
func (m *Meter) count(ctx context.Context, view *fleet.View) error {
	now := openEpoch{usage.EpochOf(m.d.Now(), view.Epoch), view.Epoch}
	for {
		some := m.take()
		if len(some) == 0 && m.since == now {
			return nil
		}
		_, err := store.Commit(ctx, m.d.Store, store.Work, countReceived{
			Length:      int64(view.Epoch / time.Second),
			Incarnation: m.d.Store.Info().Incarnation,
			Receipts:    some,
		})
		if err != nil && !errors.Is(err, store.ErrUnknown) && !errors.Is(err, store.ErrCorrupt) {
			m.putBack(some)
		}
		if err != nil {
			return err
		}
		m.since = now
	}
}

// finish makes the statements of epochs that are over.
func (m *Meter) finish(ctx context.Context, view *fleet.View) error {
	type epoch struct {
		number uint64
		row    countRow
	}
	var over []epoch
	err := m.d.Store.View(ctx, func(r store.Reader) error {
		for number, row := range counts.All(r) {
			if !m.d.Now().Before(finalAt(number, row.length())) {
				over = append(over, epoch{number, row})
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	peer, key := m.d.Signer()
	incarnation := m.d.Store.Info().Incarnation
	for _, o := range over {
		c := finishEpoch{Epoch: o.number, Row: o.row}
		if o.row.Incarnation == incarnation {
			s := usage.Statement{
				Genesis:     view.Genesis,
				Node:        view.Self,
				Identity:    peer,
				Incarnation: incarnation,
				Epoch:       o.number,
				Length:      o.row.length(),
				Head:        view.Version,
				Rows:        o.row.rows(),
			}
			c.Statement = s.Sign(key)
		}
		if _, err := store.Commit(ctx, m.d.Store, store.Work, c); err != nil && !errors.Is(err, errNotOver) {
			return err
		}
	}
	return nil
}

// finalAt returns the earliest time of the statement of an epoch.
func finalAt(number uint64, length time.Duration) time.Time {
	_, end := usage.Window(number, length)
	return end.Add(usage.Grace(length))
}

// seenName returns the name of the sub-bucket of the objects of an epoch.
func seenName(number uint64) string { return string(binary.BigEndian.AppendUint64(nil, number)) }
