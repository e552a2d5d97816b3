package ledger

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"ronbox/engines/ledger/idem"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
	"ronbox/store/storetest"
)

// booted returns the books that a boot reads from the current file.
func (s *stage) booted(t *rapid.T) *books {
	b := newBooks(idem.New(4, idem.Cut{Width: 1 << 40, Max: 1 << 20}), deaf{})
	l := &Local{books: b}
	r := s.tx.Reader()
	for _, read := range []func(store.Reader) error{b.loadRecent, l.readAssets, l.readHead} {
		if err := read(r); err != nil {
			t.Fatal(err)
		}
	}
	walk := &journalWalk{next: b.cur.hand.low.Seq + 1, no: b.cur.hand.low.Batches + 1}
	for walk.no <= b.cur.Batches {
		if err := walk.step(r, b.cur.Batches, 7, b.again); err != nil {
			t.Fatal(err)
		}
	}
	b.idem.Read(r, 1, b.cur.Seq+1, 1<<30)
	b.show()
	return b
}

// turnInto replaces the books of s by n, as a reboot does.
func (s *stage) turnInto(n *books) {
	b := s.b
	b.layers, b.idem, b.cur = n.layers, n.idem, n.cur
	b.states, b.accounts, b.moved = n.states, n.accounts, n.moved
	b.names, b.refs = n.names, n.refs
	b.holds, b.onces, b.marks = n.holds, n.onces, n.marks
	b.show()
}

func sameRows[K comparable, V any](t *rapid.T, what string, got, want *layer[K, V], home func(K) (V, bool)) {
	for k, c := range want.all() {
		v, ok := got.read(k)
		if !ok {
			if v, ok = home(k); !ok {
				var none V
				v = none
			}
		}
		if !reflect.DeepEqual(v, c.pub.v) {
			t.Fatalf("%s %v: %+v, want %+v", what, k, v, c.pub.v)
		}
	}
}

func countsHold[K comparable, V any](t *rapid.T, what string, l *layer[K, V]) {
	pinned, recent, dirty, cells := 0, 0, 0, 0
	for _, c := range l.all() {
		cells++
		pinned += oneIf(c.pub.since != 0)
		recent += oneIf(c.pub.saved != 0)
		dirty += oneIf(c.pub.since != 0 && c.pub.saved != c.pub.at)
	}
	if pinned != int(l.pinned.Load()) || recent != l.recent || dirty != int(l.dirty.Load()) || cells != int(l.size.Load()) {
		t.Fatalf("%s: pinned %d is %d, recent %d is %d, dirty %d is %d, %d cells are %d", what,
			l.pinned.Load(), pinned, l.recent, recent, l.dirty.Load(), dirty, l.size.Load(), cells)
	}
	if n, right := l.listed(); n != right || n < pinned {
		t.Fatalf("%s: %d cells are listed, %d rightly, %d are pinned", what, n, right, pinned)
	}
}

func (s *stage) checked(t *rapid.T) *books {
	countsHold(t, "states", s.b.states)
	countsHold(t, "accounts", s.b.accounts)
	countsHold(t, "names", s.b.names)
	countsHold(t, "refs", s.b.refs)
	countsHold(t, "holds", s.b.holds)
	countsHold(t, "onces", s.b.onces)
	countsHold(t, "marks", s.b.marks)
	n, r := s.booted(t), s.tx.Reader()
	if n.cur.Head != s.b.cur.Head || len(n.cur.assets.byRef) != len(s.b.cur.assets.byRef) {
		t.Fatalf("booted at %+v, is %+v", n.cur.Head, s.b.cur.Head)
	}
	for pair, ab := range [][2]*books{{n, s.b}, {s.b, n}} {
		what := fmt.Sprint(pair)
		got, want := ab[0], ab[1]
		sameRows(t, "state"+what, got.states, want.states,
			func(k tables.StateKey) (tables.Balance, bool) { return tables.GetBalance(r, k.Account, k.Asset) })
		sameRows(t, "mark"+what, got.marks, want.marks,
			func(k tables.MarkKey) (uint64, bool) { return tables.GetMark(r, k) })
		sameRows(t, "account"+what, got.accounts, want.accounts,
			func(k uint64) (tables.Account, bool) { return tables.GetAccount(r, k) })
		sameRows(t, "name"+what, got.names, want.names, func(k string) (uint64, bool) { return tables.Ref(r, k) })
		sameRows(t, "ref"+what, got.refs, want.refs, func(k uint64) (string, bool) { return tables.Name(r, k) })
		sameRows(t, "hold"+what, got.holds, want.holds,
			func(k uint64) (tables.Hold, bool) { return tables.GetHold(r, k) })
		sameRows(t, "once"+what, got.onces, want.onces,
			func(k tables.OnceKey) (tables.Once, bool) { return tables.GetOnce(r, k) })
	}
	rep, err := lverify.Verify(t.Context(), r, lverify.Options{})
	if err != nil || !rep.OK {
		t.Fatalf("verify: %v, %v", err, rep.Findings)
	}
	return n
}

