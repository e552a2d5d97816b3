package flow

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/appliance/host/hosttest"
)

// breakerModel is a breaker told naively: lists of what happened, at times in whole units.
type breakerModel struct {
	rule   BreakerRule
	state  BreakerState
	era    int
	now    int
	until  int
	fresh  []int // weights recorded since the last step, failures negative
	counts []struct{ at, weight int }
	probes []CallResult // half-open: results so far
	out    int          // half-open: permits not settled
	seen   int          // half-open: results at the last step
	opens  int
}

func (m *breakerModel) permit() (era int, ok bool) {
	switch m.state {
	case BreakerClosed:
		return m.era, true
	case BreakerOpen:
		return 0, false
	}
	if len(m.probes)+m.out == m.rule.Probes {
		return 0, false
	}
	m.out++
	return m.era, true
}

func (m *breakerModel) record(era int, r CallResult, n int) {
	switch {
	case era != m.era:
	case m.state == BreakerHalfOpen:
		m.out--
		if r != Neither {
			m.probes = append(m.probes, r)
		}
	case r == Failed:
		m.fresh = append(m.fresh, -n)
	case r == Succeeded:
		m.fresh = append(m.fresh, n)
	}
}

func (m *breakerModel) step(units int) {
	m.now += units
	switch m.state {
	case BreakerClosed:
		for _, w := range m.fresh {
			m.counts = append(m.counts, struct{ at, weight int }{m.now, w})
		}
		m.fresh = nil
		good, bad := 0, 0
		for _, c := range m.counts {
			switch {
			case m.now-c.at >= windowSlots:
			case c.weight < 0:
				bad -= c.weight
			default:
				good += c.weight
			}
		}
		byCount := m.rule.Failures > 0 && bad >= m.rule.Failures
		byRatio := m.rule.Failures == 0 && good+bad >= m.rule.Min && float64(bad) > m.rule.Ratio*float64(good+bad)
		if byCount || byRatio {
			m.enter(BreakerOpen)
			m.opens++
		}
	case BreakerOpen:
		if m.now >= m.until {
			m.enter(BreakerHalfOpen)
		}
	case BreakerHalfOpen:
		bad := 0
		for _, r := range m.probes {
			if r == Failed {
				bad++
			}
		}
		switch {
		case bad > m.rule.MayFail:
			m.enter(BreakerOpen)
			m.opens++
		case len(m.probes) == m.rule.Probes:
			m.enter(BreakerClosed)
		case m.out == 0 || len(m.probes) != m.seen:
			m.seen, m.until = len(m.probes), m.now+m.cooldown()
		case m.now >= m.until:
			m.enter(BreakerHalfOpen)
		}
	}
}

func (m *breakerModel) cooldown() int { return int(m.rule.Cooldown / time.Second) }

func (m *breakerModel) enter(s BreakerState) {
	*m = breakerModel{rule: m.rule, state: s, era: m.era + 1, now: m.now, until: m.now + m.cooldown(), opens: m.opens}
}

// breakerRules are small versions of the engines' rules.
var breakerRules = map[string]BreakerRule{
	"count": {Failures: 3, Window: windowSlots * time.Second, Cooldown: 3 * time.Second, Probes: 2},
	"ratio": {Ratio: 0.5, Min: 2, Window: windowSlots * time.Second, Cooldown: 3 * time.Second, Probes: 3, MayFail: 1},
}

// breakerRun drives a breaker and its model by events, one byte each, and reports the first
// difference.
type breakerRun struct {
	b      *Breaker
	m      breakerModel
	start  time.Time
	passes []Pass // out, oldest first
	eras   []int
	meter  *fakeMeter
}

func newBreakerRun(rule BreakerRule, start time.Time) *breakerRun {
	r := &breakerRun{m: breakerModel{rule: rule, era: 1}, start: start, meter: newFakeMeter()}
	r.b = NewBreaker(rule).Counting(NewCatalog(r.meter, nil), "t", "ledger")
	r.b.Step(start)
	return r
}

// breakerEvents: a permit is asked for; the oldest call out ends well, badly, or says nothing, the
// youngest ends badly; time goes on by 0, 1 or 9 units.
const breakerEvents = "p+-o!019"

func (r *breakerRun) do(event byte) error {
	switch event {
	case 'p':
		pass, ok := r.b.Permit()
		era, want := r.m.permit()
		if ok != want {
			return fmt.Errorf("Permit = %v, want %v", ok, want)
		}
		if ok {
			r.passes, r.eras = append(r.passes, pass), append(r.eras, era)
		}
	case '+', '-', 'o', '!':
		r.settle(event)
	default:
		units := int(event - '0')
		r.m.step(units)
		r.b.Step(r.start.Add(time.Duration(r.m.now) * time.Second))
	}
	if got, want := r.b.State(), r.m.state; got != want {
		return fmt.Errorf("state %v, want %v", got, want)
	}
	if got := r.meter.counts["circuit_open_total{t,svc,ledger}"]; got != r.m.opens {
		return fmt.Errorf("counted %d openings, want %d", got, r.m.opens)
	}
	return nil
}

