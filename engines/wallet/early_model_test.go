package wallet

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/appliance/unit"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// earlyJob is a job that has time.
func earlyJob(n *nonces, nonce uint64) *job {
	j := &job{needs: []need{{account: "a", lo: nonce, hi: nonce + 1}}, deadline: time.Now().Add(time.Hour)}
	n.note(j)
	return j
}

// What a slot knows of the account's next nonce comes from what the ledger has said, in whatever order that is heard, and is forgotten with an
// answer that does not come.
func TestWhatASlotKnows(t *testing.T) {
	n, set := nonceTable(1), strict(9)
	mine, other := &burst{}, &burst{}
	stays := earlyJob(n, 40) // so that the slot does
	one, two, four := earlyJob(n, 1), earlyJob(n, 2), earlyJob(n, 4)
	if p := n.place(mine, one, set); p != reserved {
		t.Fatalf("1: %d", p)
	}
	n.strike(one, &ledger.Outcome{})
	if woken, ok := n.putOff(two, 1, set); !ok || !slices.Equal(woken, []*job{two}) {
		t.Errorf("2, refused before 1 was done, and heard of after it: %v, %v", woken, ok)
	}
	if p := n.place(other, four, set); p != early {
		t.Errorf("4, when 2 is next: %d", p)
	}
	mine.leave()
	if p := n.place(mine, two, set); p != reserved {
		t.Errorf("2: %d", p)
	}
	three := earlyJob(n, 3)
	if p := n.place(mine, three, set); p != reserved {
		t.Errorf("3: %d", p)
	}
	if n.after(other, stays) != nil {
		t.Error("4 follows in a burst that has not got so far")
	}
	if n.after(mine, three) != four {
		t.Error("4 does not follow 3")
	}
	n.strike(two, nil)
	if p := n.place(other, earlyJob(n, 9), set); p == early {
		t.Error("9 lies aside when nobody knows what is next")
	}
}

// Of refusals those that speak of the nonce tell which is next: what is ahead of it waits on. No other does, whatever it names.
func TestWhatARefusalTellsASlot(t *testing.T) {
	for code, tells := range map[record.Result]bool{record.NonceGap: true, record.NonceReused: true, record.InsufficientFunds: false} {
		n, set := nonceTable(1), strict(9)
		earlyJob(n, 40) // so that the slot stays
		one := earlyJob(n, 1)
		n.strike(one, &ledger.Outcome{Reject: &ledger.Reject{Code: code, Expected: 5}})
		if p := n.place(&burst{}, earlyJob(n, 6), set); (p == early) != tells {
			t.Errorf("%v: 6, when it named 5: %d", code, p)
		}
		if p := n.place(&burst{}, earlyJob(n, 5), set); p == early {
			t.Errorf("%v: 5 lies aside", code)
		}
	}
}

// Who is early waits for nonce_wait, and for at most half of the time that its caller has: the rest is for the ledger to say what is missing.
func TestPatienceEndsInTime(t *testing.T) {
	now := time.Unix(1000, 0)
	for wait, want := range map[time.Duration]time.Duration{time.Minute: 5*time.Second - watchEvery, time.Second: time.Second} {
		set, j := strict(9), earlyJob(nonceTable(1), 1)
		set.NonceWait, j.deadline = unit.Duration(wait), now.Add(10*time.Second)
		if !j.patient(set, now) || !j.until.Equal(now.Add(want)) {
			t.Errorf("nonce_wait %s: until %s later, want %s", wait, j.until.Sub(now), want)
		}
		if j.patient(set, now.Add(want)) || !j.patient(set, now.Add(want-1)) {
			t.Errorf("nonce_wait %s: its patience does not end after %s", wait, want)
		}
	}
}

// A ledger that contradicts itself is not asked for ever.
func TestWrongNumberIsNotAskedForEver(t *testing.T) {
	n, set := nonceTable(1), strict(9)
	earlyJob(n, 40) // so that the slot stays
	one, two := earlyJob(n, 1), earlyJob(n, 2)
	n.strike(one, &ledger.Outcome{})
	two.deadline = time.Now()
	if woken, ok := n.putOff(two, 1, set); ok || woken != nil {
		t.Errorf("%v, %v", woken, ok)
	}
}

// All together those that wait for nonces leave half of the places to others, and leave them all when they go.
func TestHalfOfThePlacesIsForOthers(t *testing.T) {
	n, set := nonceTable(4), strict(9)
	set.Limits.MaxInflight = 20
	var jobs []*job
	for i := range 15 {
		j := &job{needs: []need{{account: name(i), lo: 2, hi: 3}}, deadline: time.Now().Add(time.Hour)}
		n.note(j)
		if _, ok := n.putOff(j, 1, set); ok != (i < 10) {
			t.Errorf("job %d waits: %t", i, ok)
		}
		jobs = append(jobs, j)
	}
	if got := len(n.close()); got != 10 || n.early.Load() != 0 {
		t.Errorf("%d waited, %d are left", got, n.early.Load())
	}
	for _, j := range jobs {
		n.strike(j, nil)
	}
	if n.live.Load() != 0 {
		t.Errorf("%d slots are left", n.live.Load())
	}
}

