package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/rewarder"
)

// endedRun is the part about payees in the output of run and retry.
type endedRun struct {
	State      string               `json:"state"`
	Paid       string               `json:"paid_minor"`
	Payout     string               `json:"payout_minor"`
	PaidActors int                  `json:"paid_actors"`
	Parked     int                  `json:"parked"`
	Payees     []rewarder.Parked    `json:"parked_payees"`
	Quarantine *rewarder.Quarantine `json:"quarantine"`
}

// Of 2,000 payees 3 are frozen: 1,997 are paid, and the 3 are named and parked. A retry pays them
// once, although the node is killed during the retry; a second retry pays nothing.
func TestRewarderParksFrozenPayees(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	b := newBox(t)
	file := filepath.Join(filepath.Dir(b.dir), "armed")
	p := b.startArmed(t, file)
	must(t, nil, b.args("wallet", "issue", "pool:protocol", "2000000", "-q")...)
	usage := filepath.Join(t.TempDir(), "usage.csv")
	var csv strings.Builder
	csv.WriteString("actor,metric,qty\n")
	for i := range 2000 {
		fmt.Fprintf(&csv, "p/%04d,requests,1\n", i)
	}
	if err := os.WriteFile(usage, []byte(csv.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	frozen := []string{"p/0100", "p/0700", "p/1999"}
	for _, a := range frozen {
		must(t, nil, b.args("wallet", "freeze", "--new", a, "-q")...)
	}
	run := (&rewards{epoch: "e", csv: usage}).argsOf(b, 2_000_000)
	ends := func(code int, args ...string) (out endedRun) {
		t.Helper()
		r := ronbox(t, args...)
		decode(t, r.stdout, &out)
		if r.code != code {
			t.Fatalf("exit %d, want %d\n%s%s", r.code, code, r.stdout, r.stderr)
		}
		return out
	}
	if out := ends(
		20,
		run...); out.Paid != "0" || out.Payout != "2000000" || out.Quarantine.Account != frozen[0] ||
		out.Quarantine.Reason != "ledger: account_locked" {
		t.Errorf("without --skip-refused: %+v", out)
	}
	skip := append(run, "--skip-refused")
	for range 2 {
		out := ends(22, skip...)
		if out.State != "settled" || out.Paid != "1997000" || out.PaidActors != 1997 || out.Parked != 3 ||
			len(out.Payees) != 3 {
			t.Fatalf("with --skip-refused: %+v", out)
		}
		for i, one := range out.Payees {
			if one.Actor != frozen[i] || one.Reason != "ledger: account_locked" {
				t.Errorf("%+v", one)
			}
		}
	}
	retry := b.args("rewarder", "retry", "e", "--json")
	if out := ends(22, retry...); out.Parked != 3 || out.Paid != "1997000" {
		t.Errorf("a retry while they are frozen: %+v", out)
	}
	for _, a := range frozen {
		must(t, nil, b.args("wallet", "unfreeze", a, "-q")...)
	}
	arm(t, file, "settled_payee 1") // the ledger has paid them, but the run has not recorded it
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { ronboxIn(t, ctx, "", retry...) })
	p.await(t, "the kill")
	cancel()
	wg.Wait()
	p = b.startArmed(t, file)
	c := b.client(t)
	defer c.Close()
	until(t, "the retry is carried on", func() bool {
		e, err := c.Epoch(t.Context(), "e")
		return err == nil && e.State == rewarder.Settled && e.Parked == 0
	})
	for range 2 {
		if out := ends(cli.ExitDone, retry...); out.Paid != "2000000" || out.PaidActors != 2000 || out.Parked != 0 {
			t.Errorf("after the retry: %+v", out)
		}
	}
	for _, a := range append(frozen, "p/0000", "p/1000") {
		if balance, err := c.Balance(t.Context(), a, "ron", 0); err != nil || balance.PostedMinor != "1000" {
			t.Errorf("%s has %s (%v)", a, balance.PostedMinor, err)
		}
	}
	if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone {
		t.Errorf("serve ended with %d\n%s", code, p.stderr)
	}
	must(t, nil, b.args("db", "verify", filepath.Join(b.dir, "ronbox.db"), "--json")...)
	b.checkLedger(t)
}

// arm makes the node die at a step.
func arm(t *testing.T, file, at string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(at), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}
