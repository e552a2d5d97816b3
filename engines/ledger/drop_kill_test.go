package ledger_test

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"ronbox/appliance/host/hosttest"
	"ronbox/appliance/unit"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/idem"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// A slot holds the keys of two bursts. Its run has three slices: rows, filter, meta. After every
// fourth burst, two slots are sealed and the slots that are too old are dropped.
const (
	// "<file> <number of the first op> <activity to die in> <number of its steps before dying>"
	slotKillEnv   = "RONBOX_LEDGER_CHILD"
	slotKillBurst = 8
	slotKillPause = 5 * time.Minute // ledger time between two bursts
	slotKillSeal  = 4               // bursts
	slotKillTTL   = 12*slotKillPause + slotKillPause/2
	slotKillSteps = 6 // slices of two slots
	slotKillTold  = 200
	slotKillLives = 12 // that end at an arbitrary point
)

// slotKill runs a ledger that pays, seals and drops in a child process, and kills the process
// repeatedly.
type slotKill struct {
	*rig
	acked []string // receipts, by the number of the op
}

func slotKillConfig(c *ledger.Config) {
	c.SlotMax, c.KeyTTL, c.FlushSlice, c.FlushEvery = 2*slotKillBurst, unit.Duration(slotKillTTL), 4, unit.Duration(
		2*time.Millisecond,
	)
}

// slotKillOp returns op number n. Four payers in turn pay one shop.
func slotKillOp(n int) ledger.Op {
	o := keyed(transfer(fmt.Sprint("payer", n%4), "shop", 1, uint64(n/4+1)), fmt.Sprint("k", n))
	o.TTL = slotKillTTL
	return o
}

// at sets the clock to the time of op number n.
func (r *rig) at(n int) {
	r.clock.Set(ledgertest.NewClock().Now().Add(time.Hour + time.Duration(n/slotKillBurst)*slotKillPause))
}

// TestSlotKillChild is the body of the child process. It pays until the parent kills it, or until
// it kills itself at the point named in its environment.
func TestSlotKillChild(t *testing.T) {
	var path, where string
	var from, steps int
	if n, _ := fmt.Sscan(os.Getenv(slotKillEnv), &path, &from, &where, &steps); n != 4 {
		return
	}
	r := &rig{t: t, path: path, cfg: ledger.DefaultConfig(), clock: ledgertest.NewClock()}
	slotKillConfig(&r.cfg)
	r.at(from)
	r.open()
	r.unsealed()
	die := func(here string) func() {
		return func() {
			if steps--; here == where && steps == 0 {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			} else if here != where {
				steps++
			}
		}
	}
	for burst := from / slotKillBurst; ; burst++ {
		r.at(burst * slotKillBurst)
		var ops []ledger.Op
		for i := range slotKillBurst {
			ops = append(ops, slotKillOp(burst*slotKillBurst+i))
		}
		for i, out := range r.accept(ops...) {
			fmt.Println("ack", burst*slotKillBurst+i, receipts(out))
		}
		if burst%slotKillSeal != slotKillSeal-1 {
			continue
		}
		if err := r.l.SealSteps(r.ctx(), die("seal")); err != nil {
			t.Fatal(err)
		}
		if err := r.l.DropSteps(r.ctx(), die("drop")); err != nil {
			t.Fatal(err)
		}
	}
}

// life runs one child process. The process ends at the point named by where, or is killed once
// within has passed.
func (k *slotKill) life(where string, steps int, within time.Duration) {
	k.t.Helper()
	from := len(k.acked)
	cmd := exec.Command(os.Args[0], "-test.run=^TestSlotKillChild$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s %d", slotKillEnv, k.path, from, where, steps))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		k.t.Fatal(err)
	}
	if within > 0 {
		late := time.AfterFunc(within, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
	}
	var said strings.Builder
	for in := bufio.NewScanner(out); in.Scan(); {
		var n int
		text, ok := strings.CutPrefix(in.Text(), "ack ")
		number, receipt, whole := strings.Cut(text, " ")
		if _, err := fmt.Sscan(number, &n); !ok || !whole || err != nil || n != len(k.acked) {
			said.WriteString(in.Text() + "\n")
			continue
		}
		k.acked = append(k.acked, receipt)
	}
	_ = cmd.Wait() // it was killed, which the status tells
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		k.t.Fatalf("the process ended with %v\n%s%s", cmd.ProcessState, &said, &errs)
	}
	k.acked = k.acked[:len(k.acked)/slotKillBurst*slotKillBurst] // the burst it was telling of is asked for again
}