// partyOf resolves a name against the current memory and file.
func (s *stage) partyOf(name string, asset uint32) (p party) {
	b, r := s.b, s.tx.Reader()
	ref, ok := b.names.read(name)
	if !ok {
		ref, _ = tables.Ref(r, name)
	}
	if p.ref = ref; ref == 0 {
		return p
	}
	k := tables.StateKey{Account: ref, Asset: asset}
	p.account, p.state = b.accounts.cell(ref), b.states.cell(k)
	p.rows = &rows{}
	if p.account == nil {
		p.rows.account, _ = tables.GetAccount(r, ref)
		p.rows.accountAt = b.view.Load().Seq
	}
	if p.state == nil {
		p.rows.balance, _ = tables.GetBalance(r, ref, asset)
		p.rows.balanceAt = b.view.Load().Seq
	}
	return p
}

// bookLaws runs the same commands on two stages. want never flushes and never evicts a row; got
// does both at random.
type bookLaws struct {
	t              *rapid.T
	want, got      *stage
	kept           map[string]party // what resolvers made of names some commands ago
	nonce          uint64
	many           bool // bursts of one row that changes often
	recents, boots int
}

func newBookLaws(t *rapid.T) *bookLaws {
	m := &bookLaws{
		t:     t,
		want:  newStage(t),
		got:   newStage(t),
		kept:  map[string]party{},
		nonce: 1000,
		many:  rapid.Bool().Draw(t, "many"),
	}
	for _, s := range []*stage{m.want, m.got} {
		if _, err := storetest.Do(s.tx, genesis{}); err != nil {
			t.Fatal(err)
		}
	}
	m.got.b.clean = rapid.SampledFrom([]int64{0, 0, 2, 1 << 16}).Draw(t, "clean")
	return m
}

// draft draws command i.
func (m *bookLaws) draft(i int) draft {
	d := drawDraft(m.t)
	switch {
	case i == 0:
		return draft{ops: []Op{{Code: record.OpAsset, Asset: "ron"}, {Code: record.OpAsset, Asset: "gold"}}}
	case !m.many || rapid.IntRange(0, 2).Draw(m.t, "burst") != 0:
		return d
	}
	d = draft{}
	for range 90 {
		m.nonce++
		o := issueOf(m.nonce).ops[0]
		o.Limits = &Limits{Monotonic: true, NonceSpan: 1 << 30}
		d.ops = append(d.ops, o)
	}
	return d
}

// panics runs a command that panics and therefore has no effect.
func (m *bookLaws) panics() {
	other := drawDraft(m.t)
	c := other.command()
	c.flush = flushRule{rows: 2, dirtyMax: 1}
	_, err := storetest.Do(m.got.tx, store.Command[*posted](&bug{*c}))
	var none refusal
	if err != nil && !errors.Is(err, store.ErrInternal) && !errors.As(err, &none) {
		m.t.Fatal(err)
	}
}

// resolve resolves a name and keeps the result for a later command.
func (m *bookLaws) resolve() {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(m.t, "name")
	asset := rapid.Uint32Range(1, 2).Draw(m.t, "of")
	m.kept[fmt.Sprint(name, asset)] = m.got.partyOf(name, asset)
}

