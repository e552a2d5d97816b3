package ledger_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/appliance/clock"
	"ronbox/appliance/unit"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/record"
)

// machine is a machine whose clocks a test sets, with the clock of the node that runs on it.
type machine struct {
	passed time.Duration // in truth
	booted time.Duration // passed, when the machine was switched on
	off    time.Duration // the wall clock is wrong by this
	synced bool
	node   *clock.Clock
}

func (m *machine) wall() time.Time { return ledgertest.NewClock().Now().Add(m.passed + m.off) }

// start starts a process.
func (m *machine) start() *clock.Clock {
	m.node = clock.New(clock.Options{
		Read:         func() (time.Time, time.Duration) { return m.wall(), m.passed - m.booted },
		Synchronised: func() bool { return m.synced },
	})
	return m.node
}

// Of the law.
const (
	lawKey   = 24 * time.Hour
	lawHold  = 2 * time.Hour
	lawQuiet = time.Hour        // after a boot or a step, no key is forgotten
	lawSlip  = 10 * time.Second // the reading may follow the wall clock by this much, without a step
	day      = 24 * time.Hour
)

// moment is a point in true time.
type moment struct {
	at    time.Duration
	steps int // of the clock that were believed until then
	slips int // chances of the wall clock to move the reading without a step
}

// promise is an op that was done, and its first answer.
type promise struct {
	moment
	op    ledger.Op
	first ledger.Outcome
	ended bool // its key may have been forgotten
}

// clockLaw drives a ledger through payments, turns of the wall clock, pauses and restarts.
type clockLaw struct {
	*rig
	t      *rapid.T
	now    moment
	before int           // steps of earlier processes and of their boots
	quiet  time.Duration // of the last boot or step
	last   int64         // the newest stamp
	paid   []*promise
	held   []*promise
}

// look follows the clock of the node.
func (l *clockLaw) look() {
	l.now.at = l.machine.passed
	if steps := l.before + int(l.machine.node.Status().Steps.Forward); steps != l.now.steps {
		l.now.steps, l.quiet = steps, l.now.at
	}
	for _, p := range l.paid {
		p.ended = p.ended || l.now.at-l.quiet >= lawQuiet && l.over(p.moment, lawKey)
	}
}

// over reports whether a lifetime that began at from may have ended.
func (l *clockLaw) over(from moment, life time.Duration) bool {
	slip := lawSlip * time.Duration(l.now.slips-from.slips)
	return l.now.steps != from.steps || l.now.at-from.at+slip >= life
}

// do commits an op, which is not refused for the clock.
func (l *clockLaw) do(op ledger.Op) ledger.Outcome {
	outs, err := l.l.Commit(l.ctx(), []ledger.Op{op})
	if err != nil {
		l.t.Fatalf("%s: %v", op.Code, err)
	}
	return outs[0]
}

// pay does an op that is new, or whose key may have been forgotten.
func (l *clockLaw) pay(op ledger.Op) *promise {
	out := l.do(op)
	receipt := out.Receipt
	if out.Batch {
		receipt = out.Results[0].Receipt
	}
	switch {
	case out.Reject != nil || out.Replayed:
		l.t.Fatalf("%s: %+v", op.Code, out)
	case receipt.At <= l.last:
		l.t.Fatalf("a stamp of %d after %d", receipt.At, l.last)
	}
	l.last = receipt.At
	return &promise{moment: l.now, op: op, first: out}
}

// repeat sends an op with its key again.
func (l *clockLaw) repeat(p *promise) {
	if p.ended {
		return
	}
	if out := l.do(p.op); !out.Replayed || receipts(out) != receipts(p.first) {
		l.t.Fatalf("paid again after %s: %+v", l.now.at-p.at, out)
	}
}

// capture takes a hold, which expires in its time.
func (l *clockLaw) capture(p *promise) {
	out := l.do(ledger.Op{Code: record.OpCapture, Hold: p.first.Receipt.TxID})
	if r := out.Reject; r != nil && (r.Code != record.HoldExpired || !l.over(p.moment, lawHold)) {
		l.t.Fatalf("capture of a hold of %s: %v", l.now.at-p.at, r)
	}
}

// restart ends the process, and the machine too if reboot is set, and starts another one.
func (l *clockLaw) restart(pause time.Duration, reboot bool) {
	m := l.machine
	reading := m.node.Now()
	l.before = l.now.steps
	l.stop()
	if m.passed += pause; reboot {
		m.booted = m.passed
	}
	l.open()
	if m.node.Now().Sub(reading) > pause+lawSlip {
		l.before++
	}
	l.now.slips++
	l.look()
	l.quiet = l.now.at
}

// turn makes the wall clock wrong by off.
func (l *clockLaw) turn(off time.Duration) {
	l.machine.off = off
	l.now.slips++
	l.look()
}

