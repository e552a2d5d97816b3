package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ronbox/engines/ledger/idem"
	"ronbox/httpapi/client"
	"ronbox/store"
)

// TestKill9Seal kills the node while it seals slots of the idempotency index, payments going on: each one that was answered is answered
// with the same bytes, and the ledger is sound. A slot holds eight keys here, so that payments close one with almost every batch and each
// turn of the sealer has many to seal. A key counts for a minute: runs are dropped, and the node is killed doing it, in a test that lasts
// longer than that, which is one of a thousand kills.
func TestKill9Seal(t *testing.T) {
	tellSeed(t)
	t.Parallel() // the sealer looks once a second
	b, d := newBox(t), draws(t, "kills")
	b.env = append(b.env, "RONBOX_WALLET__LIMITS__RATE_PER_SECOND=1000000", "RONBOX_WALLET__LIMITS__BURST=1000000", "RONBOX_LEDGER__SLOT_MAX=8",
		"RONBOX_WALLET__IDEMPOTENCY_TTL=1m", "RONBOX_LEDGER__SLOT_WIDTH=1m")
	p := b.start(t)
	var ps []*payer
	var gate sync.RWMutex
	for i := range payers {
		name := fmt.Sprint("payer", i)
		must(t, nil, b.args("wallet", "issue", name, decimal(fortune), "-q")...)
		ps = append(ps, &payer{box: b, name: name, to: fmt.Sprint("payer", (i+1)%payers), gate: &gate})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for _, payer := range ps {
		wg.Go(func() { payer.run(t, ctx) })
	}
	halves, cycles := 0, 4
	if *kills >= 1000 {
		cycles = *kills / 10
	}
	for range cycles {
		b.killSealing(t, d, p)
		halves += b.halfRuns(t)
		b.checkLedger(t)
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
	b.checkMoney(t, ps)
	if code := p.signal(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("the last life ended with %d\n%s", code, p.stderr)
	}
	b.checkLedger(t)
	t.Logf("%d runs were left without an end", halves)
}

// killSealing kills the node a moment after it has sealed or dropped a slot.
func (b *box) killSealing(t *testing.T, d *rand.Rand, p *process) {
	t.Helper()
	c := b.client(t)
	defer c.Close()
	before := sealedKeys(t, c)
	until(t, "slots are sealed", func() bool { return sealedKeys(t, c) != before })
	time.AfterFunc(drawTime(d, 20*time.Millisecond), func() { _ = p.cmd.Process.Signal(syscall.SIGKILL) })
	<-p.done
}

// sealedKeys is how many keys a node has in sealed slots.
func sealedKeys(t *testing.T, c *client.Client) (keys int) {
	t.Helper()
	raw, err := c.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if series, value, _ := strings.Cut(line, " "); strings.HasPrefix(series, "idem_entries{") && strings.Contains(series, `"sealed"`) {
			_, _ = fmt.Sscan(value, &keys)
			return keys
		}
	}
	t.Fatal("no count of sealed keys")
	return 0
}

// halfRuns is how many sealed slots of a node that does not run have no end.
func (b *box) halfRuns(t *testing.T) int {
	t.Helper()
	f, err := store.OpenReader(filepath.Join(b.dir, "ronbox.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	l := idem.New(1, idem.Cut{}).Loader()
	if err := f.View(t.Context(), func(r store.Reader) error {
		for !l.Step(r) {
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return len(l.Half())
}
