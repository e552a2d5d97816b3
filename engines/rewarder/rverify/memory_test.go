package rverify

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// perActor bounds the bytes that Verify allocates per actor: a million actors fit into 512 MiB even
// without garbage collection. Allocations do not depend on the load of the machine.
const perActor = 512

// folderOf writes the folder of a run with n actors.
func folderOf(t testing.TB, n int) string {
	var csv bytes.Buffer
	csv.WriteString("actor,metric,qty\n")
	for i := range n {
		fmt.Fprintf(&csv, "acct_%07d,m,%d\n", i, 1+i*7919%9973)
	}
	u, err := ReadCSV(&csv)
	if err != nil {
		t.Fatal(err)
	}
	p, err := ParsePolicy((&epoch{}).policyJSON())
	if err != nil {
		t.Fatal(err)
	}
	in := Inputs{Policy: p, Usage: u}
	if in.Snapshot, err = u.Snapshot(&p, "e", "4000000000000"); err == nil {
		in.Ledger, err = UnseenLedger(&p, "4000000000000")
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := Recompute(in)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "run")
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Verify of a run with a million actors takes at most 512 MiB.
func TestVerifyMemory(t *testing.T) {
	const actors = 200_000
	dir := folderOf(t, actors)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := Verify(dir)
	runtime.ReadMemStats(&after)
	if err != nil || r.Actors != actors {
		t.Fatalf("%d actors, %v", r.Actors, err)
	}
	got := (after.TotalAlloc - before.TotalAlloc) / actors
	t.Logf("%d bytes an actor", got)
	if got > perActor {
		t.Errorf("Verify allocates %d bytes an actor, want at most %d", got, perActor)
	}
}

// A folder is not sound if its rows change between two passes.
func TestRowsThatChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.ndjson")
	f := rowFile{path: path}
	for i, tt := range []struct{ text, want string }{
		{`{"actor":"a","metric":"m","qty":"1"}` + "\n", ""}, {`{"actor":"a","metric":"m","qty":"1"}` + "\n", ""},
		{`{"actor":"a","metric":"m","qty":"2"}` + "\n", "rows.ndjson: has changed while it was read"},
	} {
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := f.each(func(*Row) error { return nil }); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("pass %d: %q, want %q", i, got, tt.want)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	dir := folderOf(b, 100_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Verify(dir); err != nil {
			b.Fatal(err)
		}
	}
}
