package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ronbox/cmd/ronbox/cli"
	ledgerapi "ronbox/httpapi/wire/ledger"
)

// Files of closed periods are in the archive alone if the node is told so, and come back from there:
// then every record since the first is verified, with the database and with a restored one.
func TestClosedPeriodsAreArchived(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	b := newDiskBox(t)
	_, ends := b.importsPast(t, 2)
	a := b.archives(t)
	b.env = append(b.env, "RONBOX_LEDGER__PERIODS_LOCAL=false")
	p := b.start(t)
	b.closesRest(t, ends)
	b.keepsNoPeriod(t)
	var list ledgerapi.LedgerPeriods
	must(t, &list, b.args("ledger", "periods", "--json")...)
	for _, period := range list.Periods {
		if period.Copies != 1 {
			t.Errorf("%+v", period)
		}
	}
	seq, hash := b.stateSent(t)
	if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone {
		t.Errorf("exit %d\n%s", code, p.stderr)
	}
	if got := a.stateAt(t, seq); got != hash {
		t.Errorf("restored to the state %s, and it was %s", got, hash)
	}
	if err := os.Remove(filepath.Join(b.dir, "periods")); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(b.dir, "periods")
	restore := append([]string{"archive", "restore", "--periods", dir}, a.flags...)
	var restored struct {
		Signers  []string `json:"signers"`
		Compared bool     `json:"signer_compared"`
	}
	must(t, &restored, restore...)
	if len(restored.Signers) != 1 || restored.Compared {
		t.Fatalf("%+v", restored)
	}
	other := strings.Repeat("0", len(restored.Signers[0]))
	must(t, &restored, append(restore, "--signer", restored.Signers[0], "--signer", other)...)
	if r := ronbox(t, append(restore, "--signer", other)...); r.code != cli.ExitBad || !restored.Compared {
		t.Errorf("%+v, of another signer: exit %d\n%s", restored, r.code, r.stderr)
	}
	b.checkPeriods(t, 2*pastRecords)
	var found struct {
		OK    bool `json:"ok"`
		Nodes []struct {
			Periods int `json:"periods"`
		} `json:"nodes"`
	}
	must(t, &found, append([]string{"archive", "verify"}, a.flags...)...)
	if len(found.Nodes) != 1 || found.Nodes[0].Periods != 2 {
		t.Errorf("%+v", found)
	}
	a.drillsNothing(t, b.env[len(b.env)-4:])
	lost, err := filepath.Glob(filepath.Join(a.dir, "*", "periods", "000001", "*", "00000"))
	if err != nil || len(lost) != 1 {
		t.Fatalf("%q, %v", lost, err)
	}
	if err := os.Remove(lost[0]); err != nil {
		t.Fatal(err)
	}
	if r := ronbox(t, append([]string{"archive", "verify"}, a.flags...)...); r.code != cli.ExitBad {
		t.Errorf("without a part: exit %d\n%s", r.code, r.stdout)
	}
	r := ronbox(t, append([]string{"archive", "restore", "--periods", t.TempDir()}, a.flags...)...)
	if r.code != cli.ExitBad || !strings.Contains(r.stdout, `"missing":[{"first":1,"last":1}]`) {
		t.Errorf("without a part: exit %d\n%s", r.code, r.stdout)
	}
}

// drillsNothing checks that the drill of an archive fails, and leaves the metrics of the last one, if
// a node has no line any more. Files of closed periods do not stand for one.
func (a *away) drillsNothing(t *testing.T, env []string) {
	t.Helper()
	lines, err := filepath.Glob(filepath.Join(a.dir, "*", strings.Repeat("?", 26)))
	if err != nil || len(lines) == 0 {
		t.Fatalf("%q, %v", lines, err)
	}
	file := filepath.Join(t.TempDir(), "drill.prom")
	drill := append([]string{"archive", "verify", "--restore", "--textfile", file}, a.flags...)
	must(t, nil, drill...)
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	fails := func(code int, says string) {
		t.Helper()
		r := ronbox(t, drill...)
		if r.code != code || !strings.Contains(r.stdout+r.stderr, says) {
			t.Errorf("exit %d, want %d\n%s%s", r.code, code, r.stdout, r.stderr)
		}
		if now, err := os.ReadFile(file); err != nil || string(now) != string(was) {
			t.Errorf("%v, it was\n%s\nnow\n%s", err, was, now)
		}
	}
	for _, line := range lines {
		if err := os.Rename(line, line+".away"); err != nil {
			t.Fatal(err)
		}
	}
	fails(20, "no line has a complete base")
	other := newBox(t)
	other.env = append(other.env, env...)
	p := other.start(t)
	other.stateSent(t)
	p.signal(t, syscall.SIGTERM)
	node := filepath.Dir(lines[0])
	fails(cli.ExitBad, filepath.Base(node)+`","problem":"it has files of closed periods alone`)
	all, err := filepath.Glob(filepath.Join(a.dir, strings.Repeat("?", 26)))
	for _, dir := range all {
		if dir != node {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	for _, line := range lines {
		err = errors.Join(err, os.Rename(line+".away", line))
	}
	if err != nil {
		t.Fatal(err)
	}
}