// earlyModel is jobs of one account on their way, and a ledger of one number.
type earlyModel struct {
	t                 *rapid.T
	n                 *nonces
	set               *settings
	bursts            []*burst
	next              uint64 // that the ledger would take
	ready, hand, wait []*job // to look for a place, in a burst, parked
	lying, done       map[*job]bool
}

func (m *earlyModel) wake(jobs []*job) {
	for _, j := range jobs {
		if m.done[j] || slices.Contains(m.ready, j) || slices.Contains(m.hand, j) && !m.lying[j] {
			m.t.Fatal("woken, and neither parked nor aside")
		}
		delete(m.lying, j)
		m.wait = slices.DeleteFunc(m.wait, func(o *job) bool { return o == j })
		m.ready = append(m.ready, j)
	}
}

// place has the i-th of those that are ready find its place, in a burst.
func (m *earlyModel) place(i int, b *burst) {
	j := m.ready[i]
	m.ready = slices.Delete(m.ready, i, i+1)
	before := slices.ContainsFunc(m.hand, func(o *job) bool { return o.needs[0].hi >= j.needs[0].lo }) ||
		slices.ContainsFunc(append(m.ready, m.wait...), func(o *job) bool { return o.needs[0].hi >= j.needs[0].lo })
	p, woken := m.n.wait(b, j, &j.needs[0], m.set)
	switch p {
	case parked:
		if !before {
			m.t.Fatal("waits for nobody, or for one that lies aside")
		}
		m.wait = append(m.wait, j)
	case early:
		m.lying[j] = true
	case crowded:
		m.strike(j, nil)
	default:
		m.n.take(b, &j.needs[0], false)
		m.hand = append(m.hand, j)
		if next := m.n.after(b, j); next != nil {
			if next.needs[0].lo != next.needs[0].slot.next || !m.lying[next] {
				m.t.Fatal("another follows than should")
			}
			m.wake([]*job{next})
		}
	}
	m.wake(woken)
}

// answer is the ledger's, or none.
func (m *earlyModel) answer(i int, known bool) {
	j := m.hand[i]
	m.hand = slices.Delete(m.hand, i, i+1)
	if !known {
		m.strike(j, nil)
		return
	}
	out, nonce := &ledger.Outcome{}, j.needs[0].lo
	switch {
	case nonce == m.next:
		m.next++
	case nonce > m.next:
		out.Reject = &ledger.Reject{Code: record.NonceGap, Expected: m.next}
		if woken, ok := m.n.putOff(j, m.next, m.set); ok {
			m.lying[j] = true
			m.wake(woken)
			return
		}
	default:
		out.Reject = &ledger.Reject{Code: record.NonceReused, Expected: m.next}
	}
	m.strike(j, out)
}

func (m *earlyModel) strike(j *job, out *ledger.Outcome) {
	m.done[j] = true
	m.wake(m.n.strike(j, out))
}

// However jobs come early, are put aside, taken up and answered: each is in one place, nobody waits for one that lies aside, those that nobody
// needs to wait for any more are woken, and in the end nothing is left.
func TestEarlyAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &earlyModel{
			t: t, n: nonceTable(1), set: strict(rapid.IntRange(1, 9).Draw(t, "pipeline")), bursts: []*burst{{}, {}, {}}, next: 1,
			lying: map[*job]bool{}, done: map[*job]bool{},
		}
		m.set.NonceWait = seconds(1)
		jobs := 0
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch step := rapid.IntRange(0, 9).Draw(t, "step"); {
			case step < 3:
				nonce := rapid.Uint64Range(1, m.next+6).Draw(t, "nonce")
				m.ready = append(m.ready, earlyJob(m.n, nonce))
				jobs++
			case step < 6 && len(m.ready) > 0:
				m.place(rapid.IntRange(0, len(m.ready)-1).Draw(t, "which"), rapid.SampledFrom(m.bursts).Draw(t, "burst"))
			case step < 9 && len(m.hand) > 0:
				m.answer(rapid.IntRange(0, len(m.hand)-1).Draw(t, "which"), rapid.IntRange(0, 5).Draw(t, "known") > 0)
			default:
				b := rapid.SampledFrom(m.bursts).Draw(t, "leaves")
				b.leave()
			}
			if m.n.early.Load() != int64(len(m.lying)) {
				t.Fatalf("%d lie aside, want %d", m.n.early.Load(), len(m.lying))
			}
		}
		m.set.NonceWait = 0 // their time is over
		for rounds := 0; len(m.done) < jobs; rounds++ {
			for len(m.ready) > 0 {
				m.place(0, m.bursts[0])
			}
			for len(m.hand) > 0 {
				m.answer(0, true)
			}
			if len(m.ready) == 0 {
				m.wake(m.n.overdue(m.set, time.Now()))
			}
			if rounds > 3*jobs {
				t.Fatalf("%d of %d jobs are done", len(m.done), jobs)
			}
		}
		if m.n.live.Load() != 0 || m.n.early.Load() != 0 {
			t.Fatalf("%d slots are left", m.n.live.Load())
		}
	})
}
