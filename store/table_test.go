package store

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ronbox/appliance/b3"
)

// A table is a sorted map: every walk returns the same rows as the map.
func TestTableIsASortedMap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		table := NewTable(testRows, U64(), CBOR[string]())
		if rapid.Bool().Draw(rt, "summed") {
			table = table.Summed()
		}
		c, err := NewScratch(day, testRows)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		model := map[uint64]string{}
		key := rapid.Uint64Range(0, 40)
		for range rapid.IntRange(0, 60).Draw(rt, "steps") {
			k, v, del := key.Draw(rt, "k"), rapid.String().Draw(rt, "v"), rapid.IntRange(0, 3).Draw(rt, "del") == 0
			_, err := Try(c, Command[int](do[int]{"test.table/1", func(_ Reader, _ Stamp, w *Writes) (int, error) {
				if del {
					table.Delete(w, k)
				} else {
					table.Put(w, k, v)
				}
				return 0, nil
			}}))
			if err != nil {
				rt.Fatal(err)
			}
			if model[k] = v; del {
				delete(model, k)
			}
		}
		r := c.Reader()
		from, to := key.Draw(rt, "from"), key.Draw(rt, "to")
		keys := slices.Sorted(maps.Keys(model))
		within := slices.DeleteFunc(slices.Clone(keys), func(k uint64) bool { return k < from || k >= to })
		above := slices.DeleteFunc(slices.Clone(keys), func(k uint64) bool { return k < from })
		same(rt, "all", pairs(table.All(r)), keys, model)
		same(rt, "range", pairs(table.Range(r, from, to)), within, model)
		same(rt, "from", pairs(table.From(r, from)), above, model)
		slices.Reverse(keys)
		slices.Reverse(within)
		same(rt, "all back", pairs(table.AllBack(r)), keys, model)
		same(rt, "back", pairs(table.Back(r, from, to)), within, model)
		if v, ok := table.Get(r, from); ok != table.Has(r, from) || v != model[from] {
			rt.Errorf("get %d = %q, %v", from, v, ok)
		}
		if k, _, ok := table.Last(r); ok != (len(keys) > 0) || ok && k != keys[0] {
			rt.Errorf("last = %d, %v", k, ok)
		}
	})
}

type pair struct {
	k uint64
	v string
}

func pairs(rows func(func(uint64, string) bool)) (out []pair) {
	for k, v := range rows {
		out = append(out, pair{k, v})
	}
	return out
}

func same(t *rapid.T, name string, got []pair, keys []uint64, model map[uint64]string) {
	var want []pair
	for _, k := range keys {
		want = append(want, pair{k, model[k]})
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", name, got, want)
	}
}

// Key codecs keep the order of their values, and every codec decodes its own output to the original
// value.
func TestCodecs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Uint64().Draw(t, "a"), rapid.Uint64().Draw(t, "b")
		if bytes.Compare(U64().Append(nil, a), U64().Append(nil, b)) != compare(a, b) {
			t.Errorf("u64 %d and %d are not in order", a, b)
		}
		if bytes.Compare(U32().Append(nil, uint32(a)), U32().Append(nil, uint32(b))) != compare(uint32(a), uint32(b)) {
			t.Errorf("u32 %d and %d are not in order", a, b)
		}
		e := Event{Event: rapid.String().Draw(t, "event"), Detail: map[string]string{"k": rapid.String().Draw(t, "v")}}
		raw, err := CBOR[Event]().Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		back, err := CBOR[Event]().Decode(raw)
		if err != nil || back.Event != e.Event || !maps.Equal(back.Detail, e.Detail) {
			t.Errorf("%+v came back as %+v, %v", e, back, err)
		}
		d := [32]byte(bytes.Repeat([]byte{byte(a)}, 32))
		if k, err := Array32[[32]byte]().Decode(Array32[[32]byte]().Append(nil, d)); err != nil || k != d {
			t.Errorf("%x came back as %x, %v", d, k, err)
		}
		if k, err := String[string]().Decode(String[string]().Append(nil, e.Event)); err != nil || k != e.Event {
			t.Errorf("%q came back as %q, %v", e.Event, k, err)
		}
	})
}