func (r *breakerRun) settle(event byte) {
	if len(r.passes) == 0 {
		return
	}
	i, result := 0, map[byte]CallResult{'+': Succeeded, '-': Failed, 'o': Neither, '!': Failed}[event]
	if event == '!' {
		i = len(r.passes) - 1
	}
	r.b.Record(r.passes[i], result, 2)
	r.m.record(r.eras[i], result, 2)
	r.passes, r.eras = append(r.passes[:i:i], r.passes[i+1:]...), append(r.eras[:i:i], r.eras[i+1:]...)
}

// Every sequence of five events, from each of the three states, ends as the model says at every
// event.
func TestBreakerEverySequence(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	const depth = 5
	start := time.Unix(1e9, 0)
	for name, rule := range breakerRules {
		for _, before := range []string{"", "pp--0", "pp--03"} {
			seq := make([]byte, depth)
			for n := range pow(len(breakerEvents), depth) {
				for i, k := 0, n; i < depth; i, k = i+1, k/len(breakerEvents) {
					seq[i] = breakerEvents[k%len(breakerEvents)]
				}
				if err := replay(newBreakerRun(rule, start), before+string(seq)); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
		}
	}
}

func pow(base, n int) int {
	p := 1
	for range n {
		p *= base
	}
	return p
}

func replay(r *breakerRun, events string) error {
	for i := range len(events) {
		if err := r.do(events[i]); err != nil {
			return fmt.Errorf("after %q: %w", events[:i+1], err)
		}
	}
	return nil
}

// Longer sequences, drawn.
func TestBreakerIsItsModel(t *testing.T) {
	start := time.Now()
	rapid.Check(t, func(t *rapid.T) {
		rule := breakerRules[rapid.SampledFrom([]string{"count", "ratio"}).Draw(t, "rule")]
		var events strings.Builder
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(breakerEvents)-1), 0, 200).Draw(t, "events") {
			events.WriteByte(breakerEvents[i])
		}
		if err := replay(newBreakerRun(rule, start), events.String()); err != nil {
			t.Fatal(err)
		}
	})
}

// The wallet's rule, told as a story.
func TestBreakerOfALedger(t *testing.T) {
	now := time.Unix(1e9, 0)
	b := NewBreaker(BreakerRule{Failures: 20, Window: 10 * time.Second, Cooldown: 5 * time.Second, Probes: 10})
	want := func(s BreakerState) {
		t.Helper()
		if got := b.Step(now); got != s {
			t.Fatalf("state %v, want %v", got, s)
		}
	}
	call := func(r CallResult, n int) {
		t.Helper()
		pass, ok := b.Permit()
		if !ok {
			t.Fatal("no permit")
		}
		b.Record(pass, r, n)
	}
	want(BreakerClosed)
	early, _ := b.Permit()
	call(Failed, 10)
	want(BreakerClosed)
	now = now.Add(11 * time.Second)
	call(Failed, 19) // the 10 before are too old to count
	want(BreakerClosed)
	call(Failed, 1)
	want(BreakerOpen)
	if _, ok := b.Permit(); ok || b.RetryAfter(now) != 5*time.Second {
		t.Fatalf("open: permit %v, %v to wait", ok, b.RetryAfter(now))
	}
	now = now.Add(5*time.Second - 1)
	want(BreakerOpen)
	now = now.Add(1)
	want(BreakerHalfOpen)
	b.Record(early, Failed, 100) // began before it opened: says nothing about now
	want(BreakerHalfOpen)
	for range 10 {
		want(BreakerHalfOpen)
		call(Succeeded, 1)
	}
	if _, ok := b.Permit(); ok || b.RetryAfter(now) != 0 {
		t.Fatal("an eleventh probe")
	}
	want(BreakerClosed)
	call(Failed, 19)
	want(BreakerClosed)
	call(Failed, 1)
	want(BreakerOpen)
	now = now.Add(5 * time.Second)
	want(BreakerHalfOpen)
	call(Succeeded, 1)
	call(Failed, 1)
	want(BreakerOpen)
}

// An unsettled probe holds its permit for one cooldown, then probing starts again.
func TestBreakerForgetsLostProbes(t *testing.T) {
	r := newBreakerRun(breakerRules["count"], time.Unix(1e9, 0))
	if err := replay(r, "pp--03"+"pp"+"p"+"0111"+"pp"+"++0"); err != nil {
		t.Fatal(err)
	}
	if r.m.state == BreakerClosed {
		t.Fatal("the late results of lost probes closed it")
	}
	if err := replay(r, "++0"); err != nil || r.b.State() != BreakerClosed {
		t.Fatalf("%v, state %v", err, r.b.State())
	}
}

