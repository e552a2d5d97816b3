package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// turnBank is a node that a run calls when it is its turn.
type turnBank struct {
	*fakeBank
	wait func()
}

func (t turnBank) History(ctx context.Context, q client.HistoryQuery) (wire.History, error) {
	t.wait()
	return t.fakeBank.History(ctx, q)
}

func (t turnBank) LedgerHead(ctx context.Context) (wire.LedgerHead, error) {
	t.wait()
	return t.fakeBank.LedgerHead(ctx)
}

func (t turnBank) Roots(ctx context.Context, since uint64, limit int) (wire.Roots, error) {
	t.wait()
	return t.fakeBank.Roots(ctx, since, limit)
}

func (t turnBank) Account(ctx context.Context, account string) (wire.Account, error) {
	t.wait()
	return t.fakeBank.Account(ctx, account)
}

func (t turnBank) Batch(ctx context.Context, key string, b wire.Batch) (client.BatchPosted, error) {
	t.wait()
	return t.fakeBank.Batch(ctx, key, b)
}

// turns runs body up to its next wait, each time that it is called; false once body has ended.
func turns(body func(wait func())) (next func() bool, stop func()) {
	step, stop := iter.Pull(func(yield func(struct{}) bool) {
		going := true
		body(func() { going = going && yield(struct{}{}) })
	})
	return func() bool { _, more := step(); return more }, stop
}

// Two runs of one name at the same time, with states of their own, in chunks of their own, and through lost answers and
// kills, do no row twice, whichever of them is called when.
func TestTwoBatchesOfOneName(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		draw := rng.IntN
		if rapid.Bool().Draw(t, "nothing is lost") {
			draw = func(int) int { return 7 }
		}
		f := newFakeBank(draw)
		for _, name := range []string{"a", "b", "c"} {
			f.balance[name] = rapid.IntRange(0, 20).Draw(t, "balance")
		}
		rows := drawSameRows(t, 0, rapid.IntRange(1, 15).Draw(t, "rows"))
		if err := identify(rows); err != nil {
			t.Fatal(err)
		}
		var going []func() bool
		for i := range 2 {
			state, most := filepath.Join(dir, fmt.Sprint(n, "-", i)), rapid.IntRange(1, 6).Draw(t, "most")
			next, stop := turns(func(wait func()) {
				b, err := runFake(t, turnBank{f, wait}, rows, state, modeIndependent, most, false)
				for tries := 0; err != nil && reasonOf(err) != reasonDoneBefore; tries++ {
					if !errors.Is(err, errKilled) && !errors.Is(err, client.ErrUnknown) && judge(err).reason != "nonce_taken" || tries > 2000 {
						t.Fatal(err)
					}
					b, err = runFake(t, turnBank{f, wait}, rows, state, modeIndependent, most, false)
				}
				if err == nil {
					checkSame(t, f, b, rows)
				}
			})
			defer stop()
			going = append(going, next)
		}
		for len(going) > 0 {
			if i := rng.IntN(len(going)); !going[i]() {
				going = append(going[:i], going[i+1:]...)
			}
			checkSame(t, f, nil, rows)
		}
	})
}

// Two processes send one file to one node at the same time, each with a state and chunks of its own, some rows of it being
// refused: every other row is paid once.
func TestTwoBatchesOnANode(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	p := b.start(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "pay.csv")
	const paid, tooMuch, every = 240, 2_000_000, 40
	text := "op,from,to,asset,amount_minor,memo\n"
	for i := range paid {
		if i%every == 0 {
			text += fmt.Sprintf("transfer,alice,bob,ron,%d,too much %d\n", tooMuch, i)
		}
		text += fmt.Sprintf("transfer,alice,bob,ron,1,row %d\n", i)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var runs sync.WaitGroup
	for _, chunk := range []string{"3", "5"} {
		runs.Go(func() {
			r := spawn(t, b.args("wallet", "batch", file, "--chunk", chunk, "--state", filepath.Join(dir, chunk), "--json")...)
			var doc batchDoc
			decode(t, r.stdout, &doc)
			if r.code != exitFailed || doc.Accepted != paid || len(doc.Refused) != paid/every {
				t.Errorf("in chunks of %s: exit %d, %+v\n%s", chunk, r.code, doc, r.stderr)
			}
		})
	}
	runs.Wait()
	var h wire.History
	must(t, &h, b.args("wallet", "history", "bob", "--limit", "500", "--json")...)
	seen := map[string]int{}
	for _, e := range h.Entries {
		seen[e.Memo]++
	}
	if len(h.Entries) != paid || len(seen) != paid {
		t.Errorf("%d payments of %d rows, %d were to be paid", len(h.Entries), len(seen), paid)
	}
	if code := p.signal(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("the node ended with %d\n%s", code, p.stderr)
	}
}
