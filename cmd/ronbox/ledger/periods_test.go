package ledger

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/flow"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/period"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	ledgerapi "ronbox/httpapi/wire/ledger"
	"ronbox/store"
)

// closedNode makes the database of a ledger with closed periods, and the folder of their files.
func closedNode(t *testing.T, periods int) (db, dir string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	clock := ledgertest.NewClock()
	db, dir = filepath.Join(t.TempDir(), "ronbox.db"), t.TempDir()
	id, err := store.NewIdentity(clock.Now())
	must(errors.Join(err, store.Create(db, id)))
	catalog := flow.NewCatalog(nil, nil)
	s := store.New(store.DefaultConfig(), store.Options{Path: db, Catalog: catalog, Now: clock.Now})
	l := ledger.New(ledger.DefaultConfig(), ledger.Deps{Catalog: catalog, Store: s, Now: clock.Now})
	c := period.NewCloser(period.Config{Dir: dir}, period.Deps{
		Store: s, Ledger: l, Catalog: flow.NewCatalog(nil, nil), Now: clock.Now,
	})
	ctx, cancel := context.WithCancel(t.Context())
	must(errors.Join(s.Open(ctx), s.Prepare(ctx)))
	done := make(chan error, 2)
	go func() { done <- s.Tasks()[0].Run(ctx) }()
	must(l.Recover(ctx))
	closing, stop := context.WithCancel(ctx)
	go func() { done <- c.Run(closing) }()
	for n := range periods {
		if n == 0 {
			_, err = l.Commit(ctx, []ledger.Op{{Code: record.OpAsset, Asset: "ron"}})
			must(err)
		}
		_, err = l.Commit(ctx, []ledger.Op{
			{Code: record.OpIssue, To: "alice", Asset: "ron", Amount: engines.AmountOf(0, 5)},
		})
		must(errors.Join(err, l.Flush(ctx)))
		clock.Advance(time.Hour)
		p, err := c.Close(ctx, period.Ask{Before: clock.Now(), Fast: true, By: "test"})
		must(err)
		for closed := false; !closed; time.Sleep(time.Millisecond) {
			if state := c.State(); state.State == "failed" {
				t.Fatal(state.Error)
			}
			must(s.View(ctx, func(r store.Reader) error {
				closed = tables.GetHorizon(r).Period == p.Period && tables.GetClosing(r).Step == 0
				return nil
			}))
		}
	}
	stop()
	<-done
	must(l.Close(ctx))
	s.CloseLanes()
	<-done
	cancel()
	must(s.Close())
	return db, dir
}

// The folder of periods and the database of a node prove every record. Without a file they do not.
func TestVerifyAfterPeriods(t *testing.T) {
	db, dir := closedNode(t, 2)
	doc, err := verifyAfter(t.Context(), dir, db, database, lverify.Options{})
	if err != nil || !doc.OK || doc.FromSeq != 0 || doc.Periods != 0 || doc.Records != doc.Head.Seq {
		t.Errorf("%+v, %v", doc, err)
	}
	files := []string{filepath.Join(dir, record.PeriodFile(1)), filepath.Join(dir, record.PeriodFile(2))}
	if doc, err := verifyPeriods(t.Context(), files, lverify.Options{}); err != nil || !doc.OK {
		t.Errorf("%+v, %v", doc, err)
	}
	if doc, err := verifyPeriods(t.Context(), files[1:], lverify.Options{}); err != nil || !doc.OK || doc.Periods != 1 {
		t.Errorf("the second alone: %+v, %v", doc, err)
	}
	if kind, err := kindOf(files[0], true); kind != periodFile || err != nil {
		t.Errorf("a file of a period is %d, %v", kind, err)
	}
	if err := os.Remove(files[1]); err != nil {
		t.Fatal(err)
	}
	if doc, err := verifyAfter(t.Context(), dir, db, database, lverify.Options{}); err != nil || doc.OK {
		t.Errorf("without the second: %+v, %v", doc, err)
	}
}

// run runs a verb of the ledger with --json, and returns what it prints and its exit code.
func run(t *testing.T, args ...string) (stdout string, code int) {
	t.Helper()
	return runAt(t, "", args...)
}

// runAt is run for the node of a data folder.
func runAt(t *testing.T, dir string, args ...string) (stdout string, code int) {
	t.Helper()
	var out, told bytes.Buffer
	c := &cli.App{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &told, Now: time.Now}
	c.Flags.JSON, c.Flags.DataDir = true, dir
	cmd := Command(c)
	cmd.PersistentFlags().StringVar(&c.Flags.URL, "url", "", "")
	cmd.SetArgs(args)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		return err.Error(), cli.Classify(err).Code
	}
	return out.String(), c.Exit
}