func (l *clockLaw) pass(d time.Duration) {
	l.machine.passed += d
	l.look()
}

// op draws a payment with a new key.
func (l *clockLaw) op() ledger.Op {
	o := transfer("alice", "bob", 1, 0)
	switch rapid.IntRange(0, 3).Draw(l.t, "op") {
	case 0:
		o = issue("bob", 1, 0)
	case 1:
		o = ledger.Op{Code: record.OpBatch, Ops: []ledger.Op{o, o, o}}
	}
	return l.key(o)
}

func (l *clockLaw) key(o ledger.Op) ledger.Op {
	o = keyed(o, fmt.Sprint("k", len(l.paid)))
	o.TTL = lawKey
	return o
}

// step draws what happens next.
func (l *clockLaw) step() {
	durations := rapid.SampledFrom([]time.Duration{
		time.Second, 20 * time.Second, 5 * time.Minute, 11 * time.Minute, 50 * time.Minute, 3 * time.Hour, 23 * time.Hour,
	})
	switch rapid.IntRange(0, 11).Draw(l.t, "step") {
	case 0, 1, 2:
		l.paid = append(l.paid, l.pay(l.op()))
	case 3, 4:
		if len(l.paid) > 0 {
			l.repeat(rapid.SampledFrom(l.paid).Draw(l.t, "again"))
		}
	case 5:
		o := transfer("alice", "shop", 1, 0)
		o.Code, o.ExpiresIn = record.OpHold, lawHold
		p := l.pay(l.key(o))
		l.paid, l.held = append(l.paid, p), append(l.held, p)
	case 6:
		if len(l.held) > 0 {
			i := rapid.IntRange(0, len(l.held)-1).Draw(l.t, "hold")
			l.capture(l.held[i])
			l.held = slices.Delete(l.held, i, i+1)
		}
	case 7:
		l.pass(durations.Draw(l.t, "passes"))
	case 8, 9:
		l.turn(rapid.SampledFrom([]time.Duration{
			0, 0, 9 * time.Second, -9 * time.Second, 3 * time.Hour, -3 * time.Hour, 26 * time.Hour, -26 * time.Hour,
			80 * day, 3650 * day, -3650 * day,
		}).Draw(l.t, "off"))
		l.machine.synced = rapid.Bool().Draw(l.t, "synchronised")
	case 10:
		if l.cfg.SlotMax < 1000 || rapid.Bool().Draw(l.t, "seal") { // as the sealer does at each second
			if err := l.l.Seal(l.ctx()); err != nil {
				l.t.Fatal(err)
			}
		}
		l.restart(durations.Draw(l.t, "pause"), rapid.Bool().Draw(l.t, "reboot"))
	case 11:
		if _, err := l.machine.node.Accept(); err == nil {
			l.look()
		}
	}
}

// Whatever the wall clock does, no key is forgotten and no hold expires before its time by
// CLOCK_BOOTTIME, unless a step was believed; stamps rise; and no payment is refused for the clock.
func TestClockLaws(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := &clockLaw{rig: &rig{t: t, machine: &machine{}}, t: rt}
		l.create(func(c *ledger.Config) {
			c.KeyTTL = unit.Duration(lawKey)
			c.SlotMax = rapid.SampledFrom([]int{2, 1000}).Draw(rt, "slot")
		})
		defer l.stop()
		l.declare("ron")
		l.pay(issue("alice", 1000, 0))
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			l.step()
		}
		for _, p := range l.paid {
			l.repeat(p)
		}
		l.verify()
	})
}

// A node that starts while the wall clock is 26 hours ahead believes it. It is killed, the clock is
// put right, and a key of before is sent again within the hour: it gets its first answer.
func TestKeyAfterAStepThatWasWrong(t *testing.T) {
	for _, sealed := range []bool{true, false} {
		m := &machine{}
		r := (&rig{t: t, machine: m}).create(func(c *ledger.Config) { c.KeyTTL = unit.Duration(lawKey) })
		r.declare("ron")
		pay := func(key string) ledger.Outcome {
			o := keyed(issue("alice", 10, 0), key)
			o.TTL = lawKey
			out := r.accept(o)[0]
			if sealed { // else the node is killed before the sealer looks
				if err := r.l.Seal(r.ctx()); err != nil {
					t.Fatal(err)
				}
			}
			return out
		}
		first := pay("rent")
		for _, off := range []time.Duration{26 * time.Hour, 0} {
			r.stop()
			m.off = off
			r.open()
			pay(fmt.Sprint("off:", off))
			m.passed += 59 * time.Minute
		}
		if again := pay("rent"); !again.Replayed || receipts(again) != receipts(first) {
			t.Errorf("sealed %t: %+v, want %+v", sealed, again, first)
		}
	}
}
