package registry

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
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
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
	r, s := newRig(t).start(), newSigners(3, 2)
	r.genesis(s)
	var want []record.Items
	for _, file := range files {
		items := readItems(t, file)
		p, err := r.e.Propose(r.ctx(), alice, draftTo(r.e.Head(), items), "", "")
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		r.approve(p, s.keys[:2]...)
		r.commit(p)
		want = append(want, items)
	}
	r.stop()
	r.open()
	r.start()
	head := r.e.Head()
	if head.Head.Version != 9 || head.Items.Len() != 7633 || head.Items.Root() != want[7].Root() {
		t.Fatalf("head = %+v with %d items", head.Head, head.Items.Len())
	}
	for i, items := range want {
		got, err := r.e.Materialise(r.ctx(), uint64(i+2))
		if err != nil || got.Root() != items.Root() {
			t.Errorf("version %d: %v", i+2, err)
		}
	}
	doc, err := r.e.Version(r.ctx(), 2, true)
	if err != nil || bytes.Count(doc.JSON, []byte(`"id":`)) < want[0].Len() {
		t.Errorf("version 2: %d bytes, %v", len(doc.JSON), err)
	}
	if rep := r.verifyFile(); !rep.OK || rep.Versions != 9 {
		t.Errorf("report = %+v", rep)
	}
}

// A restored store refuses the work of the registry until it is accepted. Callers get the reason,
// and the pipeline keeps running.
func TestRestoredStoreRefusesWork(t *testing.T) {
	t.Parallel()
	r, s := newRig(t, func(c *Config) { c.Proposals.TTL = 60e9 }).start(), newSigners(1, 1)
	r.genesis(s)
	p := r.propose(2, "b")
	r.approve(p, s.keys[0])
	dir := t.TempDir()
	m, err := r.store.Snapshot(r.ctx(), dir, store.SnapshotOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.path = filepath.Join(t.TempDir(), "restored.db")
	if _, err := store.Restore(r.ctx(), m.Path, r.path, store.RestoreOptions{Now: r.now()}, nil); err != nil {
		t.Fatal(err)
	}
	r.open()
	r.start()
	if r.e.Head().Head.Version != 1 {
		t.Errorf("head = %+v", r.e.Head().Head)
	}
	for range 3 {
		if _, err := r.e.Commit(r.ctx(), alice, p.ID, ""); !errors.Is(err, store.ErrRestored) {
			t.Fatalf("commit = %v, want ErrRestored", err)
		}
	}
	r.advance(2 * r.cfg.Proposals.TTL.D()) // and the sweeper removes no proposal
	if _, err := r.e.Propose(r.ctx(), alice, delta(2, "c"), "", ""); !errors.Is(err, store.ErrRestored) {
		t.Errorf("propose = %v, want ErrRestored", err)
	}
	if n := r.metric("service_restarts_total", "task", taskPipeline); n != 0 {
		t.Errorf("the pipeline restarted %v times", n)
	}
	if err := r.store.AcceptRestore(r.ctx(), store.Event{Event: "db.accept_restore", Decision: "accept"}); err != nil {
		t.Fatal(err)
	}
	if err := r.e.Adopt(r.ctx(), alice, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := r.e.Commit(r.ctx(), alice, p.ID, ""); !errors.Is(err, document.ErrExpired) {
		t.Errorf("commit after acceptance = %v, want ErrExpired", err)
	}
	r.propose(2, "d")
}