func TestBreakerStaysAreDrawn(t *testing.T) {
	start, seen := time.Now(), map[time.Duration]bool{}
	for range 200 {
		b := NewBreaker(
			BreakerRule{Failures: 1, Window: time.Second, Cooldown: time.Second, Drawn: 5 * time.Second, Probes: 1},
		)
		pass, _ := b.Permit()
		b.Record(pass, Failed, 1)
		b.Step(start)
		d := b.RetryAfter(start)
		if d < time.Second || d > 5*time.Second {
			t.Fatalf("a stay of %v", d)
		}
		seen[d] = true
	}
	if len(seen) < 100 {
		t.Errorf("only %d of 200 stays differ", len(seen))
	}
}

func TestBreakerReload(t *testing.T) {
	now := time.Unix(1e9, 0)
	r := newBreakerRun(breakerRules["count"], now)
	if err := replay(r, "pp--0"); err != nil || r.b.State() != BreakerOpen {
		t.Fatalf("%v, state %v", err, r.b.State())
	}
	wider := breakerRules["count"]
	wider.Probes = 4
	r.b.Reload(wider)
	if r.b.State() != BreakerOpen || r.b.RetryAfter(now) != 3*time.Second {
		t.Errorf("after a reload: %v for %v", r.b.State(), r.b.RetryAfter(now))
	}
	r.b.Step(now.Add(3 * time.Second))
	r.b.Permit()
	wider.Probes = 1
	r.b.Reload(wider) // restarts probing
	if _, ok := r.b.Permit(); !ok {
		t.Error("no permit after the reload")
	}
	if _, ok := r.b.Permit(); ok {
		t.Error("two probes where the new rule allows one")
	}
	wantPanic(t, func() { r.b.Reload(BreakerRule{}) })
}

func TestBreakerRulesThatCannotWork(t *testing.T) {
	good := breakerRules["ratio"]
	for name, spoil := range map[string]func(*BreakerRule){
		"no window":       func(r *BreakerRule) { r.Window = 0 },
		"no cooldown":     func(r *BreakerRule) { r.Cooldown = 0 },
		"no threshold":    func(r *BreakerRule) { r.Ratio = 0 },
		"all must fail":   func(r *BreakerRule) { r.Ratio = 1 },
		"no minimum":      func(r *BreakerRule) { r.Min = 0 },
		"no probes":       func(r *BreakerRule) { r.Probes = 0 },
		"too many probes": func(r *BreakerRule) { r.Probes = mostProbes + 1 },
		"all may fail":    func(r *BreakerRule) { r.MayFail = r.Probes },
	} {
		r := good
		spoil(&r)
		if r.check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := good.check(); err != nil {
		t.Error(err)
	}
}

func TestBreakerStateNames(t *testing.T) {
	for s, want := range map[BreakerState]string{BreakerClosed: "closed", BreakerOpen: "open", BreakerHalfOpen: "half_open", 9: "breaker(9)"} {
		if s.String() != want {
			t.Errorf("String = %q, want %q", s, want)
		}
	}
}

// Many callers and steppers: no half-open era ever lets more calls through than there are probes.
func TestBreakerConcurrently(t *testing.T) {
	const probes = 3
	b := NewBreaker(
		BreakerRule{Failures: 5, Window: time.Second, Cooldown: time.Millisecond, Probes: probes, MayFail: 1},
	)
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		drawn = map[uint64]int{} // half-open permits by era
		start = time.Now()
	)
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				b.Step(start.Add(time.Duration(i) * 100 * time.Microsecond))
				pass, ok := b.Permit()
				if !ok {
					continue
				}
				if e := era(b.era.Load()); e.no() == pass.no && e.state() == BreakerHalfOpen {
					mu.Lock()
					drawn[pass.no]++
					mu.Unlock()
					b.Record(pass, Succeeded, 1)
					continue
				}
				b.Record(pass, CallResult((i+g)%3), 1)
			}
		})
	}
	wg.Wait()
	for no, n := range drawn {
		if n > probes {
			t.Errorf("era %d let %d probes through", no, n)
		}
	}
}

func BenchmarkBreaker(b *testing.B) {
	rule := BreakerRule{Failures: 20, Window: 10 * time.Second, Cooldown: 5 * time.Second, Probes: 10}
	b.Run("permit and record", func(b *testing.B) {
		br := NewBreaker(rule)
		b.ReportAllocs()
		for b.Loop() {
			pass, _ := br.Permit()
			br.Record(pass, Succeeded, 1)
		}
	})
	b.Run("with steps", func(b *testing.B) {
		br, now := NewBreaker(rule), time.Now()
		b.ReportAllocs()
		for b.Loop() {
			br.Step(now)
			pass, _ := br.Permit()
			br.Record(pass, Succeeded, 1)
			br.Step(now)
		}
	})
}

func TestBreakerDoesNotAllocate(t *testing.T) {
	b, now := NewBreaker(breakerRules["count"]), time.Now()
	if n := testing.AllocsPerRun(1000, func() {
		pass, _ := b.Permit()
		b.Record(pass, Succeeded, 1)
		b.Step(now)
	}); n != 0 {
		t.Errorf("a call allocates %v times", n)
	}
}