func compare[T uint32 | uint64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func TestStrictCBOR(t *testing.T) {
	for name, raw := range map[string][]byte{
		"empty":            {},
		"unknown version":  {2, 0xa0},
		"duplicate member": {1, 0xa2, 0x01, 0x61, 'a', 0x01, 0x61, 'b'},
		"unknown member":   {1, 0xa1, 0x18, 0x63, 0x61, 'a'},
		"indefinite":       {1, 0xbf, 0xff},
		"tag":              {1, 0xc1, 0xa0},
		"trailing":         {1, 0xa0, 0x00},
		"wrong type":       {1, 0xa1, 0x01, 0x02},
	} {
		if v, err := CBOR[Event]().Decode(raw); err == nil {
			t.Errorf("%s: decoded as %+v", name, v)
		}
	}
	for name, err := range map[string]error{
		"u64": second(U64().Decode([]byte{1})), "u32": second(U32().Decode(nil)),
		"array": second(Array32[[32]byte]().Decode([]byte{1})),
	} {
		if err == nil {
			t.Errorf("%s: a key of the wrong length decoded", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// The state hash is of the truth alone, and of every bit of it.
func TestStateHash(t *testing.T) {
	hash := func(writes ...write) (h string) {
		c, err := NewScratch(day, testRows, testDerived, otherRows)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Try(c, Command[int](do[int]{"test.hash/1", func(_ Reader, _ Stamp, w *Writes) (int, error) {
			for _, x := range writes {
				w.Put(x.t.Bucket, x.key, x.value)
			}
			w.Audit(Event{Event: "e"})
			return 0, nil
		}}))
		if err != nil {
			t.Fatal(err)
		}
		h = StateHash(c.Reader(), []*Bucket{otherRows, testDerived, testRows}).String()
		if StateHash(c.Reader(), []*Bucket{testRows, otherRows}).String() != h {
			t.Error("the order of declaration matters")
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		return h
	}
	row := func(b *Bucket, k, v string) write {
		return write{&table{declared: &declared{Bucket: b}}, []byte(k), []byte(v)}
	}
	seen := map[string]int{}
	for i, h := range []string{
		hash(), hash(row(testRows, "a", "")), hash(row(testRows, "a", "b")), hash(row(testRows, "ab", "")),
		hash(row(otherRows, "a", "b")),
	} {
		if j, dup := seen[h]; dup {
			t.Errorf("states %d and %d have one hash", i, j)
		}
		seen[h] = i
	}
	if hash(row(testDerived, "a", "b")) != hash() {
		t.Error("derived rows count")
	}
}

// The definition, spelled out: BLAKE3 over bucket, key and value, each behind its u32 length,
// big-endian, of the truth in byte order.
func TestStateHashByHand(t *testing.T) {
	auth := &Bucket{Name: authName}
	c, err := NewScratch(day, otherRows, testRows, testDerived, auth)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Try(c, Command[int](do[int]{"test.hash/1", func(_ Reader, _ Stamp, w *Writes) (int, error) {
		w.Put(testRows, []byte("b"), nil)
		w.Put(testRows, []byte("a"), []byte("12"))
		w.Put(otherRows, []byte("z"), make([]byte, 300))
		w.Put(testDerived, []byte("d"), []byte("-"))
		w.Put(auth, []byte("kid"), []byte("-"))
		return 0, nil
	}})); err != nil {
		t.Fatal(err)
	}
	want := "\x00\x00\x00\x0aother/rows" + "\x00\x00\x00\x01z" + "\x00\x00\x01\x2c" + string(make([]byte, 300)) +
		"\x00\x00\x00\x09test/rows" + "\x00\x00\x00\x01a" + "\x00\x00\x00\x0212" +
		"\x00\x00\x00\x09test/rows" + "\x00\x00\x00\x01b" + "\x00\x00\x00\x00"
	if got := StateHash(
		c.Reader(),
		[]*Bucket{testRows, auth, otherRows, testDerived, metaBucket, auditBucket},
	); got != b3.Sum([]byte(want)) {
		t.Errorf("state hash %s", got)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}
