package tables

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/record"
	"ronbox/store"
	"ronbox/store/storetest"
)

// closedModel is a ledger of references and guards of settlements, some of closed periods.
type closedModel struct {
	tx      *storetest.Tx
	rng     *rand.Rand
	bound   map[[16]byte]boundGuard
	alike   map[[entryHash]byte][]uint64 // seqs of bound
	keys    [][16]byte                   // of bound, in the order of their seqs
	seq     uint64
	horizon Horizon
	last    record.Statement
}

type boundGuard struct {
	seq     uint64
	settles bool
}

func newClosedModel(tx *storetest.Tx, seed uint64) *closedModel {
	return &closedModel{
		tx: tx, rng: rand.New(rand.NewPCG(seed, 1)), bound: map[[16]byte]boundGuard{},
		alike: map[[entryHash]byte][]uint64{},
	}
}

// bind binds n guards, one a record. Some share the bytes that an entry has.
func (m *closedModel) bind(t rapid.TB, n int) {
	do(t, m.tx, func(_ store.Reader, w *store.Writes) {
		for range n {
			key := [16]byte{}
			binary.LittleEndian.PutUint64(key[:], m.rng.Uint64())
			binary.LittleEndian.PutUint64(key[8:], m.rng.Uint64())
			if len(m.keys) > 0 && m.rng.IntN(50) == 0 {
				key = m.keys[m.rng.IntN(len(m.keys))]
				key[15] ^= byte(1 + m.rng.IntN(255))
			}
			if _, twice := m.bound[key]; twice {
				continue
			}
			m.seq++
			m.bound[key] = boundGuard{m.seq, m.rng.IntN(20) == 0}
			m.keys = append(m.keys, key)
			hash := [entryHash]byte(key[:])
			m.alike[hash] = append(m.alike[hash], m.seq)
			PutOnce(w, OnceKey{Guard: true, Key: key}, m.row(key))
		}
		m.seq++
		PutOnce(w, OnceKey{Key: [16]byte{byte(m.seq)}}, Once{Seq: m.seq, Digest: b3.Digest{1}})
	})
}

func (m *closedModel) row(key [16]byte) Once {
	return Once{Seq: m.bound[key].seq, Digest: b3.Digest{key[0], 1}}
}

// close closes all records but the last few.
func (m *closedModel) close(t rapid.TB, keep uint64) {
	h := m.horizon
	if m.seq <= keep || m.seq-keep <= h.Seq {
		return
	}
	s := record.Statement{
		Period: h.Period + 1, FromSeq: h.Seq + 1, ToSeq: m.seq - keep, FromBatch: h.Batch + 1, ToBatch: h.Batch + 1,
		Peaks: []b3.Digest{{1}}, FromAt: int64(h.Batch) + 1, ToAt: int64(h.Batch) + 1,
	}
	if h.Period > 0 {
		s.Prev = m.last.Digest()
	}
	for _, g := range m.bound {
		if !g.settles && g.seq >= s.FromSeq && g.seq <= s.ToSeq {
			s.References++
		}
	}
	m.horizon = Horizon{
		Period: s.Period, Seq: s.ToSeq, Batch: s.ToBatch, At: s.ToAt, Generation: s.Period, Statement: s.Digest(),
	}
	do(t, m.tx, func(_ store.Reader, w *store.Writes) {
		PutHorizon(w, m.horizon)
		PutPeriod(w, s.Period, Period{Statement: s.Text(), CloseSeq: s.ToSeq + 1, File: "f"})
		for key, g := range m.bound {
			if g.settles && g.seq <= s.ToSeq {
				PutBaseOnce(w, s.Period, OnceKey{Guard: true, Key: key}, m.row(key))
			}
		}
	})
	m.last = s
}

func (m *closedModel) merge(t rapid.TB, cursor []byte, n int) (next []byte) {
	do(t, m.tx, func(r store.Reader, w *store.Writes) { next, _ = MergeClosed(r, w, m.horizon, cursor, n) })
	return next
}

// boundIn reports whether a record of a period has bound key, or another one with the bytes that an
// entry has.
func (m *closedModel) boundIn(key [16]byte, s *record.Statement) bool {
	for _, at := range m.alike[[entryHash]byte(key[:])] {
		if at >= s.FromSeq && at <= s.ToSeq {
			return true
		}
	}
	return false
}

