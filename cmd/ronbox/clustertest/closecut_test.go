package clustertest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/host/hosttest"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	ledgerapi "ronbox/httpapi/wire/ledger"
	nodeapi "ronbox/httpapi/wire/node"
	walletapi "ronbox/httpapi/wire/wallet"
	"ronbox/store"
)

const (
	closeCuts   = 4    // images of each kind, unless -cuts is more
	pastPayees  = 20   // payments of a batch
	pastRecords = 2000 // about
)

// past is a ledger of another year: payments under references of the caller of these tests, and a
// settlement.
type past struct {
	file    string // its export
	records uint64
	posted  engines.Amount // that the first payee has
	end     time.Time
}

// principal is the caller of the socket of a node.
func principal() string { return fmt.Sprint("uid:", os.Getuid()) }

// oldPayment is a payment of the past.
func oldPayment(n int) walletapi.Issue {
	return walletapi.Issue{
		To: fmt.Sprint("old/", n%pastPayees), Asset: "ron", AmountMinor: "7", Reference: fmt.Sprint("old-", n),
	}
}

// newPast returns a ledger of another year, which a node has made with a clock of then.
func newPast(t testing.TB, dir string) *past {
	t.Helper()
	clock, ctx, path := ledgertest.NewClock(), t.Context(), filepath.Join(dir, "past.db")
	clock.Set(time.Now().Add(-400 * 24 * time.Hour))
	id, err := store.NewIdentity(clock.Now())
	must(t, errors.Join(err, store.Create(path, id)))
	catalog := flow.NewCatalog(nil, nil)
	s := store.New(store.DefaultConfig(), store.Options{Path: path, Catalog: catalog, Now: clock.Now})
	m := ledger.New(ledger.DefaultConfig(), ledger.Deps{Catalog: catalog, Store: s, Now: clock.Now})
	must(t, errors.Join(s.Open(ctx), s.Prepare(ctx)))
	committed := make(chan error, 1)
	go func() { committed <- s.Tasks()[0].Run(ctx) }()
	must(t, m.Recover(ctx))
	pays(t, m, clock)
	p := &past{file: filepath.Join(dir, "past.ndjson"), end: clock.Now().Add(time.Hour)}
	p.posted = engines.AmountOf(0, 7*pastRecords/pastPayees)
	head, err := m.Head(ctx)
	p.records = head.Seq
	var text []byte
	must(t, errors.Join(err, m.Export(ctx, 0, 0, func(l record.Line) error { text = l.Append(text); return nil })))
	must(t, m.Close(ctx))
	s.CloseLanes()
	must(t, errors.Join(<-committed, s.Close(), os.WriteFile(p.file, text, 0o600)))
	return p
}

// pays makes the payments of the past.
func pays(t testing.TB, m *ledger.Local, clock *ledgertest.Clock) {
	t.Helper()
	_, err := m.Commit(t.Context(), []ledger.Op{{Code: record.OpAsset, Asset: "ron"}})
	must(t, err)
	for n := 0; n < pastRecords; n += pastPayees {
		clock.Advance(time.Minute)
		var ops []ledger.Op
		for i := range pastPayees {
			o := oldPayment(n + i)
			ops = append(ops, ledger.Op{
				Code: record.OpIssue, To: o.To, Asset: o.Asset, Amount: engines.AmountOf(0, 7),
				Principal: principal(), Reference: o.Reference,
			})
		}
		_, err := m.Commit(t.Context(), ops)
		must(t, err)
	}
	clock.Advance(time.Minute)
	_, err = m.Settle(t.Context(), ledger.Once{Domain: "payout", ID: "epoch", Digest: b3.Sum([]byte("epoch"))},
		[]ledger.Op{{Code: record.OpIssue, To: "pool", Asset: "ron", Amount: engines.AmountOf(0, 70)}})
	must(t, err)
}

// closing is a node alone that closes the past.
type closing struct {
	*node
	past    *past
	content string // content_b3 of the file
	began   int    // lines of the trace before the closing, about
}

// isReady waits until the node is ready, and returns its socket.
func (c *closing) isReady(t testing.TB) *client.Client {
	t.Helper()
	socket := c.socket(t)
	until(t, "the node is ready", []*node{c.node}, func() bool { return ready(t.Context(), socket) })
	return socket
}

// closes closes the past unless that is under way or done, and waits until nothing of it is left in
// the database.
func (c *closing) closes(t testing.TB) {
	t.Helper()
	socket := c.isReady(t)
	admin, periods := nodeapi.NewClient(socket), ledgerapi.NewClient(socket)
	until(t, "the past is closed", []*node{c.node}, func() bool {
		s, err := admin.LedgerClosing(t.Context())
		must(t, err)
		list, err := periods.LedgerPeriods(t.Context(), 0)
		must(t, err)
		switch {
		case s.State == "failed":
			t.Fatalf("the closing failed: %s", s.Error)
		case s.State != "idle":
		case len(list.Periods) == 0:
			_, err := admin.CloseLedger(t.Context(), nodeapi.LedgerCloseRequest{
				Before: c.past.end.UTC().Format(time.RFC3339), Fast: true,
			})
			if refused, ok := errors.AsType[*wire.Problem](err); ok && refused.Reason == nodeapi.ReasonCloseRunning {
				err = nil // the closer has not looked yet
			}
			must(t, err)
		default:
			content := list.Periods[0].ContentB3
			if c.content == "" {
				c.content = content
			}
			if content != c.content || len(list.Periods) != 1 || list.Periods[0].ToSeq != c.past.records {
				t.Fatalf("the periods are %+v, want one with the content %s", list.Periods, c.content)
			}
			return true
		}
		return false
	})
}

