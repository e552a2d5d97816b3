package registry_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"ronbox/appliance/host/hosttest"
	"ronbox/engines/registry"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/pipeline"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// readItems reads one desired state, a descriptor a line.
func readItems(t testing.TB, file string) record.Items {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []record.Item
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		it, err := record.ParseItem(lines.Bytes())
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, it)
	}
	items, err := record.NewItems(all)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return items
}

// draftTo is the delta from HEAD to a desired state.
func draftTo(head *tables.HeadView, want record.Items) []byte {
	put, remove := record.Diff(head.Items, want)
	draft := fmt.Appendf(nil, `{"schema_version":"1.0.0","version":%d,"mode":"delta","put":[`, head.Head.Version+1)
	for i, it := range put {
		if i > 0 {
			draft = append(draft, ',')
		}
		draft = append(draft, it.Bytes...)
	}
	draft = append(draft, `],"remove":[`...)
	for i, id := range remove {
		if i > 0 {
			draft = append(draft, ',')
		}
		draft = strconv.AppendQuote(draft, id)
	}
	return append(draft, `]}`...)
}

// Eight states of a real service registry become versions 2 to 9, survive a restart, and can each
// be read again.
func TestRealStates(t *testing.T) {
	t.Parallel()
	if hosttest.UnderRace() {
		t.Skip("TestHistory replays the same states: left to the run without -race")
	}
	files, err := filepath.Glob("../../testdata/registry/*.ndjson")
	if err != nil || len(files) != 8 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	r, s := registrytest.New(t).Start(), newSigners(3, 2)
	r.Genesis(s)
	var want []record.Items
	for _, file := range files {
		items := readItems(t, file)
		p, err := r.Engine.Propose(r.Ctx(), alice, draftTo(r.Engine.Head(), items), "", "")
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		r.Approve(p, s.Keys[:2]...)
		r.Commit(p)
		want = append(want, items)
	}
	r.Stop()
	r.Open()
	r.Start()
	head := r.Engine.Head()
	if head.Head.Version != 9 || head.Items.Len() != 7633 || head.Items.Root() != want[7].Root() {
		t.Fatalf("head = %+v with %d items", head.Head, head.Items.Len())
	}
	for i, items := range want {
		got, err := r.Engine.Materialise(r.Ctx(), uint64(i+2))
		if err != nil || got.Root() != items.Root() {
			t.Errorf("version %d: %v", i+2, err)
		}
	}
	doc, err := r.Engine.Version(r.Ctx(), 2, true)
	if err != nil || bytes.Count(doc.JSON, []byte(`"id":`)) < want[0].Len() {
		t.Errorf("version 2: %d bytes, %v", len(doc.JSON), err)
	}
	if rep := r.VerifyFile(); !rep.OK || rep.Versions != 9 {
		t.Errorf("report = %+v", rep)
	}
}

// A restored store refuses the work of the registry until it is accepted. Callers get the reason,
// and the pipeline keeps running.
func TestRestoredStoreRefusesWork(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t, func(c *registry.Config) { c.Proposals.TTL = 60e9 }).Start(), newSigners(1, 1)
	r.Genesis(s)
	p := r.Propose(2, "b")
	r.Approve(p, s.Keys[0])
	dir := t.TempDir()
	m, err := r.Store.Snapshot(r.Ctx(), dir, store.SnapshotOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Stop()
	r.Path = filepath.Join(t.TempDir(), "restored.db")
	if _, err := store.Restore(r.Ctx(), m.Path, r.Path, store.RestoreOptions{Now: r.Now()}, nil); err != nil {
		t.Fatal(err)
	}
	r.Open()
	r.Start()
	if r.Engine.Head().Head.Version != 1 {
		t.Errorf("head = %+v", r.Engine.Head().Head)
	}
	for range 3 {
		if _, err := r.Engine.Commit(r.Ctx(), alice, p.ID, ""); !errors.Is(err, store.ErrRestored) {
			t.Fatalf("commit = %v, want ErrRestored", err)
		}
	}
	r.Advance(2 * r.Config.Proposals.TTL.D()) // and the sweeper removes no proposal
	if _, err := r.Engine.Propose(r.Ctx(), alice, delta(2, "c"), "", ""); !errors.Is(err, store.ErrRestored) {
		t.Errorf("propose = %v, want ErrRestored", err)
	}
	if n := r.Metric("service_restarts_total", "task", pipeline.TaskName); n != 0 {
		t.Errorf("the pipeline restarted %v times", n)
	}
	if err := r.Store.AcceptRestore(r.Ctx(), store.Event{Event: "db.accept_restore", Decision: "accept"}); err != nil {
		t.Fatal(err)
	}
	if err := r.Engine.Adopt(r.Ctx(), alice, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Engine.Commit(r.Ctx(), alice, p.ID, ""); !errors.Is(err, document.ErrExpired) {
		t.Errorf("commit after acceptance = %v, want ErrExpired", err)
	}
	r.Propose(2, "d")
}
