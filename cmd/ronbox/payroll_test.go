package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"ronbox/cmd/ronbox/cli"
)

// A payroll pays each row once, although its run is killed twice, its state is deleted, and two
// processes then run it at the same time.
func TestPayrollIsPaidOnce(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.start(t)
	for _, run := range []string{"", "2026-12"} {
		t.Run("run "+run, func(t *testing.T) { b.payroll(t, run) })
	}
}

func (b *box) payroll(t *testing.T, run string) {
	const rows = 3000
	payer := "payer" + run
	must(t, nil, b.args("wallet", "issue", payer, "1000000", "-q")...)
	var file strings.Builder
	file.WriteString("op,from,to,asset,amount_minor,memo\n")
	for i := range rows {
		fmt.Fprintf(&file, "transfer,%s,staff/%d,ron,%d,row %d\n", payer, i%7, 1+i%3, i)
	}
	path := filepath.Join(t.TempDir(), "payroll.csv")
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"wallet", "batch", path, "--chunk", "50", "--json"}
	if run != "" {
		args = append(args, "--run", run)
	}
	for killed := range 2 { // each run is killed after some more payments
		b.killWhenPaid(t, payer, 400*(killed+1), args)
	}
	states, err := filepath.Glob(path + "*.state")
	if err != nil || len(states) != 1 {
		t.Fatalf("states %v, %v", states, err)
	}
	if err := os.Remove(states[0]); err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	var docs [2]batchResult
	for i := range docs {
		both.Go(func() { docs[i] = b.runBatch(t, args) })
	}
	both.Wait()
	if docs[0].Accepted != rows || docs[1].Accepted != rows {
		t.Errorf("%+v", docs)
	}
	memos := b.memosOf(t, payer)
	for i := range rows {
		if n := memos[fmt.Sprint("row ", i)]; n != 1 {
			t.Fatalf("row %d was paid %d times", i, n)
		}
	}
}

// killWhenPaid runs a batch and kills it after the payer has made the given number of payments.
func (b *box) killWhenPaid(t *testing.T, payer string, payments int, args []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, b.args(args...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := b.client(t)
	defer c.Close()
	until(t, "the batch has paid some rows", func() bool {
		acc, err := c.Account(t.Context(), payer)
		return err == nil && acc.LastNonce >= uint64(payments)
	})
	_ = cmd.Process.Kill()
	var ended *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
}

// runBatch runs a batch to its end.
func (b *box) runBatch(t *testing.T, args []string) (doc batchResult) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, b.args(args...)...).Output()
	if ended, is := errors.AsType[*exec.ExitError](err); err != nil && (!is || ended.ExitCode() != cli.ExitNothingLeft) {
		t.Errorf("%v: %s", err, out)
		return doc
	}
	if err := json.Unmarshal(out, &doc); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return doc
}

// memosOf counts the debits of an account by memo, from its whole statement.
func (b *box) memosOf(t *testing.T, account string) map[string]int {
	t.Helper()
	r := must(t, nil, b.args("wallet", "history", account, "--all", "--csv")...)
	lines, err := csv.NewReader(bytes.NewReader([]byte(r.stdout))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, cells := range lines[1:] {
		if cells[3] == "debit" {
			out[cells[len(cells)-1]]++
		}
	}
	return out
}
