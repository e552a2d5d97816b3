package ledger

import (
	"iter"
	"maps"
	"testing"

	"pgregory.net/rapid"
)

// lawRow is a value and the record that produced it.
type lawRow struct{ v, seq uint64 }

// lawCarried is a row that a caller read concurrently with the committer.
type lawCarried struct {
	k    uint64
	row  lawRow
	seq  uint64
	cell *cell[uint64, uint64]
}

// twoTables holds the contents of the two tables of a file.
type twoTables struct{ home, recent map[uint64]lawRow }

func (f twoTables) clone() twoTables { return twoTables{maps.Clone(f.home), maps.Clone(f.recent)} }

type lawLayer struct {
	l                      *layer[uint64, uint64]
	was, is                twoTables
	cmd                    twoTables // with the running command
	truth                  map[uint64]lawRow
	group                  map[uint64]lawRow
	running                map[uint64]lawRow
	seq                    uint64 // synced
	next                   uint64 // of the group
	runNext                uint64
	begun, looked, carried []lawCarried
	believed               int
}

const lawKeys = 6

func (m *lawLayer) cell(t *rapid.T, k uint64) *cell[uint64, uint64] {
	var c *cell[uint64, uint64]
	for i := range m.carried {
		if r := m.carried[i]; r.k == k {
			m.carried = append(m.carried[:i:i], m.carried[i+1:]...)
			if c = r.cell; !c.holds(k) {
				had := m.l.find(k)
				m.l.bring(k, r.row.v, r.seq)
				if c = m.l.find(k); c != nil && had == nil {
					m.believed++
				}
			}
			break
		}
	}
	if c == nil {
		if c = m.l.find(k); c == nil {
			c = m.l.enter(k, m.cmd.home[k].v)
		}
	}
	if want := m.running[k]; m.l.cur(c).v != want.v {
		t.Fatalf("key %d: the committer sees %d, want %d of record %d", k, m.l.cur(c).v, want.v, want.seq)
	}
	return c
}

func (m *lawLayer) change(t *rapid.T, k uint64) {
	c := m.cell(t, k)
	m.runNext++
	m.l.put(c, rapid.Uint64Range(1, 1000).Draw(t, "v"), m.runNext)
	m.running[k] = lawRow{m.l.cur(c).v, m.runNext}
}

func (m *lawLayer) flush(k uint64) {
	c := m.l.find(k)
	switch {
	case c == nil || m.l.cur(c).since == 0:
	case m.l.busy(m.l.cur(c)):
		m.cmd.recent[k] = lawRow{m.l.cur(c).v, m.l.cur(c).at}
		m.l.save(c)
	case m.l.rest(c):
	default:
		m.cmd.home[k] = lawRow{m.l.cur(c).v, m.l.cur(c).at}
		if m.l.cur(c).saved != 0 {
			delete(m.cmd.recent, k)
		}
		m.l.flushed(c)
	}
}

// steps advances callers: they take the seq, then look into memory, then read the view that begins
// now.
func (m *lawLayer) steps(t *rapid.T, file twoTables) {
	for range rapid.IntRange(0, 3).Draw(t, "begins") {
		m.begun = append(m.begun, lawCarried{k: rapid.Uint64Range(0, lawKeys-1).Draw(t, "key"), seq: m.seq})
	}
	for rapid.Bool().Draw(t, "look") && len(m.begun) > 0 {
		c := m.begun[0]
		m.begun = m.begun[1:]
		if c.cell = m.l.cell(c.k); c.cell != nil {
			c.seq = 0
		}
		m.looked = append(m.looked, c)
	}
	for rapid.Bool().Draw(t, "view") && len(m.looked) > 0 {
		c := m.looked[0]
		m.looked = m.looked[1:]
		if c.cell == nil {
			c.row = file.home[c.k]
		}
		m.carried = append(m.carried, c)
	}
}

func (m *lawLayer) begin() {
	m.cmd, m.running, m.runNext = m.is.clone(), maps.Clone(m.group), m.next
}

// all iterates over the cells of l.
func (l *layer[K, V]) all() iter.Seq2[K, *cell[K, V]] {
	return func(yield func(K, *cell[K, V]) bool) {
		for i := range l.shards {
			for k, at := range l.shards[i].cells {
				if !yield(k, l.cells.At(at)) {
					return
				}
			}
		}
	}
}

// listed returns the number of listed cells, and how many of them are cells of rows with listed set.
func (l *layer[K, V]) listed() (cells, right int) {
	for i := range l.shards {
		for _, c := range l.shards[i].pins {
			cells++
			right += oneIf(c.live && c.listed)
		}
	}
	return cells, right
}