// halves returns the number of incomplete runs in the file.
func (k *slotKill) halves() int {
	k.t.Helper()
	f, err := store.OpenReader(k.path)
	if err != nil {
		k.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	l := idem.New(1, idem.Cut{}).Loader()
	if err := f.View(k.ctx(), func(r store.Reader) error {
		for !l.Step(r) {
		}
		return nil
	}); err != nil {
		k.t.Fatal(err)
	}
	return len(l.Half())
}

// check verifies the file and then looks up every answered op in the ledger.
func (k *slotKill) check() {
	k.t.Helper()
	rep, err := store.Verify(k.ctx(), k.path, nil, ledger.Checks(), nil)
	if err != nil || !rep.OK {
		k.t.Fatalf("verify: %v, %+v", err, rep)
	}
	k.rig.at(len(k.acked))
	k.open()
	defer k.stop()
	shop, err := k.l.Balance(k.ctx(), "shop", "ron", 0)
	if made := uint64(len(k.acked)); err != nil ||
		shop.Posted != amount(made) && shop.Posted != amount(made+slotKillBurst) {
		k.t.Fatalf("%d payments were answered, the shop has %v, %v", made, shop.Posted, err)
	}
	oldest := k.clock.Now().Add(-slotKillTTL).UnixNano()
	for n := max(0, len(k.acked)-slotKillTold); n < len(k.acked); n++ {
		o := slotKillOp(n)
		_, found, err := k.l.Find(k.ctx(), o.Dedupe, o.Fingerprint, oldest)
		k.rig.at(n)
		live := k.clock.Now().UnixNano() > oldest
		k.rig.at(len(k.acked))
		again := k.commit(o)[0]
		switch {
		case err != nil || found != live:
			k.t.Fatalf("op %d of %d: found %t, %v; want %t", n, len(k.acked), found, err, live)
		case live && (!again.Replayed || receipts(again) != k.acked[n]):
			k.t.Fatalf("op %d of %d was answered\n%s\nand now, replayed %t, %v:\n%s", n, len(k.acked), k.acked[n],
				again.Replayed, again.Reject, receipts(again))
		case !live && (again.Reject == nil || again.Reject.Code != record.NonceReused):
			k.t.Fatalf("op %d of %d, whose key is too old: %+v", n, len(k.acked), again)
		}
	}
	if after, err := k.l.Balance(k.ctx(), "shop", "ron", 0); err != nil || after.Posted != shop.Posted {
		k.t.Fatalf("the shop had %v, and has %v after nothing new, %v", shop.Posted, after.Posted, err)
	}
}

// A process that dies between two slices of a seal, before or after a drop, or at any other point
// (including during a boot), leaves a sound file. Each answered key leads to the same receipt until
// its TTL passes, older keys are no longer found, and no payment is applied twice.
func TestKilledWhileSlotsTurn(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	k := &slotKill{rig: newRig(t, ledgertest.NewClock(), slotKillConfig).declare("ron")}
	for i := range 4 {
		k.accept(issue(fmt.Sprint("payer", i), 1_000_000, uint64(i+1)))
	}
	k.stop()
	for i := range 2 * slotKillSteps {
		steps := 1 + i%slotKillSteps
		k.life("seal", steps, 0)
		if half := k.halves(); (half > 0) != (steps%3 != 0) {
			t.Errorf("%d runs without an end after slice %d", half, steps)
		}
		k.check()
	}
	for steps := range 6 {
		k.life("drop", 1+steps, 0)
		k.check()
	}
	for range slotKillLives {
		k.life("nowhere", 1, 20*time.Millisecond+rand.N(100*time.Millisecond))
		k.check()
	}
	k.rig.at(len(k.acked))
	k.open()
	if err := k.l.Seal(k.ctx()); err != nil {
		t.Fatal(err)
	}
	// of keys that count, one at either end, and one that a boot has cut short
	most := int(slotKillTTL/slotKillPause)/2 + 3
	// a boot puts all records that it reads into one slot, so that few runs remain after short
	// lives
	if got := k.l.Runs(); got < 1 || got > most {
		t.Errorf("%d runs are left of %d payments, want 1 to %d", got, len(k.acked), most)
	}
}