// carry attaches the kept resolver results to the ops of a command.
func (m *bookLaws) carry(c *post) {
	for j := range c.ops {
		x := &c.ops[j]
		asset := map[string]string{"ron": "1", "gold": "2"}[x.op.Asset]
		if asset == "" || x.op.Code == record.OpAsset || x.op.Code == record.OpFlags {
			continue
		}
		if x.op.From != "" {
			x.from = m.kept[x.op.From+asset]
		}
		if x.op.To != "" {
			x.to = m.kept[x.op.To+asset]
		}
	}
}

func (m *bookLaws) do(s *stage, c *post) string {
	out, err := storetest.Do(s.tx, store.Command[*posted](c))
	if none, ok := err.(refusal); ok {
		out, err = none.posted, nil
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return brief(out.results)
}

// behind may flush a slice or end the group in got. want consumes the same stamp.
func (m *bookLaws) behind() {
	if _, err := storetest.Do(m.want.tx, nap{}); err != nil {
		m.t.Fatal(err)
	}
	f := flush{rows: rapid.IntRange(1, 9).Draw(m.t, "rows")}
	if rapid.Bool().Draw(m.t, "flush") {
		f.pass = m.got.b.newPass()
	}
	if _, err := storetest.Do(m.got.tx, f); err != nil {
		if _, err := storetest.Do(m.got.tx, nap{}); err != nil {
			m.t.Fatal(err)
		}
	}
	if rapid.Bool().Draw(m.t, "ends") {
		m.got.end()
	}
}

// boot compares got with freshly booted books, and may continue with the booted ones.
func (m *bookLaws) boot() {
	m.got.end()
	n := m.got.checked(m.t)
	m.recents += n.states.recent
	if rapid.IntRange(0, 2).Draw(m.t, "boot") == 0 {
		m.got.turnInto(n)
		clear(m.kept)
		m.got.checked(m.t)
		m.boots++
	}
}

func (m *bookLaws) step(i int) {
	d := m.draft(i)
	if rapid.IntRange(0, 5).Draw(m.t, "bug") == 0 {
		m.panics()
	}
	if rapid.Bool().Draw(m.t, "read") && i > 0 && !m.got.b.busy {
		m.resolve()
	}
	a, b := d.command(), d.command()
	m.carry(b)
	b.flush = flushRule{rows: rapid.IntRange(1, 3).Draw(m.t, "behind"), dirtyMax: rapid.IntRange(0, 2).Draw(m.t, "most")}
	if first, second := m.do(m.want, a), m.do(m.got, b); first != second {
		m.t.Fatalf("command %d: %s, want %s", i, second, first)
	}
	for range 3 {
		m.behind()
	}
	if rapid.Bool().Draw(m.t, "check") {
		m.boot()
	}
}

// Flushes, recent rows, eviction, carried rows, undone commands and boots do not change outcomes or
// the state hash: both equal those of a ledger that keeps everything in memory. Booted books equal
// those in memory.
func TestBooksLaws(t *testing.T) {
	recents, boots := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		m := newBookLaws(t)
		for i := range rapid.IntRange(1, 30).Draw(t, "commands") {
			m.step(i)
		}
		m.got.end()
		m.want.end()
		m.got.checked(t)
		if a, b := store.StateHash(m.got.tx.Reader(), tables.Buckets()), store.StateHash(
			m.want.tx.Reader(),
			tables.Buckets(),
		); a != b {
			t.Fatalf("hash of the truth %v, in one group %v", a, b)
		}
		recents, boots = recents+m.recents, boots+m.boots
	})
	if recents == 0 || boots == 0 {
		t.Errorf("%d recent rows, %d boots: nothing was tried", recents, boots)
	}
}

// A pass that was made before the last complete one is not begun, and one of the same records is:
// it takes rows at rest home.
func TestOldPassIsNotBegun(t *testing.T) {
	h := hand{low: tables.Flushed{Seq: 150}}
	if h.begins(nil) || h.begins(&flushPass{seq: 149}) || !h.begins(&flushPass{seq: 150}) {
		t.Error("passes are not begun by their records")
	}
	h.pass = &flushPass{seq: 150}
	if h.begins(&flushPass{seq: 200}) {
		t.Error("a pass is begun while another is under way")
	}
}
