package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	ledgerapi "ronbox/httpapi/wire/ledger"
	nodeapi "ronbox/httpapi/wire/node"
)

// A ledger of the past, which the test closes in parts.
const (
	pastRecords = 2000 // in a part, about
	pastRow     = 20   // payments of a batch
	closeLife   = 400 * time.Millisecond
)

// TestKill9Close kills the node at random points of closings, with payments beside them. The node
// goes on after each kill, and at the end every record since the first is in a file of a period or
// in the database: those of before, and each payment that was answered, once. Every second node
// has an archive, and at the end its files are there alone.
func TestKill9Close(t *testing.T) {
	skipRaceOnly(t)
	tellSeed(t)
	for n, done := 0, 0; done < *kills; n, done = n+1, done+killsPerBox {
		cycles := min(killsPerBox, *kills-done)
		t.Run(fmt.Sprintf("%d-%d", done+1, done+cycles), func(t *testing.T) {
			t.Parallel()
			killClosing(t, cycles, n%2 == 0)
		})
	}
}

// importsPast gives a node that was not started yet a ledger with a number of parts that can be
// closed one after the other, since no keys count for their records. It returns the number of
// records and the times between two parts.
func (b *box) importsPast(t *testing.T, parts int) (records uint64, ends []time.Time) {
	t.Helper()
	clock := ledgertest.NewClock()
	m, ctx := ledgertest.NewModel(clock.Now), t.Context()
	if err := m.Declare(ctx, "ron"); err != nil {
		t.Fatal(err)
	}
	for part := range parts {
		for row := range pastRecords / pastRow {
			clock.Advance(time.Minute)
			ops := []ledger.Op{}
			for n := range pastRow {
				o := ledger.Op{
					Code: record.OpIssue, To: fmt.Sprintf("old/%d", n), Asset: "ron", Amount: engines.AmountOf(0, 7),
					Principal: "past", Reference: fmt.Sprintf("old-%d-%d-%d", part, row, n),
				}
				ops = append(ops, o)
			}
			if _, err := m.Commit(ctx, ops); err != nil {
				t.Fatal(err)
			}
		}
		clock.Advance(time.Hour)
		ends = append(ends, clock.Now())
	}
	path := filepath.Join(filepath.Dir(b.dir), "past.ndjson")
	out := []byte(nil)
	if err := m.Export(ctx, 0, 0, func(l record.Line) error { out = l.Append(out); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, out, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(b.dir); err != nil { // a node for development has a ledger with a key
		t.Fatal(err)
	}
	must(t, nil, b.args("init", "-q")...)
	must(t, nil, b.args("ledger", "import", path, "-q")...)
	head, err := m.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return head.Seq, ends
}

// killClosing kills one node the given number of times. If copied is set, the node has an archive.
func killClosing(t *testing.T, cycles int, copied bool) {
	t.Helper()
	b, d := newDiskBox(t), draws(t, "close kills")
	b.env = append(b.env, "RONBOX_WALLET__LIMITS__RATE_PER_SECOND=1000000", "RONBOX_WALLET__LIMITS__BURST=1000000")
	before, ends := b.importsPast(t, 1+cycles/2)
	var a away
	if copied {
		a = b.archives(t)
		b.env = append(b.env, "RONBOX_LEDGER__PERIODS_LOCAL=false")
	}
	p := b.start(t)
	var gate sync.RWMutex
	var ps []*payer
	for i := range payers {
		name := fmt.Sprint("payer", i)
		must(t, nil, b.args("wallet", "issue", name, fmt.Sprint(fortune), "-q")...)
		ps = append(ps, &payer{box: b, name: name, to: fmt.Sprint("payer", (i+1)%payers), gate: &gate})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for _, payer := range ps {
		wg.Go(func() { payer.run(t, ctx) })
	}
	states := map[string]int{}
	for range cycles {
		states[b.killClosingOnce(t, d, p, ends)]++
		p = b.start(t)
		c := b.client(t)
		gate.Lock()
		for _, payer := range ps {
			payer.look(t, c)
		}
		gate.Unlock()
		c.Close()
		if t.Failed() {
			break
		}
	}
	cancel()
	wg.Wait()
	all := 0
	for _, payer := range ps {
		all += payer.all
	}
	files := b.closesRest(t, ends)
	if copied {
		b.keepsNoPeriod(t)
	}
	if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone {
		t.Errorf("the last life ended with %d\n%s", code, p.stderr)
	}
	t.Logf("%d kills in the states %v, %d payments, %d periods", cycles, states, all, files)
	if copied {
		dir := filepath.Join(b.dir, "periods")
		must(t, nil, append([]string{"archive", "restore", "--periods", dir}, a.flags...)...)
	}
	b.checkPeriods(t, before+uint64(all))
}

// keepsNoPeriod waits until a node has removed its files of closed periods.
func (b *box) keepsNoPeriod(t *testing.T) {
	t.Helper()
	until(t, "the files are gone", func() bool {
		left, _ := filepath.Glob(filepath.Join(b.dir, "periods", "*"))
		return len(left) == 0
	})
}

// killClosingOnce begins a closing unless one is under way, and kills the node. It returns the state
// that was seen last.
func (b *box) killClosingOnce(t *testing.T, d *rand.Rand, p *process, ends []time.Time) string {
	t.Helper()
	c := b.client(t)
	defer c.Close()
	b.beginsClosing(t, c, ends)
	time.AfterFunc(drawTime(d, closeLife), func() { _ = p.cmd.Process.Signal(syscall.SIGKILL) })
	seen := ""
	for {
		s, err := c.LedgerClosing(t.Context())
		if err != nil {
			<-p.done
			return seen
		}
		if seen = s.State; s.State == "failed" {
			t.Errorf("the closing failed: %s", s.Error)
		}
		time.Sleep(time.Millisecond)
	}
}

// beginsClosing asks for the next part, if none is under way. It reports whether any is left.
func (b *box) beginsClosing(t *testing.T, c *apiClient, ends []time.Time) (left bool) {
	t.Helper()
	at, err := c.LedgerClosing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list, err := ledgerapi.NewClient(c.Client).LedgerPeriods(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Periods) == len(ends) {
		return false
	}
	if at.State == "idle" || at.State == "dropping" {
		r := nodeapi.LedgerCloseRequest{Before: ends[len(list.Periods)].Format(time.RFC3339Nano)}
		_, err := c.CloseLedger(t.Context(), r)
		if refused, ok := errors.AsType[*wire.Problem](err); ok {
			switch refused.Reason {
			case nodeapi.ReasonCloseRunning, nodeapi.ReasonCloseTooRecent:
				return true // the node had just started, and had not looked yet
			}
		}
		if err != nil && !client.Retryable(err) {
			t.Fatal(err)
		}
	}
	return true
}

// closesRest closes all parts that are left, and returns the number of periods.
func (b *box) closesRest(t *testing.T, ends []time.Time) int {
	t.Helper()
	c := b.client(t)
	defer c.Close()
	list := ledgerapi.NewClient(c.Client)
	for closed, left := 0, true; left; closed++ {
		until(t, fmt.Sprintf("%d parts are closed", closed), func() bool {
			left = b.beginsClosing(t, c, ends)
			got, err := list.LedgerPeriods(t.Context(), 0)
			return err != nil || !left || len(got.Periods) >= closed
		})
	}
	return len(ends)
}

// checkPeriods verifies the ledger of a stopped node from its first record on. It must have so many
// records at least.
func (b *box) checkPeriods(t *testing.T, least uint64) {
	t.Helper()
	r := spawn(t, b.args("ledger", "verify", "--periods", filepath.Join(b.dir, "periods"), "--json")...)
	var doc struct {
		OK      bool   `json:"ok"`
		Records uint64 `json:"records"`
		FromSeq uint64 `json:"from_seq"`
		Head    struct {
			Seq uint64 `json:"seq"`
		} `json:"head"`
	}
	if decode(t, r.stdout, &doc); r.code != cli.ExitDone || !doc.OK || doc.FromSeq > 1 || doc.Records != doc.Head.Seq {
		t.Fatalf("verify: exit %d, %+v\n%s\n%s", r.code, doc, r.stdout, r.stderr)
	}
	if doc.Records < least {
		t.Errorf("%d records in all, at least %d were answered", doc.Records, least)
	}
}
