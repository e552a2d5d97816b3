package wallet_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
)

// Sizes of the enumeration: crashSeeds scripts of crashScript requests. Each script runs once for
// each boundary of each of its commands.
const (
	crashSeeds  = 3
	crashScript = 12
)

// script is a sequence of requests of all kinds that one client sends. Some requests are refused,
// and some are sent again later.
type script struct {
	s     *sim
	holds []record.TxID
	told  []string // the answers in order, without the parts that depend on the time of the run
	sent  []func(*life) (wallet.Answer, error)
}

// The kinds of steps in a script.
const (
	stepTransfer = iota
	stepTooMuch
	stepHold
	stepCapture
	stepRelease
	stepBurn
	stepIssue
	stepFlags
	stepWhole
	stepSome
	stepAgain
	stepKinds
)

// run sends the requests and records the answers. The first request is a hold, so that later steps
// can capture it.
func (c *script) run() {
	d := c.s.dice("script", 0)
	for n := range crashScript {
		time.Sleep(time.Millisecond) // a crash after an answer must come before the next request
		kind := d.IntN(stepKinds)
		if n == 0 {
			kind = stepHold
		}
		key := fmt.Sprintf("s0-%d", n)
		if kind == stepAgain && len(c.sent) > 0 {
			c.note("", c.sent[d.IntN(len(c.sent))])
			continue
		}
		next, amount := c.s.next(name(0)), 1+d.Uint64N(30)
		q := transfer(name(0), name(1), amount, next)
		switch kind {
		case stepTooMuch:
			q.Amount = amountOf(simDaily - 1)
		case stepHold:
			q.Code, q.ExpiresIn = record.OpHold, time.Hour
		case stepCapture, stepRelease:
			if len(c.holds) > 0 {
				q = ledger.Op{Code: record.OpCapture, Hold: c.holds[0]}
				if c.holds = c.holds[1:]; kind == stepRelease {
					q.Code = record.OpRelease
				}
			}
		case stepBurn:
			q.Code, q.To = record.OpBurn, ""
		case stepIssue:
			q = issue(name(2), amount, c.s.next("sys:issue:ron"))
		case stepFlags:
			q = ledger.Op{Code: record.OpFlags, From: name(3), Set: record.NoDebit}
			c.note(key, func(l *life) (wallet.Answer, error) { return l.r.e.SetFlags(l.ctx, alice, key, "", q, true) })
			continue
		case stepWhole, stepSome:
			ops := []ledger.Op{
				q,
				transfer(name(0), name(2), 1, next+1),
				transfer(name(0), name(2), amount*amount, next+2),
			}
			c.note(
				key,
				func(l *life) (wallet.Answer, error) {
					return l.r.e.Batch(l.ctx, alice, key, "", kind == stepWhole, slices.Clone(ops))
				},
			)
			continue
		}
		c.note(key, func(l *life) (wallet.Answer, error) { return l.r.e.Post(l.ctx, alice, key, "", q) })
	}
}

// note sends a request until it is answered, and records the answer. An empty key means that the
// request was answered before.
func (c *script) note(key string, send func(*life) (wallet.Answer, error)) {
	a, err := c.s.until(key, send)
	if key == "" {
		delete(c.s.known, key)
	} else {
		c.sent = append(c.sent, send)
	}
	if err != nil {
		c.told = append(c.told, err.Error())
		return
	}
	if c.told = append(c.told, fmt.Sprint(wholeOf(a))); !a.Batch {
		if j := parse(c.s.t, bytesOf(a)); j.Op == record.OpHold.String() && key != "" {
			c.holds = append(c.holds, j.id(c.s.t))
		}
	}
}

// timeless returns the journal without timestamps. It also clears the fingerprints, because hold
// ids contain a timestamp.
func (l *life) timeless(t *testing.T) (journal []record.Record) {
	err := l.has.Export(context.Background(), 0, 0, func(line record.Line) error {
		if r := line.Record; line.Kind == record.LineRecord {
			if r.Expires != 0 {
				r.Expires -= r.At
			}
			r.At, r.Dedupe.Fingerprint = 0, b3.Digest{}
			journal = append(journal, r)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return journal
}

// runScript runs a script in a process that crashes at the given boundary, or does not crash if
// boundary is negative. It returns the answers, the journal, and the number of commands.
func runScript(t *testing.T, seed uint64, boundary int) (told []string, journal []record.Record, commands int) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, seed, 0)
		s.crashes = func(string, int) moment {
			commands++
			if commands-1 == boundary/3 && boundary >= 0 {
				return beforeApply + moment(boundary%3)
			}
			return never
		}
		s.begin()
		s.fund()
		c := &script{s: s}
		c.run()
		time.Sleep(time.Millisecond)
		l := s.settle()
		for key, told := range s.known {
			s.repeat(key, told)
		}
		told, journal = c.told, l.timeless(t)
		if want := boundary >= 0; (s.crashed == 1) != want {
			t.Errorf("seed %d, boundary %d: the process has ended %d times", seed, boundary, s.crashed)
		}
		l.r.stop()
		l.end()
	})
	return told, journal, commands
}

// A crash at any boundary of any command changes neither the final answers of a client that retries
// nor the journal, except for the timestamps.
func TestCrashAtEachBoundary(t *testing.T) {
	t.Parallel()
	for seed := range uint64(few(crashSeeds)) {
		told, journal, commands := runScript(t, seed, -1)
		if commands < crashScript/2 {
			t.Fatalf("seed %d: %d commands", seed, commands)
		}
		for boundary := range 3 * commands {
			again, after, _ := runScript(t, seed, boundary)
			if !slices.Equal(again, told) {
				t.Errorf("seed %d, boundary %d: told\n%q\nwant\n%q", seed, boundary, again, told)
			}
			for i := range max(len(after), len(journal)) {
				if i >= len(after) || i >= len(journal) || !reflect.DeepEqual(after[i], journal[i]) {
					t.Errorf("seed %d, boundary %d: the journal is, from record %d on\n%+v\nwant\n%+v", seed, boundary,
						i+1, after[i:], journal[i:])
					break
				}
			}
			if t.Failed() {
				return
			}
		}
	}
}
