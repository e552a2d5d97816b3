package period_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger/period"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// shelf is an archive in memory. Parts are of 1,000 bytes.
type shelf struct {
	mu     sync.Mutex
	parts  map[string][]byte
	away   error                               // it does not answer
	unread bool                                // nothing is read back
	fault  func(part int) error                // of a part that is not there; may be nil
	after  func(ctx context.Context, part int) // of a part that was made; may be nil
	asked  []int                               // parts, in order

	reached atomic.Int64 // calls of Reach
}

const shelfPart = 1000

func (a *shelf) Parts(bytes uint64) int { return int((bytes + shelfPart - 1) / shelfPart) }

func (a *shelf) Reach(context.Context) error {
	a.reached.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.away
}

func (a *shelf) Holds(_ context.Context, p *tables.Period) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for part := range a.Parts(p.Bytes) {
		if _, holds := a.parts[fmt.Sprintf("%s/%05d", p.FileB3, part)]; !holds {
			return false, nil
		}
	}
	return true, nil
}

func (a *shelf) CopyPart(ctx context.Context, p *tables.Period, part int) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, part)
	raw, err := os.ReadFile(p.File)
	if err != nil {
		return false, err
	}
	raw = raw[part*shelfPart : min((part+1)*shelfPart, len(raw))]
	name := fmt.Sprintf("%s/%05d", p.FileB3, part)
	if have, there := a.parts[name]; there {
		if !bytes.Equal(have, raw) {
			return false, errors.New("another object")
		}
		return !a.unread, nil
	}
	if a.fault != nil {
		if err := a.fault(part); err != nil {
			return false, err
		}
	}
	a.parts[name] = raw
	if a.after != nil {
		a.after(ctx, part)
	}
	return !a.unread, context.Cause(ctx)
}

// holds checks that the archive has the file of a period.
func (a *shelf) holds(n *node, no uint64) {
	n.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	n.view(func(r store.Reader) {
		row, _ := tables.GetPeriod(r, no)
		var bytes int
		for part := range a.Parts(row.Bytes) {
			bytes += len(a.parts[fmt.Sprintf("%s/%05d", row.FileB3, part)])
		}
		if row.Copies != 1 || bytes != int(row.Bytes) {
			n.Errorf("period %d has %d copies, and %d of its %d bytes are in the archive", no, row.Copies, bytes, row.Bytes)
		}
	})
}

// keeps returns a closer with an archive, whose task runs until stop is called.
func (n *node) keeps(a period.Archive, cfg period.Config) (c *period.Closer, stop func()) {
	n.Helper()
	c = period.NewCloser(cfg, period.Deps{
		Store: n.s, Ledger: n.l, Catalog: flow.NewCatalog(nil, nil), Now: n.clock.Now, Archive: a,
	})
	return c, n.runs(c)
}

// closes closes what there is, and waits for the end. It returns the path of the file.
func (n *node) closes(c *period.Closer, dir string) string {
	n.Helper()
	n.pay(20)
	n.clock.Advance(time.Hour)
	p, err := c.Close(n.Context(), period.Ask{Before: n.clock.Now(), Dir: dir, Fast: true})
	n.must(err)
	n.closed(c, p.Period)
	n.await(c, "idle")
	return p.File
}

// closed waits until a closer has closed a period.
func (n *node) closed(c *period.Closer, number uint64) {
	n.Helper()
	n.until(func() bool {
		if s := c.State(); s.State == "failed" {
			n.Fatal(s.Error)
		}
		return n.horizon().Period >= number
	})
}

func (n *node) exists(path string, want bool) {
	n.Helper()
	if gone(path) == want {
		n.Errorf("%s: want it there: %v", path, want)
	}
}

func gone(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// until waits until a condition holds.
func (n *node) until(holds func() bool) {
	n.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			n.Fatal("it never holds")
		}
	}
}

// holding is an archive that does not answer.
type holding struct{ period.Archive }

func (holding) CopyPart(ctx context.Context, _ *tables.Period, _ int) (bool, error) {
	<-ctx.Done()
	return false, context.Cause(ctx)
}