// check looks up every guard, or every so many, and others that were never bound.
func (m *closedModel) check(t rapid.TB, every int) {
	t.Helper()
	r := m.tx.Reader()
	for i := m.rng.IntN(every); i < len(m.keys); i += every {
		key := m.keys[i]
		g := m.bound[key]
		o, known := FindOnce(r, OnceKey{Guard: true, Key: key})
		switch {
		case !known || !o.Bound():
			t.Fatalf("record %d has bound %x, and it is free", g.seq, key)
		case g.settles || g.seq > m.horizon.Seq:
			if o != m.row(key) || o.Closed(&m.horizon) != (g.seq <= m.horizon.Seq) {
				t.Fatalf("%x is %+v, want %+v", key, o, m.row(key))
			}
		default:
			period := o.Period
			if period == 0 {
				period = PeriodOf(r, o.Seq)
			}
			if s := StatementOf(r, period); !o.Closed(&m.horizon) || !m.boundIn(key, &s) {
				t.Fatalf("record %d, %x, is of period %d: %+v", g.seq, key, period, o)
			}
		}
		key[0], key[11] = key[0]^byte(m.rng.IntN(2)), key[11]^byte(1+m.rng.IntN(255))
		if o, known := FindOnce(r, OnceKey{Guard: true, Key: key}); known {
			if _, bound := m.bound[key]; !bound {
				t.Fatalf("%x was never bound, and is %+v", key, o)
			}
		}
	}
	if err := CheckClosed(r, func() bool { return true }); err != nil {
		t.Fatal(err)
	}
}

// After each step of merges that are left and begun anew anywhere, between closings, each reference
// is found in its period, each guard of a settlement as it was bound, and nothing else.
func TestMergedReferencesAreFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		m := newClosedModel(storetest.NewTx(t, Buckets()...), seed)
		var cursor []byte
		t.Repeat(map[string]func(*rapid.T){
			"bind":  func(t *rapid.T) { m.bind(t, rapid.SampledFrom([]int{1, 30, 700}).Draw(t, "rows")) },
			"close": func(t *rapid.T) { m.close(t, rapid.Uint64Range(0, 20).Draw(t, "keep")) },
			"merge": func(t *rapid.T) {
				cursor = m.merge(t, cursor, rapid.SampledFrom([]int{1, 40, 2048}).Draw(t, "rows"))
			},
			"anew": func(*rapid.T) { cursor = nil },
			"":     func(t *rapid.T) { m.check(t, 17) },
		})
		for cursor = m.merge(t, nil, 100); cursor != nil; {
			cursor = m.merge(t, cursor, 100)
		}
		m.check(t, 1)
		for k, row := range onces.Range(m.tx.Reader(), OnceKey{Guard: true}, OnceKey{}) {
			if row.Seq <= m.horizon.Seq && !m.bound[k.Key].settles {
				t.Fatalf("record %d was not merged", row.Seq)
			}
		}
	})
}

// Blocks that a merge has filled stay full, whatever the number of periods: a reference costs 17
// bytes.
func TestMergedBlocksAreFull(t *testing.T) {
	m := newClosedModel(storetest.NewTx(t, Buckets()...), 1)
	for range 5 {
		m.bind(t, 6000)
		m.close(t, 0)
		for cursor := m.merge(t, nil, 2048); cursor != nil; {
			cursor = m.merge(t, cursor, 2048)
		}
	}
	m.check(t, 1)
	blocks, entries := 0, 0
	for b := range closedBlocks(m.tx.Reader()) {
		blocks, entries = blocks+1, entries+b.len()
	}
	if least := (entries + blockEntries - 1) / blockEntries; blocks > least+least/50+1 {
		t.Errorf("%d references are in %d blocks, %d have room for them", entries, blocks, least)
	}
}

// A damaged block, or a missing one, is never an answer that a reference is free.
func TestDamagedBlocks(t *testing.T) {
	for name, damage := range map[string]func(key, row []byte, w *store.Writes){
		"a byte": func(key, row []byte, w *store.Writes) {
			row[20] ^= 1
			w.Put(bClosed, key, row)
		},
		"its key": func(key, row []byte, w *store.Writes) {
			w.Delete(bClosed, key)
			moved := append([]byte{}, key...)
			moved[11] ^= 1
			w.Put(bClosed, moved, row)
		},
		"its first entry": func(key, row []byte, w *store.Writes) {
			row = row[:len(row)-store.SumSize]
			row[12] ^= 1
			w.Put(bClosed, key, store.AddSum(key, row))
		},
		"its version": func(key, row []byte, w *store.Writes) {
			row = row[:len(row)-store.SumSize]
			row[0]++
			w.Put(bClosed, key, store.AddSum(key, row))
		},
		"its length": func(key, row []byte, w *store.Writes) {
			row = row[:len(row)-store.SumSize]
			w.Put(bClosed, key, store.AddSum(key, row[:len(row)-1]))
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newClosedModel(storetest.NewTx(t, Buckets()...), 1)
			m.bind(t, 900)
			m.close(t, 0)
			m.merge(t, nil, 2048)
			var key, row []byte
			var of closedEntry
			n := 0
			for b := range closedBlocks(m.tx.Reader()) {
				if n++; n == 2 {
					key = append([]byte{}, b.key...)
					row = append([]byte{}, m.tx.Reader().Get(bClosed, key)...)
					of = *b.at(5)
				}
			}
			do(t, m.tx, func(_ store.Reader, w *store.Writes) { damage(key, row, w) })
			_, err := storetest.Do(m.tx, write(func(r store.Reader, _ *store.Writes) {
				_, known := GetClosed(r, [16]byte(append(of.hash(), 0, 0, 0, 0)))
				t.Errorf("a reference of the block is known: %v", known)
			}))
			if !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("a look-up ended with %v", err)
			}
		})
	}
}
