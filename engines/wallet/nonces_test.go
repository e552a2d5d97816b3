package wallet

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

func strict(pipeline int) *settings {
	c := DefaultConfig()
	c.NoncePipeline = pipeline
	return &settings{Config: c, limits: c.limits()}
}

// nonceJob is a job that is noted.
func nonceJob(n *nonces, account string, lo, hi uint64) *job {
	j := &job{needs: []need{{account: account, lo: lo, hi: hi}}}
	n.note(j)
	return j
}

func nonceTable(shards int) *nonces { return newNonces(flow.NewCatalog(nil, nil), shards) }

func (n *nonces) place(b *burst, j *job, set *settings) place { return n.placeOf(b, j, 0, set) }

func (n *nonces) placeOf(b *burst, j *job, i int, set *settings) place {
	if p, _ := n.wait(b, j, &j.needs[i], set); p != free {
		return p
	}
	return n.take(b, &j.needs[i], set.limits.Monotonic)
}

// Of all who reserve one nonce of an account at once, one succeeds.
func TestOneReservation(t *testing.T) {
	n, set := nonceTable(4), strict(1024)
	for round := range 200 {
		var won atomic.Int32
		var wg sync.WaitGroup
		for range 8 {
			b := &burst{}
			for range 4 { // several jobs of one burst, too
				wg.Go(func() {
					j := nonceJob(n, name(round), 7, 8)
					if n.place(b, j, set) == reserved {
						won.Add(1)
					}
				})
			}
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d reservations", won.Load())
		}
	}
}

// A job that follows an earlier one in other hands waits, one that does not goes on by itself, one too many is told so.
func TestPlaces(t *testing.T) {
	n, set := nonceTable(1), strict(2)
	first, other := &burst{}, &burst{}
	jobs := map[string]*job{}
	for i, step := range []struct {
		name   string
		b      *burst
		lo, hi uint64
		want   place
	}{
		{"5", first, 5, 6, reserved}, {"5 again", first, 5, 6, loose}, {"6-7", first, 6, 8, reserved}, {"9, gap", first, 9, 10, loose},
		{"6 again", other, 6, 7, parked}, {"20, gap", other, 20, 21, loose}, {"8", other, 8, 9, parked}, {"7", other, 7, 8, crowded},
	} {
		j := nonceJob(n, "a", step.lo, step.hi)
		jobs[step.name] = j
		if got := n.place(step.b, j, set); got != step.want {
			t.Errorf("step %d, %s: place %d, want %d", i, step.name, got, step.want)
		}
	}
	first.leave()
	woken := n.strike(jobs["6-7"], nil)
	if len(woken) != 2 || woken[0] != jobs["6 again"] || woken[1] != jobs["8"] {
		t.Errorf("woken: %v", woken)
	}
	if got := n.place(other, jobs["8"], set); got != reserved {
		t.Errorf("8, after those before it were answered: %d", got)
	}
	for _, j := range jobs {
		n.strike(j, nil)
	}
	if n.live.Load() != 0 {
		t.Errorf("%d slots are left", n.live.Load())
	}
}

// A job never waits for one that was noted after it, so that no two wait for each other.
func TestOnlyForEarlierJobs(t *testing.T) {
	n, set := nonceTable(1), strict(9)
	six := nonceJob(n, "a", 6, 7)
	five := nonceJob(n, "a", 5, 6)
	if got := n.place(&burst{}, six, set); got != reserved {
		t.Errorf("6, noted before 5: %d", got)
	}
	if got := n.place(&burst{}, five, set); got != loose {
		t.Errorf("5: %d", got)
	}
}

// Where nonces may skip, whatever is ahead waits for what goes before it.
func TestMonotonicPlaces(t *testing.T) {
	n, set := nonceTable(1), strict(2)
	set.limits.Monotonic = true
	first, other := &burst{}, &burst{}
	for i, step := range []struct {
		b     *burst
		nonce uint64
		want  place
	}{
		{first, 5, reserved}, {first, 9, reserved}, {first, 7, loose}, {other, 20, parked}, {other, 12, parked}, {other, 30, crowded}, {other, 4, loose},
	} {
		if got := n.place(step.b, nonceJob(n, "a", step.nonce, step.nonce+1), set); got != step.want {
			t.Errorf("step %d: nonce %d has place %d, want %d", i, step.nonce, got, step.want)
		}
	}
}

