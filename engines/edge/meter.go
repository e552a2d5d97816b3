package edge

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/fleet"
	"ronbox/engines/fleet/usage"
	"ronbox/store"
)

// taskMeter exists only in a fleet.
const taskMeter = "meter"

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

// meter counts the bytes that this node received from other nodes of the fleet.
type meter struct {
	e     *Engine
	tick  *flow.Ticker
	mu    *flow.Mutex
	wait  map[objectKey]receipt // guarded by mu
	last  time.Time             // of the last run; owned by the task
	since openEpoch             // the epoch that was opened last; owned by the task
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

// newMeter returns a meter, and declares its ticker and its buckets. It returns nil without a
// Signer.
func newMeter(e *Engine) *meter {
	if e.d.Fleet == nil || e.d.Fleet.Signer == nil {
		return nil
	}
	e.d.Store.Declare(service, UsageBuckets()...)
	return &meter{
		e:    e,
		mu:   flow.NewMutex(e.d.Catalog, service, flow.RankCounters),
		wait: map[objectKey]receipt{},
		tick: flow.Every(e.d.Catalog, flow.Spec{
			Service:   service,
			Name:      "meter_tick",
			Consumers: []string{taskMeter},
			Doc:       "checks whether counts are to be written or an epoch has ended",
		}, time.Second),
	}
}

// tasks returns the task of the meter. A nil meter has none.
func (m *meter) tasks() []flow.Task {
	if m == nil {
		return nil
	}
	return []flow.Task{{
		Service:    service,
		Name:       taskMeter,
		Count:      1,
		Restart:    flow.Always,
		Background: true,
		Lanes:      []string{"store.work"},
		Doc:        "writes what was received from other nodes, and the statements of epochs",
		Run:        m.run,
	}}
}

// view returns the current version of the registry, or nil.
func (m *meter) view() *fleet.View {
	if n := m.e.neighbors(); n != nil {
		return n.view
	}
	return nil
}

// received counts an object whose hash was verified. It does not block. Objects of nodes that the
// registry does not name are not counted, nor is an object beyond maxPending.
func (m *meter) received(node string, d b3.Digest, size int64, placed bool) {
	if m == nil {
		return
	}
	view := m.view()
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
func (m *meter) take() (some []receipt) {
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
func (m *meter) putBack(some []receipt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range some {
		if _, counted := m.wait[r.Object]; !counted && len(m.wait) < maxPending {
			m.wait[r.Object] = r
		}
	}
}

// run writes counts and statements until ctx ends, and then the remaining counts.
func (m *meter) run(ctx context.Context) error {
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
func (m *meter) step(ctx context.Context, stop bool) {
	view := m.view()
	if view == nil || view.Self == "" || view.Epoch < time.Second {
		return
	}
	now := m.e.now()
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
		m.e.damaged("row", err.Error())
		_, err = store.Commit(ctx, m.e.d.Store, store.Work, resetCounts{})
		m.since = openEpoch{}
	}
	if err != nil && ctx.Err() == nil {
		m.e.log.Warn("usage", "reason", err.Error(), "effect", "what was received is not written", "next",
			"it is tried again within a minute")
	}
}

// count writes the waiting counts. At the first call in an epoch it opens the epoch, so that an
// epoch without a count has a statement, too. Counts of which it is unknown whether they were
// written are dropped: in another epoch they would count again.
func (m *meter) count(ctx context.Context, view *fleet.View) error {
	now := openEpoch{usage.EpochOf(m.e.now(), view.Epoch), view.Epoch}
	for {
		some := m.take()
		if len(some) == 0 && m.since == now {
			return nil
		}
		_, err := store.Commit(ctx, m.e.d.Store, store.Work, countReceived{
			Length:      int64(view.Epoch / time.Second),
			Incarnation: m.e.d.Store.Info().Incarnation,
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
func (m *meter) finish(ctx context.Context, view *fleet.View) error {
	type epoch struct {
		number uint64
		row    countRow
	}
	var over []epoch
	err := m.e.d.Store.View(ctx, func(r store.Reader) error {
		for number, row := range counts.All(r) {
			if !m.e.now().Before(finalAt(number, row.length())) {
				over = append(over, epoch{number, row})
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	peer, key := m.e.d.Fleet.Signer()
	incarnation := m.e.d.Store.Info().Incarnation
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
		if _, err := store.Commit(ctx, m.e.d.Store, store.Work, c); err != nil && !errors.Is(err, errNotOver) {
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