func oneIf(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func (m *lawLayer) check(t *rapid.T) {
	l := m.l
	pinned, recent, dirty, cells := 0, 0, 0, 0
	for k, c := range l.all() {
		cells++
		v := &c.pub
		pinned += oneIf(v.since != 0)
		recent += oneIf(v.saved != 0)
		dirty += oneIf(v.since != 0 && v.saved != v.at)
		if !c.live || c.open != 0 || c.key != k || v.v != m.truth[k].v || v.since != 0 && !c.listed {
			t.Fatalf("key %d: %+v, want %+v", k, c, m.truth[k])
		}
		if _, is := m.was.recent[k]; is != (v.saved != 0) {
			t.Fatalf("key %d: saved %d, in the table %v", k, v.saved, is)
		}
		if v.since == 0 && m.was.home[k].v != v.v {
			t.Fatalf("key %d: clean and not as at home", k)
		}
		if v.since != 0 && v.saved == v.at && m.was.recent[k].v != v.v {
			t.Fatalf("key %d: saved and not as recent", k)
		}
	}
	if pinned != int(l.pinned.Load()) || recent != l.recent || dirty != int(l.dirty.Load()) || cells != int(l.size.Load()) {
		t.Fatalf("pinned %d is %d, recent %d is %d, dirty %d is %d, %d cells are %d", l.pinned.Load(), pinned,
			l.recent, recent, l.dirty.Load(), dirty, l.size.Load(), cells)
	}
	if n, right := l.listed(); n != right || n < pinned {
		t.Fatalf("%d cells are listed, %d rightly, %d are pinned", n, right, pinned)
	}
	if rapid.IntRange(0, 3).Draw(t, "pass") == 0 {
		if keys := l.pinnedKeys(); len(keys) != pinned {
			t.Fatalf("%d keys of %d pinned", len(keys), pinned)
		}
	}
	for k := range uint64(lawKeys) {
		r, is := m.was.recent[k]
		if v, ok := l.read(k); ok && v != m.truth[k].v || !ok && (is || m.was.home[k].v != m.truth[k].v) {
			t.Fatalf("key %d: in memory %v, %d; home %+v, recent %+v, truth %+v", k, ok, v, m.was.home[k], r,
				m.truth[k])
		}
		if is && r.seq <= m.was.home[k].seq {
			t.Fatalf("key %d: recent %+v, home %+v", k, r, m.was.home[k])
		}
	}
	if len(l.changed) != 0 || len(l.undo) != 0 {
		t.Fatal("something is left of the group")
	}
}

// A layer over a file of two tables satisfies these laws. A reader reads the newest value published
// when it looked, or a later one. A carried row is used only while it is the newest. The counts
// match the cells. A boot finds the same values as memory.
func TestLayerLaws(t *testing.T) {
	total := 0
	rapid.Check(t, func(t *rapid.T) {
		empty := twoTables{map[uint64]lawRow{}, map[uint64]lawRow{}}
		m := &lawLayer{
			l:     newLayer[uint64, uint64](func(n uint64) uint64 { return n }),
			was:   empty,
			is:    empty.clone(),
			truth: map[uint64]lawRow{},
			group: map[uint64]lawRow{},
		}
		key := func() uint64 { return rapid.Uint64Range(0, lawKeys-1).Draw(t, "key") }
		for range rapid.IntRange(1, 40).Draw(t, "groups") {
			m.steps(t, m.was)
			for range rapid.IntRange(1, 3).Draw(t, "commands") {
				m.begin()
				for range rapid.IntRange(0, 3).Draw(t, "ops") {
					mark, saved, next := m.l.mark(), maps.Clone(m.running), m.runNext
					m.change(t, key())
					if rapid.IntRange(0, 4).Draw(t, "back") == 0 {
						m.l.back(mark)
						m.running, m.runNext = saved, next
					}
				}
				for range rapid.IntRange(0, 4).Draw(t, "flushes") {
					m.flush(key())
				}
				if rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
					m.l.back(0)
					continue
				}
				m.l.keep()
				m.is, m.group, m.next = m.cmd, m.running, m.runNext
			}
			if rapid.IntRange(0, 4).Draw(t, "aborts") == 0 {
				m.l.drop()
				m.is, m.group, m.next = m.was.clone(), maps.Clone(m.truth), m.seq
			} else {
				m.steps(t, m.is)
				m.l.publish()
				m.was, m.truth, m.seq = m.is.clone(), maps.Clone(m.group), m.next
			}
			m.l.evict(rapid.Int64Range(0, 3).Draw(t, "most"))
			m.check(t)
			if rapid.IntRange(0, 9).Draw(t, "boot") == 0 {
				l := newLayer[uint64, uint64](func(n uint64) uint64 { return n })
				for k, r := range m.was.recent {
					l.load(k, r.v, r.seq)
				}
				for k, r := range m.truth {
					c := l.find(k)
					at := m.was.home[k]
					if c == nil {
						c = l.enter(k, at.v)
					} else {
						at = m.was.recent[k]
					}
					if r.seq > at.seq {
						l.put(c, r.v, r.seq)
						l.keep()
						l.publish()
					}
				}
				m.l, m.carried, m.begun, m.looked = l, nil, nil, nil
				m.check(t)
			}
		}
		total += m.believed
	})
	t.Log(total, "carried rows were believed")
}