// However jobs come and go: nobody who waits is forgotten, each waits for an earlier one only, and a slot goes with the last of its jobs.
func TestSlotsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, set := nonceTable(2), strict(rapid.IntRange(1, 4).Draw(t, "pipeline"))
		bursts := []*burst{{}, {}, {}}
		var noted, waiting []*job
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(noted) > 0 && rapid.Bool().Draw(t, "answer") {
				i := rapid.IntRange(0, len(noted)-1).Draw(t, "which")
				j := noted[i]
				account := j.needs[0].account
				noted = slices.Delete(noted, i, i+1)
				woken := n.strike(j, nil)
				for _, w := range waiting {
					if (w.needs[0].account == account || w == j) != slices.Contains(woken, w) {
						t.Fatal("not those of the account are woken")
					}
				}
				waiting = slices.DeleteFunc(waiting, func(w *job) bool { return slices.Contains(woken, w) })
			} else {
				lo := rapid.Uint64Range(1, 6).Draw(t, "lo")
				j := nonceJob(n, name(rapid.IntRange(0, 2).Draw(t, "account")), lo, lo+rapid.Uint64Range(1, 3).Draw(t, "n"))
				b := rapid.SampledFrom(bursts).Draw(t, "burst")
				got := n.place(b, j, set)
				before := slices.ContainsFunc(noted, func(o *job) bool {
					return o.needs[0].account == j.needs[0].account && o.needs[0].lo < lo && o.needs[0].hi >= lo
				})
				if (got == parked || got == crowded) && !before {
					t.Fatal("waits for nobody")
				}
				if got == parked {
					waiting = append(waiting, j)
				}
				noted = append(noted, j)
			}
			accounts := map[string]bool{}
			for _, j := range noted {
				accounts[j.needs[0].account] = true
			}
			if n.live.Load() != int64(len(accounts)) {
				t.Fatalf("%d slots for %d accounts", n.live.Load(), len(accounts))
			}
		}
	})
}

// A client that does not wait for its answers has its requests done in the order of their nonces, whatever workers they fall to.
func TestPipeline(t *testing.T) {
	r := newRig(t, with(func(c *Config) { c.Workers, c.WorkerBurst = 8, 4 })).start()
	r.fund("alice", 1000)
	for round := range 10 {
		var wg sync.WaitGroup
		errs := make([]error, 32)
		for i := range errs {
			nonce := uint64(round*len(errs) + i + 1)
			j := &ask{by: alice, key: "p" + name(int(nonce)), op: record.OpTransfer, one: transfer("alice", "bo", 1, nonce)}
			j.print = r.e.prints.single(&j.one)
			c, first, err := r.e.flights.Join(flightKey{"alice", j.key}, j.print)
			if !first || err != nil {
				t.Fatal(first, err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			r.e.begin(ctx, c, j) // queued in this order, answered in any
			wg.Go(func() {
				out, err := c.Wait(ctx)
				if err == nil && out.Reject != nil {
					err = out.Reject
				}
				errs[i] = err
			})
		}
		wg.Wait()
		for i, err := range errs {
			if err != nil {
				t.Fatalf("round %d, request %d: %v", round, i, err)
			}
		}
	}
	if n := r.e.nonces.live.Load(); n != 0 {
		t.Errorf("%d slots are left", n)
	}
}

// When a nonce fails, those that were sent after it fail for the gap it leaves, at once if none waits for others, and the number can be used
// again.
func TestCascade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		r := newRig(t, with(func(c *Config) { c.Workers, c.WorkerBurst, c.NonceWait = 3, 1, 0 }), commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
			<-hold
			return next.Commit(ctx, ops)
		})).start()
		r.fund("alice", 100)
		var wg sync.WaitGroup
		codes := make([]string, 4)
		for i := range codes {
			amount := uint64(1)
			if i == 1 {
				amount = 1000 // more than there is
			}
			wg.Go(func() {
				_, err := r.post("c"+name(i), transfer("alice", "bo", amount, uint64(i+1)))
				codes[i] = code(err)
			})
			synctest.Wait()
		}
		close(hold)
		wg.Wait()
		if want := []string{"", "INSUFFICIENT_FUNDS", "NONCE_CONFLICT", "NONCE_CONFLICT"}; !slices.Equal(codes, want) {
			t.Errorf("%v, want %v", codes, want)
		}
		r.must("again", transfer("alice", "bo", 1, 2))
		r.stop()
	})
}

// A nonce with none before it in sight is refused at once if none waits for others; as many wait behind others as may, and one more is told
// that there is no room.
func TestGapAndFullSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold, once := make(chan struct{}), sync.Once{}
		r := newRig(t, with(func(c *Config) { c.Workers, c.WorkerBurst, c.NoncePipeline, c.NonceWait = 3, 1, 2, 0 }), commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
			stop := false
			once.Do(func() { stop = true })
			if stop {
				<-hold // the first burst only
			}
			return next.Commit(ctx, ops)
		})).start()
		r.fund("alice", 100)
		var wg sync.WaitGroup
		post := func(nonce uint64, want string) {
			wg.Go(func() {
				if _, err := r.post("g"+name(int(nonce)), transfer("alice", "bo", 1, nonce)); code(err) != want {
					t.Errorf("nonce %d: %v, want %q", nonce, err, want)
				}
			})
			synctest.Wait()
		}
		post(1, "")
		began := time.Now()
		if _, err := r.post("gap", transfer("alice", "bo", 1, 9)); code(err) != "NONCE_CONFLICT" || !CodeOf(err).Retryable || time.Since(began) != 0 {
			t.Errorf("a gap: %v after %s", err, time.Since(began))
		}
		post(2, "")
		post(3, "")
		if _, err := r.post("full", transfer("alice", "bo", 1, 4)); code(err) != "BUSY" {
			t.Errorf("one too many: %v", err)
		}
		close(hold)
		wg.Wait()
		if got := r.available("bo"); got != "3" {
			t.Errorf("bo has %s", got)
		}
		r.stop()
	})
}