// A receipt of a closed period is proved by the files, against the statement that the database has.
func TestProofFromPeriods(t *testing.T) {
	db, dir := closedNode(t, 3)
	_, others := closedNode(t, 3)
	var s record.Statement
	if err := cli.ViewDatabase(t.Context(), db, func(r store.Reader) error {
		s = tables.StatementOf(r, 2)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	last := func(dir string) (id string) { // of the second period
		lines, _ := run(t, "find", "--periods", dir, "--account", "alice")
		for line := range strings.Lines(lines) {
			if l, err := record.ParseLine([]byte(strings.TrimSpace(line))); err != nil {
				t.Fatal(err)
			} else if l.Record.Seq <= s.ToSeq {
				id = l.Record.TxID().String()
			}
		}
		return id
	}
	id := last(dir)
	for _, args := range [][]string{{"proof", id, "--periods", dir}, {"proof", id, "--periods", dir, db}} {
		proof, code := run(t, args...)
		r, p, err := provenIn([]byte(proof))
		if err != nil || code != 0 || r.TxID.String() != id || r.To != "alice" || p.Head != s.Head() {
			t.Errorf("%v: %s: %+v, %v", args, proof, r, err)
		}
	}
	for text, want := range map[string]int{s.Text(): cli.ExitDone, "another": cli.ExitBad, "": cli.ExitBad} {
		node := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			list := ledgerapi.LedgerPeriods{Periods: []ledgerapi.LedgerPeriod{{Period: 2, Statement: text}}}
			if text == "" {
				list.Periods = nil
			}
			raw, err := cli.Encode(list)
			if rw.Header().Set("Content-Type", "application/json"); r.FormValue("after") != "1" || err != nil {
				t.Errorf("%s: %v", r.URL, err)
			}
			_, _ = rw.Write(raw)
		}))
		out, code := runAt(t, "", "proof", id, "--periods", dir, "--url", node.URL)
		if node.Close(); code != want {
			t.Errorf("the node has %q: exit %d, %s", text, code, out)
		}
	}
	unknown := record.NewTxID(1, s.ToSeq, 9).String()
	for _, tt := range []struct {
		want int
		args []string
	}{
		{cli.ExitBad, []string{"proof", id, "--periods", t.TempDir()}},
		{cli.ExitBad, []string{"proof", last(others), "--periods", others, db}},
		{cli.ExitFailed, []string{"proof", unknown, "--periods", dir}},
		{cli.ExitFailed, []string{"proof", id, "--periods", filepath.Join(dir, "none")}},
		{cli.ExitUsage, []string{"proof", "tx_1", "--periods", dir}},
		{cli.ExitUsage, []string{"proof", id, db}},
	} {
		if out, code := run(t, tt.args...); code != tt.want {
			t.Errorf("%v: exit %d, %s", tt.args, code, out)
		}
	}
}

// exportAfter writes the export of a ledger after its closed periods.
func exportAfter(t *testing.T, db string) (path string) {
	t.Helper()
	var text []byte
	err := cli.ViewDatabase(t.Context(), db, func(r store.Reader) error {
		h := tables.GetHorizon(r)
		text = (&record.Line{Kind: record.LineFormat, From: h.Seq + 1, Prev: h.LastRoot}).Append(text)
		for _, b := range tables.Batches(r, h.Batch+1, 1<<62) {
			for seq, rec := range tables.Records(r, b.First, b.Last()+1) {
				l := record.Line{Kind: record.LineRecord, Raw: tables.Raw(r, seq), Record: *rec}
				l.Names.From, _ = tables.Name(r, rec.From)
				l.Names.To, _ = tables.Name(r, rec.To)
				l.Names.Asset, _ = tables.AssetName(r, rec.Asset)
				text = l.Append(text)
			}
			text = (&record.Line{Kind: record.LineBatch, Batch: b}).Append(text)
		}
		return nil
	})
	path = filepath.Join(t.TempDir(), "rest.ndjson")
	if err := errors.Join(err, os.WriteFile(path, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

// A node is made again of the files of its periods and the export after them.
func TestImportFromPeriods(t *testing.T) {
	db, dir := closedNode(t, 2)
	rest := exportAfter(t, db)
	want, err := verifyAfter(t.Context(), dir, db, database, lverify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	fresh := func() (dir string) {
		dir = t.TempDir()
		id, err := store.NewIdentity(time.Now())
		if err := errors.Join(err, store.Create(filepath.Join(dir, "ronbox.db"), id)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for _, tt := range []struct {
		want int
		args []string
	}{
		{cli.ExitDone, []string{"--periods", dir, rest}},
		{cli.ExitDone, []string{"--periods", dir}},
		{cli.ExitBad, []string{"--periods", t.TempDir(), rest}},
		{cli.ExitFailed, []string{rest}},
		{cli.ExitUsage, nil},
	} {
		node := fresh()
		out, code := runAt(t, node, append([]string{"import"}, tt.args...)...)
		if code != tt.want {
			t.Errorf("%v: exit %d, %s", tt.args, code, out)
		}
		got, err := verifyLedger(t.Context(), filepath.Join(node, "ronbox.db"), lverify.Options{})
		if err != nil || !got.OK || tt.want == 0 && len(tt.args) == 3 && got.Head != want.Head {
			t.Errorf("%v: %+v, %v", tt.args, got, err)
		}
	}
}
