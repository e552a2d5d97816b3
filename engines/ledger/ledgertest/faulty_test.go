package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// insist commits o until it knows the outcome, as a client without an answer does.
func insist(ctx context.Context, c ledger.Client, o ledger.Op) (out ledger.Outcome, tries []string, err error) {
	for range 200 {
		call, cancel := context.WithTimeout(ctx, time.Second)
		outs, err := c.Commit(call, []ledger.Op{o})
		cancel()
		if err == nil {
			return outs[0], tries, nil
		}
		tries = append(tries, err.Error())
		if !errors.Is(err, ledger.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			return out, tries, err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return out, tries, errors.New("no outcome after 200 tries")
}

// storm runs clients that pay concurrently through faults. It returns the model, the number of
// faults of each kind, and a trace.
func storm(t *testing.T, seed uint64, clients, payments int) (m *Model, faults map[Fault]int, trace string) {
	m = NewModel(nil)
	f := NewFaulty(m, Storm(seed))
	ctx := t.Context()
	for i := range clients {
		if _, err := m.Commit(ctx, []ledger.Op{{Code: record.OpAsset, Asset: fmt.Sprint("ron", i)}}); err != nil {
			t.Fatal(err)
		}
	}
	traces := make([]string, clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			account := fmt.Sprint("account", i)
			for n := range payments {
				o := ledger.Op{
					Code:   record.OpTransfer,
					From:   account,
					To:     "shop",
					Asset:  fmt.Sprint("ron", i),
					Amount: ron(1),
					Nonce:  uint64(n),
				}
				if n == 0 { // an asset of one's own, so that no two clients share a nonce
					o = ledger.Op{
						Code:   record.OpIssue,
						To:     account,
						Asset:  fmt.Sprint("ron", i),
						Amount: ron(1000),
						Nonce:  1,
					}
				}
				out, tries, err := insist(ctx, f, keyed(o, account, fmt.Sprint("k", n)))
				if err != nil || out.Reject != nil {
					t.Errorf("%s, payment %d: %v, %v after %v", account, n, out.Reject, err, tries)
				}
				traces[i] += fmt.Sprintln(account, n, tries)
			}
		})
	}
	wg.Wait()
	faults = f.Count()
	if err := f.Close(ctx); err != nil {
		t.Error(err)
	}
	return m, faults, strings.Join(traces, "")
}

// Whatever calls or answers are lost, delayed or duplicated, a client that retries is served
// exactly once.
func TestInsistingConverges(t *testing.T) {
	const clients, payments = 4, 30
	met := map[Fault]int{}
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			m, faults, _ := storm(t, seed, clients, payments)
			for k, n := range faults {
				met[k] += n
			}
			for i := range clients {
				for account, want := range map[string]uint64{fmt.Sprint("account", i): 1000 - (payments - 1), "shop": payments - 1} {
					k := acctAsset{Account: account, Asset: fmt.Sprint("ron", i)}
					if got := m.books.of(k).balance(); got.Uint64() != want {
						t.Errorf("seed %d: %v has %s, want %d", seed, k, got, want)
					}
				}
			}
			if got, want := len(m.books.batches), clients*(1+payments); got != want {
				t.Errorf("seed %d: %d batches, want %d", seed, got, want)
			}
		})
	}
	for _, k := range []Fault{Refused, Lost, Forgotten, Late, Repeated, Yielded, Stalled, Outage} {
		if met[k] == 0 {
			t.Errorf("no call was %s", k)
		}
	}
}

// The same seed produces the same faults in the same calls, and another seed produces others.
func TestSameSeedSameFaults(t *testing.T) {
	run := func(seed uint64) (faults map[Fault]int, trace string) {
		synctest.Test(t, func(t *testing.T) { _, faults, trace = storm(t, seed, 1, 40) })
		return faults, trace
	}
	one, oneTrace := run(7)
	two, twoTrace := run(7)
	if !maps.Equal(one, two) || oneTrace != twoTrace {
		t.Errorf("%v and %v", one, two)
	}
	if _, other := run(8); other == oneTrace {
		t.Error("two seeds bring the same faults")
	}
}

// A pause stops writes and probes, but not reads.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(NewModel(nil), Faults{})
		f.Pause()
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.Probe(late); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("probe: %v", err)
		}
		if _, err := f.Head(t.Context()); err != nil {
			t.Errorf("read: %v", err)
		}
		done := make(chan struct{})
		began := time.Now()
		go func() {
			defer close(done)
			outs, err := f.Commit(t.Context(), []ledger.Op{{Code: record.OpAsset, Asset: "ron"}})
			if err != nil || outs[0].Reject != nil {
				t.Errorf("commit: %+v, %v", outs, err)
			}
		}()
		time.Sleep(2 * time.Second)
		f.Resume()
		<-done
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

// A delayed write stays delayed while writes are paused. A read does not apply it.
func TestPauseKeepsWhatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewModel(nil)
		f := NewFaulty(m, Faults{Late: 1})
		if _, err := f.Commit(t.Context(), []ledger.Op{{Code: record.OpAsset, Asset: "ron"}}); !errors.Is(
			err,
			ledger.ErrUnavailable,
		) {
			t.Fatal(err)
		}
		f.Pause()
		for range 20 {
			if _, err := f.Head(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if h, err := m.Head(t.Context()); err != nil || h.Seq != 0 {
			t.Errorf("a write passed while paused: %+v, %v", h, err)
		}
		f.Resume()
		if h, err := f.Head(t.Context()); err != nil || h.Seq == 0 {
			t.Errorf("it is still late: %+v, %v", h, err)
		}
	})
}