// refuses repeats a payment of the past, which is refused while it is closed, and answered as before
// otherwise. Nobody is paid twice.
func (c *closing) refuses(t testing.TB, n int) {
	t.Helper()
	w := walletapi.NewClient(c.socket(t))
	_, err := w.Issue(t.Context(), fmt.Sprint("again-", n), oldPayment(n))
	if refused, ok := errors.AsType[*wire.Problem](err); ok && refused.Reason == "period_closed" {
		err = nil
	}
	must(t, err)
	b, err := w.Balance(t.Context(), oldPayment(n).To, "ron", 0)
	must(t, err)
	if b.PostedMinor != c.past.posted.String() {
		t.Errorf("%s has %s, want %s", oldPayment(n).To, b.PostedMinor, c.past.posted)
	}
}

// whole fails unless each record since the first is in the database or in the file of the period.
func (c *closing) whole(t testing.TB, dir string) (closed bool) {
	t.Helper()
	file := filepath.Join(dir, "ronbox.db")
	var doc struct {
		OK      bool   `json:"ok"`
		Records uint64 `json:"records"`
		Closed  uint64 `json:"closed_periods"`
		Head    struct {
			Seq uint64 `json:"seq"`
		} `json:"head"`
	}
	c.must(t, &doc, "ledger", "verify", file, "--json")
	if closed = doc.Closed != 0; closed {
		c.must(t, &doc, "ledger", "verify", file, "--periods", filepath.Join(dir, "periods"), "--json")
	}
	if !doc.OK || doc.Records != doc.Head.Seq || doc.Records < c.past.records {
		t.Fatalf("records are missing: %+v", doc)
	}
	return closed
}

// lives closes the past under strace, and returns what the trace shows.
func (c *closing) lives(t testing.TB) *disk {
	t.Helper()
	parent := filepath.Dir(c.dir)
	base, trace := filepath.Join(parent, "base"), filepath.Join(parent, "trace")
	must(t, copyTree(c.dir, base))
	c.with = []string{
		hosttest.Tool(t, "strace", "strace"), "-D", "-f", "-qq", "--seccomp-bpf", "-y", "-xx", "-s", "16777216",
		"-e", "trace=" + tracedCalls, "-e", "signal=none", "-o", trace, "--",
	}
	c.launch(t)
	c.with = nil
	c.isReady(t)
	text, err := os.ReadFile(trace)
	must(t, err)
	c.began = bytes.Count(text, []byte("\n"))
	c.closes(t)
	c.refuses(t, 0)
	c.kill()
	k, err := newDisk(c.dir, base)
	must(t, err)
	must(t, k.read(trace))
	return k
}

// A node that is killed, or loses its power, after any system call of a closing has each record since
// the first, pays nothing twice, and ends the closing with a file of the same content.
func TestCloseCut(t *testing.T) {
	t.Parallel()
	if hosttest.UnderRace() {
		t.Skip("what counts is another process")
	}
	d := rand.New(rand.NewPCG(hosttest.Seed(t, "CLUSTER_SEED"), 14))
	c := &closing{node: newNode(t, "a")}
	c.past = newPast(t, filepath.Dir(c.dir))
	c.must(t, nil, "init", "-q")
	c.must(t, nil, "ledger", "import", c.past.file, "-q")
	k := c.lives(t)
	closed := 0
	for i, at := range c.cutPlaces(k.last, d) {
		keep := all
		if i%2 == 1 {
			keep = fair(d)
		}
		must(t, k.image(at, keep, c.dir))
		if _, err := os.Stat(filepath.Join(c.dir, "ronbox.db")); err != nil {
			t.Fatalf("call %d: %v", at, err)
		}
		if c.whole(t, c.dir) {
			closed++
		}
		c.launch(t)
		c.isReady(t)
		c.refuses(t, d.IntN(pastRecords))
		c.closes(t)
		c.refuses(t, d.IntN(pastRecords))
		if code := c.stop(t); code != 0 {
			t.Fatalf("call %d: exit %d", at, code)
		}
		if !c.whole(t, c.dir) {
			t.Fatalf("call %d: the period is not closed", at)
		}
		if left, _ := filepath.Glob(filepath.Join(c.dir, "periods", "*")); len(left) != 1 ||
			strings.HasSuffix(left[0], ".partial") {
			t.Errorf("call %d: in the folder are %v", at, left)
		}
		if t.Failed() {
			t.Fatalf("call %d of %d, power cut: %v", at, k.last, i%2 == 1)
		}
	}
	t.Logf("of calls %d to %d; the period was closed in %d images", c.began, k.last, closed)
}

// cutPlaces returns the calls of the closing behind which a node is killed, and loses its power: some
// of each. With -cuts they are all calls, or so many.
func (c *closing) cutPlaces(last int, d *rand.Rand) (at []int) {
	calls := last - c.began
	n := max(closeCuts, min(*cutsFlag, calls))
	for i := range n {
		from, to := c.began+i*calls/n, c.began+(i+1)*calls/n
		place := from + 1 + d.IntN(to-from)
		at = append(at, place, place)
	}
	return at
}
